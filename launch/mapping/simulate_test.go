package mapping

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// jacobi returns the iterations of the sequential method, and its vector.
func (s *simulation) jacobi() (int, []float64) {
	x := make([]float64, len(s.m))
	for k := 0; ; k++ {
		next, worst := make([]float64, len(x)), 0.0
		for task, edges := range s.p.Graph.Edges {
			next[task] = s.constant[task]
			for e, edge := range edges {
				next[task] += s.element[task][e] * x[edge.Task]
			}
			worst = max(worst, math.Abs(next[task]-x[task]))
		}
		if worst <= s.o.Tolerance {
			return k, x
		}
		x = next
	}
}

// However far apart and unequal the nodes are, a synchronous run is the sequential method, bit for bit.
func TestSimulatedSyncIsJacobi(t *testing.T) {
	ahead := false
	for seed := range uint64(100) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 13)), 30)
		s := newSimulation(p, InOrder(p), SimulateOptions{Sync: true, Shift: .1, Tolerance: 1e-6, Seed: seed})
		want, x := s.jacobi()
		run := s.run()
		if got := slices.Min(run.Steps); got != want || s.complete != want || !slices.Equal(s.vectors[s.complete], x) {
			t.Fatalf("seed %d: %d iterations, want %d; or another vector", seed, got, want)
		}
		ahead = ahead || slices.Max(run.Steps) > want
	}
	if !ahead {
		t.Error("no task was ever ahead of another")
	}
}

func simulate(t *testing.T, p Problem, o SimulateOptions) SimulatedRun {
	t.Helper()
	run, err := Simulate(p, InOrder(p), o)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// Equal nodes without latency make both modes the same.
func TestSimulatedModesOfEqualNodes(t *testing.T) {
	a := grid(3, 10, 10)
	a.Latency = [][]float64{{0, 0}, {0, 0}}
	p := Problem{Band(20, 20, 3), a}
	o := SimulateOptions{Shift: .1, Tolerance: 1e-6, Seed: 1}
	async := simulate(t, p, o)
	o.Sync = true
	if sync := simulate(t, p, o); async.Seconds != sync.Seconds || !slices.Equal(async.Steps, sync.Steps) {
		t.Errorf("%v asynchronously, %v synchronously", async, sync)
	}
}

// Two tasks with 1/2 beside the diagonal, on nodes whose steps take 1 s and 1/2 s, 1/4 s apart. The error
// of a task is half that of its neighbour's value, and the residual is its error less half the neighbour's.
//
// Synchronously errors halve, and are half the residuals' double: 1/16 is reached by iteration 3. Task 0 ends its steps
// at 1, 2 and 3, as task 1's values are there before; task 1 waits until 1 1/4 and 2 1/4.
//
// Asynchronously task 0 has the errors 1/2 at 1 and, from the value of task 1 at 1/2, 1/4 at 2. That is at task 1
// at 1 1/4, and at 2 1/4. Task 1 has 1/2 at 1/2, 1, and 1 1/2; from the step that begins then on it has 1/4, at 2;
// from the one at 2 1/2 on 1/8, at 3. Task 0 begins at 2 with the value of 1 1/2, an error of 1/2: 1/4 at 3;
// residuals are then 1/4 - 1/16 and 1/8 - 1/8. It begins at 3 with that of 2 1/2, an error of 1/4: 1/8 at 4, when task 1
// has 1/8 still: residuals of 1/16.
func TestSimulateByHand(t *testing.T) {
	p := Problem{Band(2, 2, 1), &Architecture{[]float64{1, 2}, []int{0, 1}, [][]float64{{0, .25}, {.25, 0}}}}
	o := SimulateOptions{Shift: 1, Tolerance: 1. / 16}
	if run := simulate(t, p, o); run.Seconds != 4 || !slices.Equal(run.Steps, []int{4, 8}) {
		t.Errorf("asynchronously %v", run)
	}
	o.Sync = true
	if run := simulate(t, p, o); run.Seconds != 3 || !slices.Equal(run.Steps, []int{3, 3}) {
		t.Errorf("synchronously %v", run)
	}
}

func TestSimulateAgain(t *testing.T) {
	p := Testbeds[0].Problem(1)
	o := SimulateOptions{Shift: .1, Tolerance: 1e-6, Seed: 1}
	first, again := simulate(t, p, o), simulate(t, p, o)
	if o.Seed++; first.Seconds != again.Seconds || !slices.Equal(first.Steps, again.Steps) || first.Seconds == simulate(t, p, o).Seconds {
		t.Errorf("%v, again %v, and the same with another seed", first, again)
	}
}

func TestSimulateRefuses(t *testing.T) {
	good := Problem{Band(4, 4, 1), grid(1, 2, 2)}
	free := Problem{Band(4, 4, 1), grid(1, 2, 2)}
	free.Graph.Cost[2] = 0
	endless := Problem{Band(4, 4, 1), grid(1, 2, 2)}
	endless.Graph.Cost[2] = math.Inf(1)
	o := SimulateOptions{Shift: .1, Tolerance: 1e-6}
	for name, c := range map[string]struct {
		p Problem
		m Map
		o SimulateOptions
	}{
		"two on a node":   {good, Map{0, 1, 1, 2}, o},
		"a step of 0 s":   {free, InOrder(free), o},
		"an endless step": {endless, InOrder(endless), o},
		"not dominant":    {good, InOrder(good), SimulateOptions{Tolerance: 1e-6}},
		"exact":           {good, InOrder(good), SimulateOptions{Shift: .1}},
		"too many tasks":  {Problem{Band(5, 5, 1), good.Nodes}, Map{0, 1, 2, 3, 4}, o},
	} {
		if _, err := Simulate(c.p, c.m, c.o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
