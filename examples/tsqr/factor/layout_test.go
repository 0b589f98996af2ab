package factor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/clusters"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// spread places ranks on sites of two nodes, one after the other or in turn.
func spread(ranks, sites int, inTurn bool) []overlay.NodeID {
	places := make([]overlay.NodeID, ranks)
	for r := range places {
		site, within := r*sites/ranks, r
		if inTurn {
			site, within = r%sites, r/sites
		}
		places[r] = overlay.NodeID{Site: overlay.SiteID(fmt.Sprint("s", site)), Name: fmt.Sprint("n", within%2)}
	}
	return places
}

// Every leader's factor reaches rank 0, and each site but its own sends one
// message, whatever the order of ranks.
func TestTreeCrossesOncePerSite(t *testing.T) {
	for ranks := 1; ranks <= 33; ranks++ {
		for sites := 1; sites <= min(ranks, 5); sites++ {
			for _, inTurn := range []bool{false, true} {
				for _, domains := range []int{perRank, 1, 2, 3} {
					places := spread(ranks, sites, inTurn)
					rand.New(rand.NewPCG(1, uint64(ranks))).Shuffle(ranks, func(i, j int) {
						if ranks%2 == 0 {
							places[i], places[j] = places[j], places[i]
						}
					})
					if err := proveTree(newLayout(places, clusters.Of(places, nil), domains), sites); err != nil {
						t.Fatalf("%d ranks on %d sites, in turn %v, %d domains: %v", ranks, sites, inTurn, domains, err)
					}
				}
			}
		}
	}
}

func proveTree(l layout, sites int) error {
	has := map[int][]int{} // whose factors are in a leader's
	for _, r := range l.leaders {
		has[r] = []int{r}
	}
	out := map[overlay.SiteID]int{}
	for _, s := range l.steps {
		if has[s.from] == nil || has[s.to] == nil {
			return fmt.Errorf("step %v of a rank without a factor", s)
		}
		has[s.to] = append(has[s.to], has[s.from]...)
		delete(has, s.from)
		if from := l.places[s.from].Site; from != l.places[s.to].Site {
			out[from]++
		}
	}
	if len(has) != 1 || len(has[0]) != len(l.leaders) || len(l.steps) != len(l.leaders)-1 {
		return fmt.Errorf("at the end there is %v after %d steps", has, len(l.steps))
	}
	slices.Sort(has[0])
	if !slices.Equal(has[0], slices.Sorted(slices.Values(l.leaders))) {
		return fmt.Errorf("rank 0 has %v of %v", has[0], l.leaders)
	}
	if l.sites != sites || len(out) != sites-1 || out[l.places[0].Site] != 0 {
		return fmt.Errorf("%d sites, of which send out %v", l.sites, out)
	}
	for site, n := range out {
		if n != 1 {
			return fmt.Errorf("%s sends out %d messages", site, n)
		}
	}
	return nil
}

func TestDomains(t *testing.T) {
	places := spread(7, 2, true) // 0 2 4 6 and 1 3 5
	groups := []mpilib.JobGroup{{Name: "few", First: 0, Count: 2}, {Name: "many", First: 2, Count: 5}}
	for _, tt := range []struct {
		groups          []mpilib.JobGroup
		domains         int
		domain, leaders []int
	}{
		{nil, perRank, []int{0, 1, 2, 3, 4, 5, 6}, []int{0, 1, 2, 3, 4, 5, 6}},
		{nil, oneForAll, []int{0, 0, 0, 0, 0, 0, 0}, []int{0}},
		{nil, 1, []int{0, 1, 0, 1, 0, 1, 0}, []int{0, 1}},
		{nil, 2, []int{0, 1, 0, 1, 2, 3, 2}, []int{0, 1, 4, 5}},
		{nil, 4, []int{0, 1, 2, 3, 4, 5, 6}, []int{0, 1, 2, 3, 4, 5, 6}},
		{groups, 1, []int{0, 0, 1, 1, 1, 1, 1}, []int{0, 2}},
		{groups, 2, []int{0, 1, 2, 2, 2, 3, 3}, []int{0, 1, 2, 5}},
	} {
		l := newLayout(places, clusters.Of(places, tt.groups), tt.domains)
		if !slices.Equal(l.domain, tt.domain) || !slices.Equal(l.leaders, tt.leaders) {
			t.Errorf("groups %v, %d domains: %v led by %v, want %v by %v", tt.groups, tt.domains, l.domain, l.leaders, tt.domain, tt.leaders)
		}
	}
}

// With a power of two of ranks, a factor waits for no more messages than the
// logarithm of them.
func TestTreeIsShallow(t *testing.T) {
	places := spread(16, 4, false)
	l := newLayout(places, clusters.Of(places, nil), perRank)
	depth := make([]int, 16)
	for _, s := range l.steps {
		depth[s.to] = max(depth[s.to], depth[s.from]) + 1
	}
	if depth[0] != 4 {
		t.Errorf("%d messages wait for each other, want 4", depth[0])
	}
}
