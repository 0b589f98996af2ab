package mapping

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// fastPair is a chain of four tasks of cost 10 and 8 nodes in two clusters: of each one has power 8 and the
// others 4; within a cluster they are 0.1 apart, else 10.
func fastPair(weight float64) Problem {
	g := Band(4, 4, 1)
	for t := range g.Cost {
		g.Cost[t] = 10
		for i := range g.Edges[t] {
			g.Edges[t][i].Weight = weight
		}
	}
	a := grid(4, 4, 4)
	a.Power[0], a.Power[4] = 8, 8
	return Problem{g, a}
}

// everyMap calls try with every map of the problem.
func everyMap(p Problem, try func(Map)) {
	m, used := make(Map, p.Graph.Tasks()), make([]bool, len(p.Nodes.Power))
	var place func(task int)
	place = func(task int) {
		if task == len(m) {
			try(m)
			return
		}
		for node := range used {
			if !used[node] {
				used[node], m[task] = true, node
				place(task + 1)
				used[node] = false
			}
		}
	}
	place(0)
}

// optimum returns the least time of all maps.
func optimum(p Problem) float64 {
	least := math.Inf(1)
	everyMap(p, func(m Map) { least = min(least, p.Time(m)) })
	return least
}

// The optimum has both fast nodes in the middle of the chain. AIAC-QM may miss it, since each task looks
// at its own time, but is never worse than the map it starts from.
func TestQuickMapOnAChain(t *testing.T) {
	for _, c := range []struct{ weight, want float64 }{{.01, 2.501}, {.1, 2.51}} {
		p := fastPair(c.weight)
		best := optimum(p)
		if math.Abs(best-c.want) > 1e-9 {
			t.Errorf("c=%g: the optimum is %g, want %g", c.weight, best, c.want)
		}
		middle := p.Time(Map{1, 0, 4, 5})
		if math.Abs(middle-c.want) > 1e-9 {
			t.Errorf("c=%g: with both fast nodes in the middle %g, want %g", c.weight, middle, c.want)
		}
		start := p.Time(newQuickMap(p, QuickMapOptions{}).m)
		for seed := range uint64(20) {
			got := p.Time(QuickMap(p, QuickMapOptions{Search: .5, Seed: seed}))
			if seed < 3 {
				t.Logf("c=%g, seed %d: start %g, aiacqm %g, optimum %g", c.weight, seed, start, got, best)
			}
			if got < best-1e-9 || got > start+1e-9 {
				t.Errorf("c=%g, seed %d: %g is not between the optimum %g and the start %g", c.weight, seed, got, best, start)
			}
		}
	}
}

// On all small problems: never below the optimum, never above the start.
func TestQuickMapAgainstAllMaps(t *testing.T) {
	found, moved := 0, 0
	const cases = 300
	for seed := range uint64(cases) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 1)), 6)
		best, start := optimum(p), p.Time(newQuickMap(p, QuickMapOptions{}).m)
		got := p.Time(QuickMap(p, QuickMapOptions{Search: .5, Seed: seed}))
		if got < best-1e-9 || got > start+1e-9 {
			t.Fatalf("seed %d: %g is not between the optimum %g and the start %g", seed, got, best, start)
		}
		if got <= best+1e-9 {
			found++
		}
		if got < start-1e-9 {
			moved++
		}
	}
	t.Logf("optimal in %d of %d cases, better than the start in %d", found, cases, moved)
	if moved == 0 {
		t.Error("it never improves anything")
	}
}

// The times of an assignment stay those of its map, and what timeOn and timeAway foretell comes true.
func TestAssignment(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 8))
		p := randomProblem(rng, 12)
		a := newAssignment(p, InOrder(p))
		for range 20 {
			task, node := rng.IntN(len(a.m)), rng.IntN(len(a.at))
			other := a.at[node]
			if other == task {
				continue
			}
			a.consider()
			want, wantOther := a.timeOn(task, node), 0.0
			if other >= 0 {
				wantOther = a.timeAway(task, node)
			}
			a.put(task, node)
			if err := p.CheckMap(a.m); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if math.Abs(a.time[task]-want) > 1e-9 || other >= 0 && math.Abs(a.time[other]-wantOther) > 1e-9 {
				t.Fatalf("seed %d: task %d was to take %g, and takes %g", seed, task, want, a.time[task])
			}
			for task := range a.m {
				if got := p.TaskTime(a.m, task); math.Abs(got-a.time[task]) > 1e-9 || a.at[a.m[task]] != task {
					t.Fatalf("seed %d: task %d takes %g, not %g", seed, task, got, a.time[task])
				}
			}
		}
	}
}

// Two tasks exchange nodes only if the greater of their times falls; and a task is moveable until it was
// considered, and again once its time has grown.
func TestQuickMapExchanges(t *testing.T) {
	for _, c := range []struct {
		cost []float64
		want Map
	}{{[]float64{10, 10}, Map{0, 1}}, {[]float64{10, 30}, Map{1, 0}}} {
		a := grid(4, 2)
		a.Power[0] = 8
		q := newQuickMap(Problem{&Graph{c.cost, make([][]Edge, 2)}, a}, QuickMapOptions{Search: 1})
		for range 20 {
			q.improve(1, 2)
		}
		if !slices.Equal(q.m, c.want) || q.moveable[1] {
			t.Errorf("costs %v: %v, moveable %v; want %v", c.cost, q.m, q.moveable, c.want)
		}
	}
	a := grid(1, 2, 2)
	a.Power[2] = 100
	q := newQuickMap(Problem{&Graph{[]float64{200, 1}, [][]Edge{{{1, 1}}, {{0, 1}}}}, a}, QuickMapOptions{Search: 1})
	q.put(0, 1)
	q.put(1, 0)
	q.moveable[1] = false
	for range 20 {
		q.improve(0, 4)
	}
	if q.m[0] != 2 || !q.moveable[1] {
		t.Errorf("%v; the neighbour that it left is moveable: %v", q.m, q.moveable[1])
	}
}
