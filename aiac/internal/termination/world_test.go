package termination

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/isthmus-grid/isthmus/aiac/internal/register"
)

// A system is A x = b, by blocks of rows, one for each task. It is strictly diagonally dominant, so
// that asynchronous iterations converge (Chazan and Miranker).
type system struct {
	rows  int // of a block
	a     [][]float64
	b     []float64
	needs [][]int // by task: the tasks in whose columns it has entries; symmetric
}

// newSystem makes a system over a random connected graph of tasks.
func newSystem(rng *rand.Rand) *system {
	tasks, rows := 1+rng.IntN(7), 1+rng.IntN(3)
	s := &system{rows: rows, a: make([][]float64, tasks*rows), b: make([]float64, tasks*rows), needs: make([][]int, tasks)}
	for t := 1; t < tasks; t++ {
		s.join(t, rng.IntN(t))
	}
	for range rng.IntN(tasks) {
		s.join(rng.IntN(tasks), rng.IntN(tasks))
	}
	dominance := 1 + []float64{.03, .1, .5}[rng.IntN(3)]
	for i := range s.a {
		s.a[i] = make([]float64, tasks*rows)
		sum := 0.0
		for j := range s.a[i] {
			if i != j && (i/rows == j/rows || slices.Contains(s.needs[i/rows], j/rows)) {
				s.a[i][j] = -rng.Float64()
				if rng.IntN(4) == 0 {
					s.a[i][j] = -s.a[i][j]
				}
				sum += math.Abs(s.a[i][j])
			}
		}
		s.a[i][i] = dominance*sum + .1
		for j := range s.a[i] {
			s.b[i] += s.a[i][j] // x = 1
		}
	}
	return s
}

func (s *system) join(t, u int) {
	if t != u && !slices.Contains(s.needs[t], u) {
		s.needs[t], s.needs[u] = append(s.needs[t], u), append(s.needs[u], t)
	}
}

// blockResidual returns the greatest residual of a task's rows, for the blocks of that task and of those that
// it needs.
func (s *system) blockResidual(task int, blocks map[int][]float64) float64 {
	worst := 0.0
	for i := task * s.rows; i < (task+1)*s.rows; i++ {
		r := s.b[i]
		for t := range s.needs {
			for k, v := range blocks[t] {
				r -= s.a[i][t*s.rows+k] * v
			}
		}
		worst = max(worst, math.Abs(r))
	}
	return worst
}

// trueResidual is the dumb version: of a whole vector, row by row.
func (s *system) trueResidual(x []float64) float64 {
	worst := 0.0
	for i, row := range s.a {
		r := s.b[i]
		for j, v := range x {
			r -= row[j] * v
		}
		worst = max(worst, math.Abs(r))
	}
	return worst
}

// sweep returns a block after some Jacobi sweeps over the task's rows.
func (s *system) sweep(task int, blocks map[int][]float64, sweeps int) []float64 {
	for range sweeps {
		x := slices.Clone(blocks[task])
		for k := range x {
			i := task*s.rows + k
			sum := s.b[i]
			for t := range s.needs {
				for l, v := range blocks[t] {
					if j := t*s.rows + l; j != i {
						sum -= s.a[i][j] * v
					}
				}
			}
			x[k] = sum / s.a[i][i]
		}
		blocks[task] = x
	}
	return blocks[task]
}

// A saved state is an older one of a task.
type saved struct {
	iteration int
	blocks    map[int][]float64
}

// A proc is a process of the world: the owner of a Task.
type proc struct {
	number    uint32
	task      int
	t         *Task
	iteration int
	blocks    map[int][]float64 // its own and the newest of those it needs
	dead      bool
	reports   []register.Register // of losses, on their way to it

	copy    []float64
	stored  map[int][]float64 // copies that came
	measure []Wave            // asked for, and not yet done
	result  *Result
	stopped []float64 // its block when the server stopped it
}

// A channel has what is on the way from one process to another.
type channel struct {
	from, to uint32
	control  []transit
	value    []float64 // the newest value; nil: none on the way
	server   []bool    // to the server: whether the sender has converged
}

type transit struct {
	m    Message
	copy []float64 // of a Block
}

// A world runs tasks over channels that a seeded adversary delays.
type world struct {
	rng       *rand.Rand
	system    *system
	config    Config
	procs     []*proc // by number
	register  register.Register
	channels  map[[2]uint32]*channel
	order     [][2]uint32
	states    [][]saved              // by task
	durable   []map[string][]float64 // by task: copies by wave
	losses    int                    // still to come
	lossRate  int                    // of values, in 100
	slow      []int                  // by task: how seldom it iterates
	held      map[[2]uint32]int      // until which step nothing of a channel arrives
	step      int
	waves     int
	useServer bool // the rule of a central server in place of the protocol
	converged map[int]bool
	noFreeze  bool // measure with whatever values are here: a mistake of the owner
}

func waveKey(w Wave) string { return fmt.Sprintf("%x/%d", w.View.Append(nil), w.Round) }

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 42))
	s := newSystem(rng)
	tasks := len(s.needs)
	sites := make([]int, tasks)
	for i := range sites {
		sites[i] = rng.IntN(3)
	}
	w := &world{
		rng: rng, system: s, register: register.New(tasks), channels: map[[2]uint32]*channel{}, held: map[[2]uint32]int{},
		config:   Config{Tree: NewTree(sites), Hold: 1 + rng.IntN(4), Tolerance: 1e-3},
		states:   make([][]saved, tasks),
		lossRate: []int{0, 1, 10, 40}[rng.IntN(4)], losses: []int{0, 1, 2, 5}[rng.IntN(4)], converged: map[int]bool{},
	}
	for t := range tasks {
		w.durable = append(w.durable, map[string][]float64{})
		w.slow = append(w.slow, 1+rng.IntN(8))
		w.start(t, uint32(t), w.zero(t))
	}
	return w
}

// zero is the state in which a task begins.
func (w *world) zero(task int) saved {
	blocks := map[int][]float64{}
	for _, t := range append([]int{task}, w.system.needs[task]...) {
		blocks[t] = make([]float64, w.system.rows)
	}
	return saved{0, blocks}
}

func (w *world) start(task int, number uint32, from saved) {
	c := w.config
	c.Task, c.Needs, c.Feeds = task, w.system.needs[task], w.system.needs[task]
	p := &proc{number: number, task: task, iteration: from.iteration, blocks: map[int][]float64{}, stored: map[int][]float64{}}
	for t, b := range from.blocks {
		p.blocks[t] = slices.Clone(b)
	}
	w.procs = append(w.procs, p)
	t, out := New(c, w.register)
	p.t = t
	w.do(p, out)
}

func (w *world) channel(from, to uint32) *channel {
	key := [2]uint32{from, to}
	if w.channels[key] == nil {
		w.channels[key] = &channel{from: from, to: to}
		w.order = append(w.order, key)
	}
	return w.channels[key]
}

// do carries out what a task returned, but for Out.Store.
func (w *world) do(p *proc, out Out) {
	if out.Freeze {
		p.copy = slices.Clone(p.blocks[p.task])
		w.durable[p.task][waveKey(p.t.copied)] = p.copy
		if p.task == 0 {
			w.waves++
		}
	}
	for _, e := range out.Send {
		w.channel(p.number, e.Process).control = append(w.channel(p.number, e.Process).control, transit{e.Message, p.copy})
	}
	if out.Measure.Round > 0 {
		p.measure = append(p.measure, out.Measure)
	}
	if out.Result != nil {
		p.result = out.Result
	}
}

// measure carries out the oldest request to measure: a wave may be over by then.
func (w *world) measure(p *proc) {
	if p.dead || len(p.measure) == 0 {
		return
	}
	wave := p.measure[0]
	p.measure = p.measure[1:]
	w.do(p, p.t.Measured(wave, w.part(p)))
}

// part measures the residual of a task's rows in the copies.
func (w *world) part(p *proc) float64 {
	if w.noFreeze {
		return w.system.blockResidual(p.task, p.blocks)
	}
	blocks := map[int][]float64{p.task: p.copy}
	for _, t := range w.system.needs[p.task] {
		blocks[t] = p.stored[t]
	}
	return w.system.blockResidual(p.task, blocks)
}

// isOver reports whether every task has a live process that has decided.
func (w *world) isOver() bool {
	for task := range w.system.needs {
		number, isLost := w.register.Process(task)
		p := w.procs[number]
		if isLost || w.useServer && p.stopped == nil || !w.useServer && p.result == nil {
			return false
		}
	}
	return true
}

// run takes steps until all have decided. It returns an error if they do not.
func (w *world) run() error {
	for limit := 300_000; w.step < limit; w.step++ {
		if w.isOver() {
			return nil
		}
		if err := w.oneStep(); err != nil {
			return err
		}
	}
	return fmt.Errorf("no decision after %d steps, %d waves", w.step, w.waves)
}

func (w *world) oneStep() error {
	switch n := w.rng.IntN(100); {
	case n < 40:
		p := w.procs[w.rng.IntN(len(w.procs))]
		if !p.dead && w.rng.IntN(w.slow[p.task]) == 0 {
			w.iterate(p)
		}
	case n < 90:
		return w.deliver()
	case n < 95:
		w.save(w.procs[w.rng.IntN(len(w.procs))])
	case n < 96: // something is held back
		if len(w.order) > 0 {
			w.held[w.order[w.rng.IntN(len(w.order))]] = w.step + w.rng.IntN(400)
		}
	case n < 98:
		p := w.procs[w.rng.IntN(len(w.procs))]
		w.measure(p)
		return w.report(w.procs[w.rng.IntN(len(w.procs))])
	case w.losses > 0 && w.rng.IntN(8) == 0 && !w.useServer:
		w.lose(w.procs[w.rng.IntN(len(w.procs))])
	default:
		w.replace()
	}
	return nil
}

func (w *world) iterate(p *proc) {
	if p.result != nil || p.stopped != nil {
		return
	}
	p.iteration++
	x := w.system.sweep(p.task, p.blocks, 1+w.rng.IntN(2))
	for _, t := range w.system.needs[p.task] {
		number, _ := p.t.View().Process(t)
		w.channel(p.number, number).value = slices.Clone(x) // what is on the way is overwritten
	}
	holds := w.system.blockResidual(p.task, p.blocks) <= w.config.Tolerance
	if w.useServer {
		w.channel(p.number, 0).server = append(w.channel(p.number, 0).server, holds)
		return
	}
	w.do(p, p.t.Iterated(holds))
}

// deliver delivers something of a random channel.
func (w *world) deliver() error {
	if len(w.order) == 0 {
		return nil
	}
	key := w.order[w.rng.IntN(len(w.order))]
	c, to := w.channels[key], w.procs[key[1]]
	switch {
	case w.held[key] > w.step:
	case to.dead:
		c.control, c.value = nil, nil
	case len(c.server) > 0 && w.rng.IntN(2) == 0:
		w.serve(w.procs[c.from].task, c.server[0])
		c.server = c.server[1:]
	case len(c.control) > 0 && (c.value == nil || w.rng.IntN(2) == 0):
		m := c.control[0]
		c.control = c.control[1:]
		return w.receive(to, c.from, m)
	case c.value != nil:
		v := c.value
		c.value = nil
		if w.rng.IntN(100) >= w.lossRate {
			from := w.procs[c.from]
			if n, _ := to.t.View().Process(from.task); n == c.from { // else it is of a process that was replaced
				to.blocks[from.task] = v
				to.t.Heard(from.task)
			}
		}
	}
	return nil
}

func (w *world) receive(to *proc, from uint32, m transit) error {
	out, err := to.t.Receive(from, m.m)
	if out.Store {
		to.stored[w.procs[from].task] = m.copy
	}
	if err != nil && err != ErrExpelled {
		return err
	}
	w.do(to, out)
	return nil
}

// serve is the paper's server: once each task has said that it converged, all stop.
func (w *world) serve(task int, holds bool) {
	w.converged[task] = holds
	for t := range w.system.needs {
		if !w.converged[t] {
			return
		}
	}
	for _, p := range w.procs {
		p.stopped = slices.Clone(p.blocks[p.task])
	}
}

func (w *world) save(p *proc) {
	if p.dead {
		return
	}
	s := saved{p.iteration, map[int][]float64{}}
	for t, b := range p.blocks {
		s.blocks[t] = slices.Clone(b)
	}
	w.states[p.task] = append(w.states[p.task], s)
}

func (w *world) lose(p *proc) {
	if p.dead {
		return
	}
	p.dead = true
	w.losses--
	w.register = w.register.Lost(p.task, p.number)
	for _, q := range w.procs {
		q.reports = append(q.reports, w.register)
	}
}

// report tells a process of the oldest loss that it does not know.
func (w *world) report(p *proc) error {
	if p.dead || len(p.reports) == 0 {
		return nil
	}
	r := p.reports[0]
	p.reports = p.reports[1:]
	out, err := p.t.Update(r)
	if err != nil {
		return err
	}
	w.do(p, out)
	return nil
}

// replace starts a process for a task that has none, from one of its older states.
func (w *world) replace() {
	for task := range w.system.needs {
		if _, isLost := w.register.Process(task); !isLost {
			continue
		}
		number := uint32(len(w.procs))
		w.register = w.register.Replaced(task, number)
		from := w.zero(task)
		if all := w.states[task]; len(all) > 0 {
			from = all[w.rng.IntN(len(all))]
		}
		w.start(task, number, from)
		return
	}
}

// solution returns the vector on which all have decided, with each block from a process that has it or
// else from where it was stored.
func (w *world) solution() ([]float64, error) {
	var wave *Wave
	var x []float64
	for task := range w.system.needs {
		number, _ := w.register.Process(task)
		p := w.procs[number]
		if w.useServer {
			x = append(x, p.stopped...)
			continue
		}
		if wave == nil {
			wave = &p.result.Wave
		}
		if !wave.Equal(p.result.Wave) {
			return nil, fmt.Errorf("task %d has decided on wave %s, task 0 on %s", task, waveKey(p.result.Wave), waveKey(*wave))
		}
		block := p.copy
		if !p.result.HasCopy {
			block = w.durable[task][waveKey(*wave)]
		}
		if block == nil {
			return nil, fmt.Errorf("task %d has no block of wave %s", task, waveKey(*wave))
		}
		x = append(x, block...)
	}
	return x, nil
}
