package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// replicaWorld runs f as each process of a job whose ranks have two replicas, which join by their environment as on one machine.
func replicaWorld(t *testing.T, ranks int, environ map[string]string, f func(context.Context, *Comm) error) {
	t.Helper()
	dir := testkit.ShortDir(t)
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var processes sync.WaitGroup
	for process := range 2 * ranks {
		env := map[string]string{
			EnvRank: strconv.Itoa(process % ranks), EnvSize: strconv.Itoa(ranks), EnvCopies: "2", EnvCopy: strconv.Itoa(process / ranks),
			EnvJobKey: key.String(), EnvDir: dir,
		}
		for name, value := range environ {
			env[name] = value
		}
		processes.Go(func() {
			w, err := Init(ctx, func(cfg *config) {
				cfg.lookup = func(name string) (string, bool) { v, ok := env[name]; return v, ok }
			})
			if err == nil {
				err = errors.Join(f(ctx, w.Comm()), w.Finalize(ctx))
			}
			if err != nil {
				t.Errorf("process %d: %v", process, err)
				cancel()
			}
		})
	}
	processes.Wait()
}

// Ranks with replicas are where the environment says, the same in all replicas, with all that follows from that: colours,
// communicators of a site, process sets, groups, and the choice of algorithms.
func TestReplicatedPlaces(t *testing.T) {
	want := make([]overlay.NodeID, 6)
	for r := range want {
		site, node := someSites(r)
		want[r] = overlay.NodeID{Site: overlay.SiteID(site), Name: node}
	}
	environ := map[string]string{
		EnvPlaces: "a/n1:1,a/n2:1,b/n1:1,a/n1:1,b/n1:2", EnvGroups: "master:1,workers:5",
		EnvColl: "barrier=two-level,bcast=two-level,allreduce=two-level,alltoall=two-level",
	}
	replicaWorld(t, 6, environ, func(ctx context.Context, c *Comm) error {
		places, err := c.Places(ctx)
		if err != nil || !slices.Equal(places, want) || c.World().Place() != want[c.Rank()] {
			return fmt.Errorf("places %v, and mine is %v: %w", places, c.World().Place(), err)
		}
		site, err := c.SplitType(ctx, SplitSite, 0, nil)
		if err != nil {
			return err
		}
		set, err := c.World().NewSession().Group(ctx, PsetSite)
		if err != nil {
			return err
		}
		members := []int{0, 1, 3}
		if want[c.Rank()].Site == "b" {
			members = []int{2, 4, 5}
		}
		for i, r := range members {
			if site.Size() != len(members) || site.WorldRank(i) != r || set.WorldRank(i) != r {
				return fmt.Errorf("at its site are %v, and in the process set %v; want %v", site.Group(), set, members)
			}
		}
		topo, err := c.AllgatherTopology(ctx) // what it sends is the same in all replicas
		if err != nil {
			return err
		}
		for r, colour := range []int{0, 0, 1, 0, 1, 1} {
			if got := topo.Colour(r, LevelSite); got != colour {
				return fmt.Errorf("rank %d has colour %d, want %d", r, got, colour)
			}
			if got, want := topo.Ranks[r].Group, []string{"master", "workers"}[min(r, 1)]; got != want {
				return fmt.Errorf("rank %d is in group %q, want %q", r, got, want)
			}
		}
		group, err := c.SplitType(ctx, SplitGroup, 0, nil)
		if err != nil {
			return err
		}
		if want := []int{1, 5}[min(c.Rank(), 1)]; group.Size() != want {
			return fmt.Errorf("in its group are %v, want %d ranks", group.Group(), want)
		}
		if p, err := listed(ctx, c); err != nil || !p.Apart() {
			return fmt.Errorf("algorithms are chosen as if all ranks were together: %w", err)
		}
		for _, l := range c.World().Links() {
			if l.Replica != c.World().Replica() || l.Node != "" || l.Peer == l.Rank && l.PeerReplica == l.Replica {
				return fmt.Errorf("%+v", l)
			}
		}
		return collectiveProgram(ctx, c, func() {})
	})
}

// Without places all ranks are on one node.
func TestReplicatedNowhere(t *testing.T) {
	replicaWorld(t, 2, nil, func(ctx context.Context, c *Comm) error {
		site, err := c.SplitType(ctx, SplitSite, 0, nil)
		if err != nil {
			return err
		}
		set, err := c.World().NewSession().Group(ctx, PsetNode)
		if err != nil || site.Size() != 2 || set.Size() != 2 || c.World().Place() != (overlay.NodeID{}) {
			return fmt.Errorf("%d ranks at the site, %v on the node %v: %w", site.Size(), set, c.World().Place(), err)
		}
		return nil
	})
}
