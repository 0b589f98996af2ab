package schedule

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Path is the cost of a message: Latency, its length over Rate, and Each at either end, during
// which the processor does nothing else.
type Path struct {
	Latency time.Duration
	Rate    float64 // bytes per second; 0: unlimited
	Each    time.Duration

	// Window is how many bytes a pair of ranks at two sites, which have a connection of their own,
	// has in flight in the first round trip of a call. It doubles with each further round trip (RFC
	// 5681, slow start). 0: unlimited.
	Window int
}

func (p Path) sendTime(n int) time.Duration { return timeFor(n, p.Rate) }

// opens returns when n bytes have passed through a connection that began at 0.
func (p Path) opens(n int) time.Duration {
	at, window := p.Latency, p.Window
	for n > window {
		n -= window
		window *= 2
		at += 2 * p.Latency
	}
	return at + p.sendTime(n)
}

func timeFor(n int, rate float64) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(n) / rate * float64(time.Second))
}

// Grid is where ranks are, and the cost of messages between them. Messages between two sites queue
// at the end of the sender's site's path, which all its ranks share, and at the receiver's; within
// a site each rank has a path of its own, out and in.
type Grid struct {
	Site      []int    // of each rank, counted from 0; nil: all are at one site
	Node      []int    // of each rank, unique among all sites; nil: no two ranks share a node
	IntraNode Path     // between ranks of a node
	IntraSite Path     // between nodes of a site
	InterSite Path     // between sites
	Between   [][]Path // from one site to another, where it differs from InterSite; may be nil
	Compute   float64  // bytes per second that a rank copies or reduces; 0: unlimited
}

func (g *Grid) site(rank int) int {
	if g.Site == nil {
		return 0
	}
	return g.Site[rank]
}

// path returns the path between two ranks.
func (g *Grid) path(from, to int) *Path {
	a, b := g.site(from), g.site(to)
	switch {
	case a != b && g.Between != nil:
		return &g.Between[a][b]
	case a != b:
		return &g.InterSite
	case g.Node != nil && g.Node[from] == g.Node[to]:
		return &g.IntraNode
	}
	return &g.IntraSite
}

// Memory is the memory of a rank's schedule; see Space.
type Memory [spaces][]byte

func (m *Memory) at(r Region) []byte { return m[r.Space][r.Off : r.Off+r.Len : r.Off+r.Len] }

// Apply sets each element of inout to in op inout.
type Apply func(inout, in []byte) error

// Outcome is the result of a simulated call.
type Outcome struct {
	Ends     []time.Duration // when each rank was done, if all began at 0
	Messages [][]int         // from one site to another
	Bytes    [][]int
}

// End returns when the last rank was done.
func (o *Outcome) End() time.Duration {
	var end time.Duration
	for _, e := range o.Ends {
		end = max(end, e)
	}
	return end
}

// Far returns how many messages, and bytes, were sent between sites.
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

// ErrStuck is the error of a simulation in which ranks wait for steps that never happen.
var ErrStuck = errors.New("schedule: no step can be done any more")

// ErrLate is the error of SimulateUntil for a call that takes longer than the limit.
var ErrLate = errors.New("schedule: not done in time")

// Simulate makes all ranks carry out their schedules, on memory if that is not nil, with the
// durations that the grid determines. It fails if they get stuck, if messages differ in length from
// the receives they match, or are not received, and if bytes change while they are sent.
func Simulate(all []*Schedule, grid *Grid, memory []Memory, op Apply) (*Outcome, error) {
	return newSimulation(all, grid, memory, op).run()
}

// SimulateUntil is Simulate without memory. It returns ErrLate as soon as it knows that the last
// rank will be done after limit.
func SimulateUntil(all []*Schedule, grid *Grid, limit time.Duration) (*Outcome, error) {
	s := newSimulation(all, grid, nil, nil)
	s.limit = limit
	return s.run()
}

// Shake is Simulate with the grid's durations randomly increased, up to a thousandfold: steps that
// need not keep an order happen in any order.
func Shake(all []*Schedule, grid *Grid, memory []Memory, op Apply, rng *rand.Rand) error {
	s := newSimulation(all, grid, memory, op)
	s.rng = rng
	_, err := s.run()
	return err
}

type simulation struct {
	all    []*Schedule
	grid   *Grid
	memory []Memory
	op     Apply
	rng    *rand.Rand
	limit  time.Duration

	events
	late     bool // an event was scheduled for after the limit
	ranks    []simRank
	up, down []trunk // of each site, out and in

	connections []connection // of each pair of ranks; nil: none has been used yet

	mail  []mail
	first []int32  // of each pair of ranks, the number of its first message in mail
	data  [][]byte // of each message, if there is memory
	out   *Outcome
}

// simRank is what remains for a rank to do.
type simRank struct {
	waits   []int32 // number of steps each step waits for
	g       *graph
	todo    int           // number of steps
	busy    time.Duration // until when its processor is busy
	egress  time.Duration // until when its path within the site is busy, out and in
	ingress time.Duration
}

// mail is a message in transit, or a receive that waits for it.
type mail struct {
	length  int
	path    *Path
	from    int32
	to      int32
	sender  int32         // step of the sender, counted from 1; 0: not yet sent
	receive int32         // step that waits, counted from 1; 0: none
	held    time.Duration // it does not arrive before then
	arrived bool
}

func newSimulation(all []*Schedule, grid *Grid, memory []Memory, op Apply) *simulation {
	sites, n := 1, len(all)
	for r := range all {
		sites = max(sites, grid.site(r)+1)
	}
	s := &simulation{all: all, grid: grid, memory: memory, op: op, limit: math.MaxInt64,
		ranks: make([]simRank, n), up: make([]trunk, sites), down: make([]trunk, sites),
		out: &Outcome{Ends: make([]time.Duration, n)}}
	for range sites {
		s.out.Messages = append(s.out.Messages, make([]int, sites))
		s.out.Bytes = append(s.out.Bytes, make([]int, sites))
	}
	return s
}

func (s *simulation) run() (*Outcome, error) {
	if err := s.number(); err != nil {
		return nil, err
	}
	for r := range s.all {
		s.prepare(r)
	}
	for e, more := s.take(); more; e, more = s.take() {
		if err := s.happen(e); err != nil {
			return nil, err
		}
		if s.late {
			return nil, ErrLate
		}
	}
	return s.out, s.unfinishedError()
}

// number gives every message a place in mail.
func (s *simulation) number() error {
	n := len(s.all)
	s.first = make([]int32, n*n+1)
	for rank, sched := range s.all {
		for i := range sched.Steps {
			step := &sched.Steps[i]
			if step.Kind != Send && step.Kind != Receive {
				continue
			}
			if step.Peer < 0 || step.Peer >= n || step.Slot < 0 || step.Slot >= len(sched.Steps) {
				return fmt.Errorf("schedule: step %d of rank %d of %d: %v", i, rank, n, step)
			}
			pair := s.pair(rank, step) + 1
			s.first[pair] = max(s.first[pair], int32(step.Slot)+1)
		}
	}
	for i := range n * n {
		s.first[i+1] += s.first[i]
	}
	s.mail = make([]mail, s.first[n*n])
	if s.memory != nil {
		s.data = make([][]byte, len(s.mail))
	}
	return nil
}

// pair returns the number of the pair of ranks of a rank's Send or Receive.
func (s *simulation) pair(rank int, step *Step) int {
	if step.Kind == Send {
		return rank*len(s.all) + step.Peer
	}
	return step.Peer*len(s.all) + rank
}

// newMessage returns the number of a rank's Send or Receive.
func (s *simulation) newMessage(rank int, step *Step) int32 {
	return s.first[s.pair(rank, step)] + int32(step.Slot)
}

func (s *simulation) prepare(rank int) {
	r := &s.ranks[rank]
	r.g = s.all[rank].graph()
	r.waits, r.todo = append(r.waits, r.g.waits...), len(r.g.waits)
	for i, n := range r.waits {
		if n == 0 {
			s.push(event{rank: int32(rank), item: int32(i), what: ready})
		}
	}
}

func (s *simulation) push(e event) {
	s.late = s.late || e.at > s.limit
	s.events.push(e)
}

// longer returns d, or more if the simulation shakes.
func (s *simulation) longer(d time.Duration) time.Duration {
	if s.rng == nil {
		return d
	}
	return (d + time.Microsecond) * time.Duration(1+s.rng.IntN(1000))
}

func (s *simulation) happen(e event) error {
	rank, i := int(e.rank), int(e.item)
	switch e.what {
	case leave, left, reach, knock, arrival, landing:
		return s.advance(e.what, e.item)
	}
	step := &s.all[rank].Steps[i]
	if e.what == ready {
		return s.begin(rank, i, step)
	}
	if s.memory != nil {
		if err := s.finish(rank, i, step); err != nil {
			return err
		}
	}
	r := &s.ranks[rank]
	r.todo--
	s.out.Ends[rank] = s.now
	for _, next := range r.g.successors(i) {
		if r.waits[next]--; r.waits[next] == 0 {
			s.push(event{at: s.now, rank: e.rank, item: next, what: ready})
		}
	}
	return nil
}

// works keeps a rank's processor busy for d, and returns when it is done.
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
			overwrite(s.memory[rank].at(step.To))
		}
		letter := s.newMessage(rank, step)
		m := &s.mail[letter]
		if m.receive > 0 {
			return fmt.Errorf("schedule: rank %d receives message %d of rank %d twice", rank, step.Slot, step.Peer)
		}
		m.receive = int32(i) + 1
		if m.arrived {
			return s.deliver(rank, letter)
		}
		return nil
	}
	s.push(event{at: s.works(rank, timeFor(step.To.Len, s.grid.Compute)), rank: int32(rank), item: int32(i), what: done})
	return nil
}

// overwrite destroys bytes that are about to be received, because no step may read them.
func overwrite(b []byte) {
	for i := range b {
		b[i] ^= 0xa5
	}
}

func (s *simulation) send(rank, i int, step *Step) error {
	letter := s.newMessage(rank, step)
	m := &s.mail[letter]
	if m.sender > 0 {
		return fmt.Errorf("schedule: rank %d sends message %d to rank %d twice", rank, step.Slot, step.Peer)
	}
	m.sender, m.length = int32(i)+1, step.From.Len
	if s.memory != nil {
		s.data[letter] = bytes.Clone(s.memory[rank].at(step.From))
	}
	from, to := s.grid.site(rank), s.grid.site(step.Peer)
	s.out.Messages[from][to]++
	s.out.Bytes[from][to] += m.length
	m.path, m.from, m.to = s.grid.path(rank, step.Peer), int32(rank), int32(step.Peer)
	gone := s.works(rank, m.path.Each)
	if from != to {
		s.push(event{at: gone, item: letter, what: leave})
		return nil
	}
	r := &s.ranks[rank]
	gone = max(gone, r.egress)
	r.egress = gone + m.path.sendTime(m.length)
	s.push(event{at: gone + s.longer(m.path.Latency), item: letter, what: knock})
	return nil
}

// deliver completes a send to a rank, and its receive.
func (s *simulation) deliver(rank int, letter int32) error {
	m := &s.mail[letter]
	step := &s.all[rank].Steps[m.receive-1]
	if step.To.Len != m.length {
		return fmt.Errorf("schedule: rank %d sends %d bytes as message %d to rank %d, which expects %d", step.Peer, m.length, step.Slot, rank, step.To.Len)
	}
	s.push(event{at: s.now, rank: int32(step.Peer), item: m.sender - 1, what: done})
	s.push(event{at: s.works(rank, m.path.Each), rank: int32(rank), item: m.receive - 1, what: done})
	return nil
}

// finish applies a step's effect. Of a message the sender's step is finished first.
func (s *simulation) finish(rank, i int, step *Step) error {
	mem := &s.memory[rank]
	switch step.Kind {
	case Send:
		if !bytes.Equal(s.data[s.newMessage(rank, step)], mem.at(step.From)) {
			return fmt.Errorf("schedule: rank %d changes what it sends: step %d, %v", rank, i, step)
		}
	case Receive:
		letter := s.newMessage(rank, step)
		copy(mem.at(step.To), s.data[letter])
		s.data[letter] = nil
	case Copy:
		copy(mem.at(step.To), mem.at(step.From))
	case Reduce:
		return s.op(mem.at(step.To), mem.at(step.From))
	}
	return nil
}

// unfinishedError describes the steps that were not done.
func (s *simulation) unfinishedError() error {
	var stuck []string
	for rank := range s.all {
		if s.ranks[rank].todo == 0 {
			continue
		}
		for i := range s.all[rank].Steps {
			step := &s.all[rank].Steps[i]
			if step.Kind != Send && step.Kind != Receive {
				continue
			}
			m := &s.mail[s.newMessage(rank, step)]
			if step.Kind == Receive && m.receive == int32(i)+1 && !m.arrived {
				stuck = append(stuck, fmt.Sprintf("rank %d waits to %v", rank, step))
				break
			}
			if step.Kind == Send && m.sender == int32(i)+1 && m.receive == 0 {
				stuck = append(stuck, fmt.Sprintf("no receive matches rank %d: %v", rank, step))
				break
			}
		}
	}
	if stuck == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrStuck, strings.Join(stuck, "; "))
}
