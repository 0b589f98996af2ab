package schedule

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Path is what a message costs on its way: Latency, its length over Rate, and Each at
// either end, during which the processor does nothing else.
type Path struct {
	Latency time.Duration
	Rate    float64 // bytes a second; 0: without bound
	Each    time.Duration
}

func (p Path) takes(n int) time.Duration { return over(n, p.Rate) }

func over(n int, rate float64) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(n) / rate * float64(time.Second))
}

// Grid is where ranks are, and what it costs that they are there. Messages between two
// sites queue at the end of the one's path, which all its ranks share, and at the
// other's; within a site each rank has a path of its own.
type Grid struct {
	Site      []int // of each rank, counted from 0; nil: all are at one
	Near, Far Path
	Compute   float64 // bytes a second that a rank copies or reduces; 0: without bound
}

func (g *Grid) site(rank int) int {
	if g.Site == nil {
		return 0
	}
	return g.Site[rank]
}

// Memory is what a rank's schedule works on; see Space.
type Memory [spaces][]byte

func (m *Memory) at(r Region) []byte { return m[r.Space][r.Off : r.Off+r.Len : r.Off+r.Len] }

// Apply sets each element of inout to in op inout.
type Apply func(inout, in []byte) error

// Outcome is what a simulated call came to.
type Outcome struct {
	Ends     []time.Duration // when each rank was through, if all began at 0
	Messages [][]int         // from one site to another
	Bytes    [][]int
}

// End is when the last rank was through.
func (o *Outcome) End() time.Duration {
	var end time.Duration
	for _, e := range o.Ends {
		end = max(end, e)
	}
	return end
}

// Far is how many messages, and bytes, went from any site to another.
func (o *Outcome) Far() (messages, bytes int) {
	for from := range o.Messages {
		for to := range o.Messages[from] {
			if from != to {
				messages += o.Messages[from][to]
				bytes += o.Bytes[from][to]
			}
		}
	}
	return messages, bytes
}

// ErrStuck is that of a simulation in which ranks wait for what never comes.
var ErrStuck = errors.New("schedule: no step can be done any more")

// Simulate has all ranks carry out their schedules, on memory if that is not nil, as
// the grid makes them take their time. It fails if they get stuck, if messages differ
// in length from the receives they match, or are not received, and if bytes change
// while they are sent.
func Simulate(all []*Schedule, grid *Grid, memory []Memory, op Apply) (*Outcome, error) {
	return simulate(all, grid, memory, op, nil)
}

// Shake is Simulate with what the grid says made longer at random, a thousandfold at
// most: steps that need not keep an order come in any.
func Shake(all []*Schedule, grid *Grid, memory []Memory, op Apply, rng *rand.Rand) error {
	_, err := simulate(all, grid, memory, op, rng)
	return err
}

func simulate(all []*Schedule, grid *Grid, memory []Memory, op Apply, rng *rand.Rand) (*Outcome, error) {
	sites := 1
	for r := range all {
		sites = max(sites, grid.site(r)+1)
	}
	s := &simulation{all: all, grid: grid, memory: memory, op: op, rng: rng,
		ranks: make([]simRank, len(all)), up: make([]time.Duration, sites), down: make([]time.Duration, sites),
		mail: map[letter]*mail{}, out: &Outcome{Ends: make([]time.Duration, len(all))}}
	for range sites {
		s.out.Messages = append(s.out.Messages, make([]int, sites))
		s.out.Bytes = append(s.out.Bytes, make([]int, sites))
	}
	for r := range all {
		s.prepare(r)
	}
	for s.events.Len() > 0 {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		if err := s.happen(e); err != nil {
			return nil, err
		}
	}
	return s.out, s.left()
}

type simulation struct {
	all    []*Schedule
	grid   *Grid
	memory []Memory
	op     Apply
	rng    *rand.Rand

	now      time.Duration
	events   events
	ranks    []simRank
	up, down []time.Duration // when each site's path is free, out and in
	mail     map[letter]*mail
	out      *Outcome
}

// simRank is what a rank has yet to do.
type simRank struct {
	waits  []int         // how many steps each step waits for
	frees  [][]int32     // who waits for each
	todo   int           // steps
	busy   time.Duration // until when its processor is
	egress time.Duration // until when its path within the site is
}

// letter names a message.
type letter struct{ from, to, slot int }

// mail is a message that is under way, or a receive that waits for it.
type mail struct {
	sent, here bool
	data       []byte
	length     int
	sender     int // step of the sender
	receive    int // step that waits, or -1
	each       time.Duration
}

// event is that something can begin, or has ended.
type event struct {
	at   time.Duration
	seq  int // events of one time happen in the order in which they were foreseen
	rank int
	step int
	what happening
	mail letter
}

type happening uint8

const (
	ready   happening = iota // what the step waits for is done
	arrival                  // of a message
	done                     // the step is
)

type events struct {
	list []event
	seq  int
}

func (q *events) Len() int { return len(q.list) }
func (q *events) Less(i, j int) bool {
	a, b := q.list[i], q.list[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (q *events) Swap(i, j int) { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *events) Push(x any)    { q.list = append(q.list, x.(event)) }
func (q *events) Pop() any {
	last := q.list[len(q.list)-1]
	q.list = q.list[:len(q.list)-1]
	return last
}

func (s *simulation) foresee(e event) {
	s.events.seq++
	e.seq = s.events.seq
	heap.Push(&s.events, e)
}

func (s *simulation) prepare(rank int) {
	steps := s.all[rank].Steps
	r := &s.ranks[rank]
	r.waits, r.frees, r.todo = make([]int, len(steps)), s.all[rank].followers(), len(steps)
	for i, step := range steps {
		r.waits[i] = len(step.After)
		if len(step.After) == 0 {
			s.foresee(event{rank: rank, step: i, what: ready})
		}
	}
}

// longer is d, or more where the simulation shakes.
func (s *simulation) longer(d time.Duration) time.Duration {
	if s.rng == nil {
		return d
	}
	return (d + time.Microsecond) * time.Duration(1+s.rng.IntN(1000))
}

func (s *simulation) happen(e event) error {
	if e.what == arrival {
		m := s.mail[e.mail]
		m.here = true
		if m.receive >= 0 {
			return s.deliver(e.mail, m)
		}
		return nil
	}
	step := &s.all[e.rank].Steps[e.step]
	if e.what == ready {
		return s.begin(e.rank, e.step, step)
	}
	if err := s.finish(e.rank, e.step, step); err != nil {
		return err
	}
	r := &s.ranks[e.rank]
	r.todo--
	s.out.Ends[e.rank] = max(s.out.Ends[e.rank], s.now)
	for _, next := range r.frees[e.step] {
		if r.waits[next]--; r.waits[next] == 0 {
			s.foresee(event{at: s.now, rank: e.rank, step: int(next), what: ready})
		}
	}
	return nil
}

// works has a rank's processor do something that takes d, and returns when it is done.
func (s *simulation) works(rank int, d time.Duration) time.Duration {
	r := &s.ranks[rank]
	r.busy = max(r.busy, s.now) + s.longer(d)
	return r.busy
}

func (s *simulation) begin(rank, i int, step *Step) error {
	switch step.Kind {
	case Send:
		return s.send(rank, i, step)
	case Receive:
		if s.memory != nil {
			spoil(s.memory[rank].at(step.To))
		}
		key := letter{step.Peer, rank, step.Slot}
		m := s.mailed(key)
		if m.receive >= 0 {
			return fmt.Errorf("schedule: rank %d receives message %d of rank %d twice", rank, step.Slot, step.Peer)
		}
		m.receive = i
		if m.here {
			return s.deliver(key, m)
		}
		return nil
	}
	s.foresee(event{at: s.works(rank, over(step.To.Len, s.grid.Compute)), rank: rank, step: i, what: done})
	return nil
}

// spoil makes bytes that are about to be received useless, for nobody must read them.
func spoil(b []byte) {
	for i := range b {
		b[i] ^= 0xa5
	}
}

func (s *simulation) mailed(key letter) *mail {
	m := s.mail[key]
	if m == nil {
		m = &mail{receive: -1}
		s.mail[key] = m
	}
	return m
}

func (s *simulation) send(rank, i int, step *Step) error {
	key := letter{rank, step.Peer, step.Slot}
	if step.Peer >= len(s.all) {
		return fmt.Errorf("schedule: rank %d sends to rank %d of %d", rank, step.Peer, len(s.all))
	}
	m := s.mailed(key)
	if m.sent {
		return fmt.Errorf("schedule: rank %d sends message %d to rank %d twice", rank, step.Slot, step.Peer)
	}
	m.sent, m.length, m.sender = true, step.From.Len, i
	if s.memory != nil {
		m.data = bytes.Clone(s.memory[rank].at(step.From))
	}
	from, to := s.grid.site(rank), s.grid.site(step.Peer)
	s.out.Messages[from][to]++
	s.out.Bytes[from][to] += m.length
	var at time.Duration
	if from == to {
		p := &s.grid.Near
		m.each = p.Each
		r := &s.ranks[rank]
		r.egress = max(s.works(rank, p.Each), r.egress) + p.takes(m.length)
		at = r.egress + s.longer(p.Latency)
	} else {
		p := &s.grid.Far
		m.each = p.Each
		begins := max(s.works(rank, p.Each), s.up[from])
		s.up[from] = begins + p.takes(m.length)
		s.down[to] = max(begins+s.longer(p.Latency), s.down[to]) + p.takes(m.length)
		at = s.down[to]
	}
	s.foresee(event{at: at, rank: step.Peer, what: arrival, mail: key})
	return nil
}

// deliver completes a send and its receive.
func (s *simulation) deliver(key letter, m *mail) error {
	step := &s.all[key.to].Steps[m.receive]
	if step.To.Len != m.length {
		return fmt.Errorf("schedule: rank %d sends %d bytes as message %d to rank %d, which expects %d", key.from, m.length, key.slot, key.to, step.To.Len)
	}
	s.foresee(event{at: s.now, rank: key.from, step: m.sender, what: done})
	s.foresee(event{at: s.works(key.to, m.each), rank: key.to, step: m.receive, what: done})
	return nil
}

// finish has a step's effect.
func (s *simulation) finish(rank, i int, step *Step) error {
	var m *mail
	switch step.Kind {
	case Send:
		m = s.mail[letter{rank, step.Peer, step.Slot}]
	case Receive:
		key := letter{step.Peer, rank, step.Slot}
		m = s.mail[key]
		delete(s.mail, key)
	}
	if s.memory == nil {
		return nil
	}
	mem := &s.memory[rank]
	switch step.Kind {
	case Send:
		if m != nil && !bytes.Equal(m.data, mem.at(step.From)) {
			return fmt.Errorf("schedule: rank %d changes what it sends: step %d, %v", rank, i, step)
		}
	case Receive:
		copy(mem.at(step.To), m.data)
	case Copy:
		copy(mem.at(step.To), mem.at(step.From))
	case Reduce:
		return s.op(mem.at(step.To), mem.at(step.From))
	}
	return nil
}

// left says what was not done.
func (s *simulation) left() error {
	var stuck []string
	for rank := range s.all {
		if s.ranks[rank].todo == 0 {
			continue
		}
		for i, step := range s.all[rank].Steps {
			key := letter{step.Peer, rank, step.Slot}
			if m := s.mail[key]; step.Kind == Receive && m != nil && m.receive == i {
				stuck = append(stuck, fmt.Sprintf("rank %d waits to %v", rank, step))
				break
			}
			key = letter{rank, step.Peer, step.Slot}
			if m := s.mail[key]; step.Kind == Send && m != nil && m.sent && m.receive < 0 {
				stuck = append(stuck, fmt.Sprintf("nobody receives what rank %d does: %v", rank, step))
				break
			}
		}
	}
	if stuck == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrStuck, strings.Join(stuck, "; "))
}
