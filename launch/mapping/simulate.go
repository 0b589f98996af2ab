package mapping

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// SimulateOptions say how the tasks of [Simulate] iterate.
type SimulateOptions struct {
	Sync      bool    // SIAC: a step waits for the neighbours' values of the step before it; else AIAC
	Shift     float64 // how dominant the system is, above 0: elements beside the diagonal are 1/(1+Shift) of it, the sum of a row
	Tolerance float64 // the greatest residual of a row, for a diagonal of 1
	Seed      uint64  // of the elements
}

// A SimulatedRun is what became of the tasks.
type SimulatedRun struct {
	Seconds float64
	Steps   []int // by task, finished; of a synchronous run the fewest are the iterations of the result
}

// Simulate runs a program whose tasks solve a system together, each one unknown, that of its row. A row has
// elements for the task's neighbours, random ones of the same sign; the solution is 1, and the start 0. A step takes a task's
// compute time (the first part of equation 2), and a value reaches each neighbour after the latency to it times the weight of the edge
// (the second part, but all at once). An asynchronous step uses the newest values that have arrived, and the next
// one follows at once. The run ends as soon as the true residual is at most the tolerance, which only a simulation can know:
// of the tasks' values, or of those of one iteration if the run is synchronous.
func Simulate(p Problem, m Map, o SimulateOptions) (SimulatedRun, error) {
	if err := p.Check(); err != nil {
		return SimulatedRun{}, err
	}
	if err := p.CheckMap(m); err != nil {
		return SimulatedRun{}, err
	}
	if !(o.Shift > 0) || !(o.Tolerance >= minTolerance) {
		return SimulatedRun{}, fmt.Errorf("mapping: shift %g and tolerance %g: want above 0, and at least %g", o.Shift, o.Tolerance, minTolerance)
	}
	for task, cost := range p.Graph.Cost {
		if !(cost > 0) || math.IsInf(cost, 1) {
			return SimulatedRun{}, fmt.Errorf("mapping: task %d costs %g: want more than 0, or time does not pass", task, cost)
		}
	}
	return newSimulation(p, m, o).run(), nil
}

// minTolerance is well above what rounding leaves.
const minTolerance = 1e-12

// simulation is the state of Simulate.
type simulation struct {
	p Problem
	m Map
	o SimulateOptions

	element  [][]float64 // by task and edge: what is beside the diagonal, without its sign
	constant []float64   // by task: the right side
	inbox    [][][]sent  // by task and edge: what was not used yet, the oldest first; asynchronously also what is used now
	outbox   [][]*[]sent // by task and edge: the inbox at the other end

	next      []float64 // by task: when its step ends or begins; +Inf if it waits for a neighbour that computes
	computing []bool
	value     []float64 // by task: the result of the step that it computes
	steps     []int     // by task: how many it has finished

	// The vectors of the iterations, and the number of tasks that have finished each; asynchronously only
	// the first, which has the newest value of each task.
	vectors  [][]float64
	finished []int
	complete int // the last iteration that all tasks have finished
}

// A sent value arrives at a time.
type sent struct{ arrival, value float64 }

func newSimulation(p Problem, m Map, o SimulateOptions) *simulation {
	n := len(m)
	s := &simulation{
		p: p, m: m, o: o, element: make([][]float64, n), constant: slices.Repeat([]float64{1}, n), inbox: make([][][]sent, n), outbox: make([][]*[]sent, n),
		next: make([]float64, n), computing: make([]bool, n), value: make([]float64, n), steps: make([]int, n),
		vectors: [][]float64{make([]float64, n)}, finished: []int{n},
	}
	rng := rand.New(rand.NewPCG(o.Seed, 12))
	for task, edges := range p.Graph.Edges {
		s.element[task], s.inbox[task] = make([]float64, len(edges)), make([][]sent, len(edges))
		sum := 0.0
		for e := range edges {
			s.element[task][e] = 1 - rng.Float64()
			sum += s.element[task][e]
			s.inbox[task][e] = []sent{{}} // everybody knows the start
		}
		for e := range edges {
			s.element[task][e] /= sum * (1 + o.Shift)
			s.constant[task] -= s.element[task][e]
		}
	}
	for task, edges := range p.Graph.Edges {
		for _, edge := range edges {
			back := slices.IndexFunc(p.Graph.Edges[edge.Task], func(b Edge) bool { return b.Task == task })
			s.outbox[task] = append(s.outbox[task], &s.inbox[edge.Task][back])
		}
	}
	return s
}

func (s *simulation) run() SimulatedRun {
	now := 0.0
	for !s.converged() { // it will be: the system is dominant
		for task := range s.next {
			if s.next[task] == now && !s.computing[task] {
				s.start(task, now)
			}
		}
		now = slices.Min(s.next)
		for task := range s.next { // all that end now, before any that begins: what they send may be there at once
			if s.next[task] == now && s.computing[task] {
				s.finish(task, now)
			}
		}
	}
	return SimulatedRun{now, s.steps}
}

// start begins a step with the values that are there.
func (s *simulation) start(task int, now float64) {
	x := s.constant[task]
	for e, queue := range s.inbox[task] {
		used := 0
		for !s.o.Sync && used+1 < len(queue) && queue[used+1].arrival <= now {
			used++
		}
		x += s.element[task][e] * queue[used].value
		if s.o.Sync {
			used++
		}
		s.inbox[task][e] = slices.Delete(queue, 0, used)
	}
	s.value[task], s.computing[task] = x, true
	s.next[task] = now + s.p.compute(task, s.m[task])
}

// finish ends a step: the neighbours are sent its result.
func (s *simulation) finish(task int, now float64) {
	s.computing[task] = false
	s.steps[task]++
	s.keep(task)
	for e, edge := range s.p.Graph.Edges[task] {
		latency := s.p.Nodes.Latency[s.p.Nodes.Cluster[s.m[task]]][s.p.Nodes.Cluster[s.m[edge.Task]]]
		*s.outbox[task][e] = append(*s.outbox[task][e], sent{now + edge.Weight*latency, s.value[task]})
	}
	s.schedule(task, now)
	for _, edge := range s.p.Graph.Edges[task] {
		if math.IsInf(s.next[edge.Task], 1) {
			s.schedule(edge.Task, now)
		}
	}
}

// schedule sets when the next step of a task that does not compute begins.
func (s *simulation) schedule(task int, now float64) {
	s.next[task] = now
	for _, queue := range s.inbox[task] {
		if s.o.Sync && len(queue) == 0 {
			s.next[task] = math.Inf(1)
		} else if s.o.Sync {
			s.next[task] = max(s.next[task], queue[0].arrival)
		}
	}
}

// keep puts a task's value into its vector.
func (s *simulation) keep(task int) {
	if !s.o.Sync {
		s.vectors[0][task] = s.value[task]
		return
	}
	k := s.steps[task]
	if k == len(s.vectors) {
		s.vectors, s.finished = append(s.vectors, make([]float64, len(s.m))), append(s.finished, 0)
	}
	s.vectors[k][task] = s.value[task]
	if s.finished[k]++; s.finished[k] == len(s.m) {
		s.complete = k
	}
}

// converged returns whether the residuals of all rows are within the tolerance.
func (s *simulation) converged() bool {
	x := s.vectors[s.complete]
	for task, edges := range s.p.Graph.Edges {
		residual := s.constant[task] - x[task]
		for e, edge := range edges {
			residual += s.element[task][e] * x[edge.Task]
		}
		if math.Abs(residual) > s.o.Tolerance {
			return false
		}
	}
	return true
}
