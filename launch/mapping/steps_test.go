package mapping

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Every step lowers what it is to lower, and leaves what comes before that.
func TestSteps(t *testing.T) {
	var times, cuts int
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		p := randomProblem(rng, 25)
		s := newSearch(p, Map(rng.Perm(len(p.Nodes.Power))[:p.Graph.Tasks()]), searchWork)
		for range 60 {
			before := p.rank(slices.Clone(s.m))
			lower := s.lowerTime
			isTime := rng.IntN(2) == 0
			if !isTime {
				lower = s.lowerCut
			}
			moved := lower()
			after := p.rank(s.m)
			if err := p.CheckMap(s.m); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if after.time > before.time*(1+1e-9) || moved && !isTime && after.cut > before.cut-1e-12 || !moved && !slices.Equal(before.m, after.m) {
				t.Fatalf("seed %d, time %v, moved %v: time %g to %g, cut %g to %g", seed, isTime, moved, before.time, after.time, before.cut, after.cut)
			}
			if moved && isTime {
				times++
			} else if moved {
				cuts++
			}
		}
	}
	t.Logf("%d steps lowered a time, %d passes the cut", times, cuts)
	if times == 0 || cuts == 0 {
		t.Error("there are no steps of a kind")
	}
}

// alike makes all latencies the same, so that only the cut counts.
func alike(a *Architecture) *Architecture {
	for _, row := range a.Latency {
		for i := range row {
			row[i] = 1
		}
	}
	return a
}

// Tasks 1 and 2 exchange clusters, although they are neighbours; two alone have nothing to gain.
func TestLowerCutExchanges(t *testing.T) {
	p := Problem{Band(4, 4, 1), alike(grid(1, 2, 2))}
	s := newSearch(p, Map{0, 2, 1, 3}, searchWork)
	for s.lowerCut() {
	}
	if p.Cut(s.m) != 1 {
		t.Errorf("%v with cut %g; want cut 1", s.m, p.Cut(s.m))
	}
	two := Problem{&Graph{[]float64{1, 1, 9}, [][]Edge{{{1, 1}}, {{0, 1}}, {}}}, alike(grid(1, 1, 1, 1))}
	if s := newSearch(two, Map{0, 1, 2}, searchWork); s.lowerCut() {
		t.Errorf("two tasks, each alone in its cluster, were moved: %v", s.m)
	}
}

// The slow task cannot go to its neighbour, where nodes are weak; the neighbour comes to it.
func TestLowerTimeBringsNeighbours(t *testing.T) {
	p := Problem{&Graph{[]float64{10, 1}, [][]Edge{{{1, 1}}, {{0, 1}}}}, grid(1, 2, 2)}
	p.Nodes.Power[0] = 10
	s := newSearch(p, Map{0, 2}, searchWork)
	if !s.lowerTime() || !slices.Equal(s.m, Map{0, 1}) {
		t.Errorf("%v, want task 1 on node 1", s.m)
	}
}

// improve does both kinds of steps.
func TestImproveLowersTheCut(t *testing.T) {
	p := Problem{Band(4, 4, 1), alike(grid(1, 2, 2))}
	if got := p.improve(p.rank(Map{0, 2, 1, 3})); got.cut != 1 {
		t.Errorf("%v with cut %g; want cut 1", got.m, got.cut)
	}
}

// shuffle numbers the tasks of a graph anew.
func shuffle(g *Graph, rng *rand.Rand) *Graph {
	order := rng.Perm(g.Tasks())
	other := &Graph{make([]float64, g.Tasks()), make([][]Edge, g.Tasks())}
	for task, edges := range g.Edges {
		other.Cost[order[task]] = g.Cost[task]
		for _, e := range edges {
			other.Edges[order[task]] = append(other.Edges[order[task]], Edge{order[e.Task], e.Weight})
		}
	}
	return other
}

// Whatever the tasks' numbers are, the cut is about that of a band in its own order, also where only the
// fast half of each cluster is to be used.
func TestSearchFindsTheOrderOfABand(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 10))
	alone := Problem{Band(64, 64, 5), alike(grid(1, 30, 25, 20, 20, 18))}
	half := Problem{Band(48, 48, 5), alike(grid(1, 32, 32, 32, 32))}
	for i := range half.Nodes.Power {
		half.Nodes.Power[i] = float64(1 + 9*(i%2))
	}
	for _, c := range []struct {
		p    Problem
		want float64
	}{{alone, 30}, {half, 30}} {
		c.p.Graph = shuffle(c.p.Graph, rng)
		got := c.p.rank(Search(c.p, 1))
		t.Logf("cut %g without a mapping, %g by auto", c.p.Cut(InOrder(c.p)), got.cut)
		if got.cut > c.want {
			t.Errorf("cut %g; in the band's order it is %g", got.cut, c.want)
		}
	}
}
