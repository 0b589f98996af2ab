package mapping

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// polish is optimal within clusters: no map with each task in the same cluster has a lower greatest time.
func TestPolishIsOptimalWithinClusters(t *testing.T) {
	changed := 0
	for seed := range uint64(300) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 5)), 6)
		m := InOrder(p)
		polished := polish(p, m)
		if err := p.CheckMap(polished); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		least := math.Inf(1)
		everyMap(p, func(q Map) {
			for task := range q {
				if p.Nodes.Cluster[q[task]] != p.Nodes.Cluster[m[task]] {
					return
				}
			}
			least = min(least, p.Time(q))
		})
		if got := p.Time(polished); math.Abs(got-least) > 1e-6*least {
			t.Fatalf("seed %d: %g, the optimum is %g", seed, got, least)
		}
		if !slices.Equal(m, polished) {
			changed++
		}
	}
	if changed == 0 {
		t.Error("it never changes anything")
	}
}

// A bound that is too high has the tasks in another order than the optimum.
func TestPolishBisects(t *testing.T) {
	a := grid(1, 3, 1)
	copy(a.Power, []float64{1, 2, 4, 100})
	a.Latency[0][1], a.Latency[1][0] = 5, 5
	p := Problem{&Graph{[]float64{10, 1, 0}, [][]Edge{{}, {{2, 1}}, {{1, 1}}}}, a}
	if got := p.Time(polish(p, Map{0, 1, 3})); got != 5.25 {
		t.Errorf("%g, want 5.25: the task that talks needs the fast node", got)
	}
}
