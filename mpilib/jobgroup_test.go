package mpilib

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// someGroups divides a world of n ranks into at most three groups.
func someGroups(n int) (text string, groups []JobGroup) {
	var parts []string
	for first, i := 0, 0; first < n; i++ {
		count := min(i+1, n-first)
		if i == 2 {
			count = n - first
		}
		name := []string{"master", "workers", "io.node-1"}[i]
		groups = append(groups, JobGroup{Name: name, First: first, Count: count})
		parts = append(parts, fmt.Sprintf("%s:%d", name, count))
		first += count
	}
	return strings.Join(parts, ","), groups
}

// ofRank returns the group that a rank of the world is in.
func ofRank(groups []JobGroup, world int) JobGroup {
	return groups[slices.IndexFunc(groups, func(g JobGroup) bool { return world >= g.First && world < g.First+g.Count })]
}

// Every rank knows all groups; SplitType and the process sets divide the world by them.
func TestJobGroups(t *testing.T) {
	for _, n := range either([]int{1, 2, 6}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			text, want := someGroups(n)
			TestWorld(t, n, func(ctx context.Context, c *Comm) error {
				if got := c.World().JobGroups(); !slices.Equal(got, want) {
					return fmt.Errorf("groups %v, want %v", got, want)
				}
				mine := ofRank(want, c.Rank())
				ranks := make([]int, mine.Count)
				for i := range ranks {
					ranks[i] = mine.First + mine.Count - 1 - i // ordered by the key
				}
				part, err := c.SplitType(ctx, SplitGroup, -c.Rank(), nil)
				if err != nil {
					return err
				}
				if got := members(part.Group()); !slices.Equal(got, ranks) || !strings.Contains(part.Name(), mine.Name) {
					return fmt.Errorf("%s has %v, want %v", part.Name(), got, ranks)
				}
				slices.Sort(ranks)
				return errors.Join(ringWorks(ctx, part, 1), topologyHas(ctx, part, want), psetsAre(ctx, c, want, ranks))
			}, WithGroups(text))
		})
	}
}

// topologyHas checks that the topology of a communicator has the job's groups, also encoded as
// JSON.
func topologyHas(ctx context.Context, c *Comm, want []JobGroup) error {
	topo, err := c.Topology(ctx)
	if err != nil {
		return err
	}
	for r, place := range topo.Ranks {
		if g := ofRank(want, c.WorldRank(r)); place.Group != g.Name {
			return fmt.Errorf("rank %d of %s is in group %q, want %q", r, c.Name(), place.Group, g.Name)
		}
	}
	text, err := json.Marshal(topo)
	if err != nil {
		return err
	}
	var back Topology
	if err := json.Unmarshal(text, &back); err != nil || !slices.Equal(topo.Groups, want) || !reflect.DeepEqual(&back, topo) {
		return fmt.Errorf("groups %v, want %v; as JSON %s, %v", topo.Groups, want, text, err)
	}
	return nil
}

// psetsAre checks that the process sets of all groups are known, and that a communicator can be
// created from the caller's.
func psetsAre(ctx context.Context, c *Comm, want []JobGroup, mine []int) error {
	s := c.World().NewSession()
	own := PsetGroup + ofRank(want, c.Rank()).Name
	if psets := s.Psets(); !slices.Contains(psets, own) || len(psets) != 5 {
		return fmt.Errorf("process sets %v, want %s among them", psets, own)
	}
	for _, g := range want {
		set, err := s.Group(ctx, PsetGroup+g.Name)
		if err != nil || set.Size() != g.Count || (set.Rank() == Undefined) == (PsetGroup+g.Name == own) {
			return fmt.Errorf("group %s has %v, %v", g.Name, set, err)
		}
	}
	g, err := s.Group(ctx, own)
	if err != nil || !slices.Equal(members(g), mine) {
		return fmt.Errorf("%s has %v, %v; want %v", own, g, err, mine)
	}
	made, err := s.CommFromGroup(ctx, g, "groups", nil)
	if err != nil {
		return err
	}
	_, unknown := s.Group(ctx, PsetGroup+"nobody")
	return errors.Join(ringWorks(ctx, made, 2), made.Free(), s.Finalize(ctx), expect(unknown, ErrArg, `no group "nobody"; its groups are "master:1`))
}

// A rank that gives Undefined gets no communicator, and in a job without groups no rank gets one.
func TestSplitGroupUndefined(t *testing.T) {
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		split, want := SplitGroup, []int{1, 2}
		switch c.Rank() {
		case 0:
			want = nil
			split = SplitType(Undefined)
		case 3:
			want = []int{3}
		}
		part, err := c.SplitType(ctx, split, 0, nil)
		if err != nil || (part == nil) != (want == nil) {
			return fmt.Errorf("%v, %v", part, err)
		}
		if part != nil && !slices.Equal(members(part.Group()), want) {
			return fmt.Errorf("%s has %v, want %v", part.Name(), members(part.Group()), want)
		}
		part, err = c.SplitType(ctx, SplitType(Undefined), 0, nil)
		if part != nil || err != nil {
			return fmt.Errorf("nobody wanted a part: %v, %v", part, err)
		}
		_, err = c.SplitType(ctx, []SplitType{SplitGroup, SplitSite, SplitGroup, SplitGroup}[c.Rank()], 0, nil)
		return expect(err, ErrMismatch, "on rank 1")
	}, WithGroups("a:1,b:2,c:1"))
	TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
		part, err := c.SplitType(ctx, SplitGroup, 0, nil)
		topo, topoErr := c.Topology(ctx)
		if part != nil || err != nil || topoErr != nil || len(topo.Groups) > 0 || topo.Ranks[0].Group != "" || len(c.World().JobGroups()) > 0 {
			return fmt.Errorf("%v, %v; topology %+v, %v", part, err, topo, topoErr)
		}
		if psets := c.World().NewSession().Psets(); len(psets) != 4 {
			return fmt.Errorf("process sets %v", psets)
		}
		_, err = c.World().NewSession().Group(ctx, PsetGroup+"a")
		return expect(err, ErrArg, `no group "a"`)
	})
}

// A split by groups fails if ranks know different groups.
func TestGroupsDiffer(t *testing.T) {
	texts := []string{"a:1,b:1", "a:2"}
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		_, err := c.SplitType(ctx, SplitGroup, 0, nil)
		return expect(err, ErrMismatch, EnvGroups+" of rank", "all must give the same")
	}, func(cfg *config) { WithGroups(texts[cfg.place.Rank])(cfg) })
}

func TestGroupsFromTheEnvironment(t *testing.T) {
	t.Setenv(EnvGroups, "solo:1")
	w, err := Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := w.JobGroups(); !slices.Equal(got, []JobGroup{{Name: "solo", Count: 1}}) {
		t.Errorf("groups %v", got)
	}
	if err := w.Finalize(t.Context()); err != nil {
		t.Error(err)
	}
	t.Setenv(EnvGroups, "solo:2")
	if _, err := Init(t.Context()); !errors.Is(err, ErrEnv) || !strings.Contains(err.Error(), EnvGroups) {
		t.Errorf("two ranks in groups of a world of one: %v", err)
	}
}
