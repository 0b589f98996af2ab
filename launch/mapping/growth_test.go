package mapping

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A chain grows from its end, and the clusters are taken from the largest on to the next nearest, which
// need not be the next largest.
func TestGrow(t *testing.T) {
	a := grid(1, 2, 3, 4)
	a.Latency = [][]float64{{.1, 1, 2}, {1, .1, 9}, {2, 9, .1}}
	p := Problem{Band(8, 8, 1), a}
	got := grow(p, p.Nodes.clusters(), 2)
	if want := (Map{5, 6, 7, 8, 0, 1, 2, 3}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// It begins at an end of the graph, and follows the heaviest edge.
func TestGrowFollowsWeights(t *testing.T) {
	edges := [][]Edge{{{1, 1}, {2, 1}, {3, 5}}, {{0, 1}}, {{0, 1}}, {{0, 5}}}
	p := Problem{&Graph{make([]float64, 4), edges}, grid(1, 4)}
	if got, want := grow(p, p.Nodes.clusters(), 0), (Map{1, 0, 3, 2}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestLeastPowers(t *testing.T) {
	a := grid(1, 8)
	copy(a.Power, []float64{3, 1, 4, 1, 5, 9, 2, 6})
	for _, c := range []struct {
		tasks int
		want  []float64
	}{{1, []float64{9, 6, 5, 4, 3, 2, 1}}, {5, []float64{3, 2, 1}}, {8, []float64{1}}} {
		if got := leastPowers(Problem{Band(c.tasks, c.tasks, 1), a}); !slices.Equal(got, c.want) {
			t.Errorf("%d tasks: %v, want %v", c.tasks, got, c.want)
		}
	}
	many := grid(1, 100)
	for i := range many.Power {
		many.Power[i] = float64(1 + i)
	}
	if got := leastPowers(Problem{Band(50, 50, 1), many}); len(got) != growthPowers || got[0] != 51 || got[len(got)-1] != 1 {
		t.Errorf("%v, want %d from 51 to 1", got, growthPowers)
	}
}

func TestGrowthsAreValid(t *testing.T) {
	for seed := range uint64(300) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 7)), 30)
		all := growths(p)
		if len(all) == 0 {
			t.Fatalf("seed %d: none", seed)
		}
		for _, m := range all {
			if err := p.CheckMap(m); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
