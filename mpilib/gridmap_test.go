package mpilib

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

// Six ranks on two sites: ranks 0 and 3 on a/n1, 1 on a/n2, and 2, 4 and 5 on b/n1.
func someSites(rank int) (site, node string) {
	at := [...][2]string{{"a", "n1"}, {"a", "n2"}, {"b", "n1"}, {"a", "n1"}, {"b", "n1"}, {"b", "n1"}}[rank]
	return at[0], at[1]
}

func TestTopologyColours(t *testing.T) {
	TestWorld(t, 6, func(ctx context.Context, c *Comm) error {
		topo, err := c.Topology(ctx)
		if err != nil {
			return err
		}
		for level, want := range map[Level][]int{
			LevelGrid:     {0, 0, 0, 0, 0, 0},
			LevelSite:     {0, 0, 1, 0, 1, 1},
			LevelNode:     {0, 1, 2, 0, 2, 2}, // each site has its own node n1
			LevelNode + 1: {Undefined, Undefined, Undefined, Undefined, Undefined, Undefined},
		} {
			for r, colour := range want {
				if got := topo.Colour(r, level); got != colour {
					return fmt.Errorf("rank %d has colour %d at level %v, want %d", r, got, level, colour)
				}
			}
		}
		for _, pair := range []struct {
			a, b int
			want Level
		}{{0, 3, LevelNode}, {0, 1, LevelSite}, {0, 2, LevelGrid}, {4, 4, LevelNode}} {
			if got := topo.Shared(pair.a, pair.b); got != pair.want {
				return fmt.Errorf("ranks %d and %d share the %v, want the %v", pair.a, pair.b, got, pair.want)
			}
		}
		if r := topo.Ranks[4]; r.Site != "b" || r.Node != "n1" || r.World != 4 || topo.Depth(4) != 3 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	}, WithPlaces(someSites))
}

// Colours can be passed to Split, and the ranks of a topology are those of its communicator.
func TestTopologySplits(t *testing.T) {
	TestWorld(t, 6, func(ctx context.Context, c *Comm) error {
		topo, err := c.Topology(ctx)
		if err != nil {
			return err
		}
		site, err := c.Split(ctx, topo.Colour(c.Rank(), LevelSite), 0)
		if err != nil {
			return err
		}
		mine, err := site.Topology(ctx)
		if err != nil {
			return err
		}
		for r, place := range mine.Ranks {
			if place.Rank != r || place.World != site.WorldRank(r) || place.Colours[LevelSite] != 0 || place.Site != string(c.World().Place().Site) {
				return fmt.Errorf("rank %d of %s: %+v", r, site.Name(), place)
			}
		}
		for _, p := range site.Paths() {
			if p.From != site.Rank() || p.To == site.Rank() || p.To < 0 || p.To >= site.Size() {
				return fmt.Errorf("a path of %s: %+v", site.Name(), p)
			}
		}
		return nil
	}, WithPlaces(someSites))
}

func TestTopologyPaths(t *testing.T) {
	TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
		// Ranks 0 and 1 have a link; other links depend on the algorithms.
		if c.Rank() < 2 {
			peer := 1 - c.Rank()
			if _, err := Sendrecv(ctx, c, []int{1}, peer, 0, []int{0}, peer, 0); err != nil {
				return err
			}
		}
		own, err := c.Topology(ctx)
		if err != nil {
			return err
		}
		for _, p := range own.Paths {
			if p.From != c.Rank() {
				return fmt.Errorf("not this rank's: %+v", p)
			}
		}
		if p, known := own.Path(c.Rank(), 1-c.Rank()); c.Rank() < 2 && (!known || p.Technique != "local" || p.RTTMS <= 0 || p.Carriers != 1 || p.Bandwidth != 0) {
			return fmt.Errorf("%+v, %v", p, known)
		}
		if _, known := own.Path(c.Rank(), c.Rank()); known {
			return fmt.Errorf("a path to oneself")
		}
		at2, err := c.GatherTopology(ctx, 2)
		if err != nil {
			return err
		}
		all, err := c.AllgatherTopology(ctx)
		if err != nil {
			return err
		}
		for _, pair := range [][2]int{{0, 1}, {1, 0}} {
			_, atRoot := at2.Path(pair[0], pair[1])
			_, anywhere := all.Path(pair[0], pair[1])
			if !anywhere || c.Rank() == 2 && !atRoot {
				return fmt.Errorf("the path from rank %d to %d: %v at the root, %v for all", pair[0], pair[1], atRoot, anywhere)
			}
		}
		if len(at2.Paths) >= len(all.Paths) && c.Rank() != 2 {
			return fmt.Errorf("rank %d is not the root and has %d paths, of %d", c.Rank(), len(at2.Paths), len(all.Paths))
		}
		text, err := json.Marshal(all)
		if err != nil {
			return err
		}
		var back Topology
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, all) {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	})
}
