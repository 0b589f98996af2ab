package schedule

import (
	"context"
	"fmt"
	"slices"
)

// Comm carries the messages of one call of one rank.
type Comm interface {
	// Isend starts to send a message, and Irecv to receive one of exactly len(buf) bytes. buf
	// belongs to the request until the request is complete. Between a pair of ranks messages match
	// receives of their slot, from 0 to Slots-1, in the order in which both were started: a message
	// of another slot may overtake.
	Isend(dst, slot int, buf []byte) Request
	Irecv(src, slot int, buf []byte) Request

	// WaitAny waits until at least one of the requests, of which there must be one, is complete,
	// and returns its index. It returns an error only when ctx is done first. If first is not
	// negative, that request is likely to complete before the others, and watching it alone is
	// enough for a while.
	WaitAny(ctx context.Context, requests []Request, first int) (int, error)
}

// Slots is how many messages of a pair can be in transit in any order. Messages that far apart are
// started one after the other.
const Slots = 256

// Request is a message in transit.
type Request interface {
	// Done reports whether Wait would return at once. It need not notice the most recent arrivals.
	Done() bool

	// Wait returns when the message is sent or received, or has failed, or, if ctx is done first,
	// has been cancelled. The buffer is not touched after it.
	Wait(ctx context.Context) error
}

// Run carries out a rank's schedule. When it returns, even with an error, none of the memory is
// used any more. Steps that wait for nothing begin in the order of the list. When one fails the
// others are cancelled, and the error is that of the first failure.
func Run(ctx context.Context, c Comm, s *Schedule, m *Memory, op Apply) error {
	return NewRunner(s).Run(ctx, c, m, op)
}

// Runner runs a schedule any number of times, one run after the other, without allocating. It is
// for one goroutine at a time.
type Runner struct {
	s         *Schedule
	g         *graph
	waits     []int32   // number of steps that each still waits for
	unblocked []bool    // whether its predecessor of the same pair and slot, if any, has been started
	held      []bool    // whether it was ready before its turn
	queue     int       // number of held messages
	ready     []int32   // steps that can begin
	open      []Request // messages in transit
	steps     []int32   // their steps

	c  Comm // of the current run
	m  *Memory
	op Apply
}

// NewRunner returns a Runner for the schedule.
func NewRunner(s *Schedule) *Runner {
	n := len(s.Steps)
	ints, bools := make([]int32, n), make([]bool, 2*n)
	return &Runner{s: s, g: s.graph(), waits: ints, unblocked: bools[:n], held: bools[n:]}
}

// Run is the function Run with the Runner's schedule.
func (r *Runner) Run(ctx context.Context, c Comm, m *Memory, op Apply) error {
	r.prepare(c, m, op)
	err := r.run(ctx)
	if err != nil {
		r.giveUp(ctx)
	}
	clear(r.open)
	r.open, r.steps, r.ready = r.open[:0], r.steps[:0], r.ready[:0]
	r.c, r.m, r.op = nil, nil, nil
	return err
}

// prepare resets the Runner for a run.
func (r *Runner) prepare(c Comm, m *Memory, op Apply) {
	copy(r.waits, r.g.waits)
	copy(r.unblocked, r.g.unblocked)
	clear(r.held)
	r.queue, r.c, r.m, r.op = 0, c, m, op
	for i, n := range r.waits {
		if n == 0 {
			r.ready = append(r.ready, int32(i))
		}
	}
}

// giveUp cancels the messages in transit, for each pair the last message first: as long as a
// message exists the earlier ones do too, so it is never mistaken for one of them.
func (r *Runner) giveUp(ctx context.Context) {
	over, cancel := context.WithCancel(ctx)
	cancel()
	order := make([]int, len(r.open))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int { return r.s.Steps[r.steps[b]].Slot - r.s.Steps[r.steps[a]].Slot })
	for _, k := range order {
		r.open[k].Wait(over)
	}
}

func (r *Runner) run(ctx context.Context) error {
	for {
		for k := 0; k < len(r.ready); k++ { // grows meanwhile
			if err := r.begin(r.ready[k]); err != nil {
				return err
			}
		}
		r.ready = r.ready[:0]
		if len(r.open) == 0 {
			if r.queue > 0 {
				return fmt.Errorf("%w: %d messages wait for others of their pair and slot", ErrStuck, r.queue)
			}
			return nil
		}
		k, err := r.next(ctx)
		if err != nil {
			return err
		}
		i, q := r.close(k)
		if err := q.Wait(ctx); err != nil {
			return fmt.Errorf("%s: %w", r.s.Steps[i].message(), err)
		}
		r.stepDone(i)
	}
}

// close removes a message from the open ones, and returns its step.
func (r *Runner) close(k int) (i int32, q Request) {
	last := len(r.open) - 1
	i, q = r.steps[k], r.open[k]
	r.open[k], r.steps[k] = r.open[last], r.steps[last]
	r.open[last] = nil
	r.open, r.steps = r.open[:last], r.steps[:last]
	return i, q
}

// next returns which of the open messages is complete. It watches the one that comes first in the
// list of steps, receives before sends, so that no other peer's link need be read meanwhile.
func (r *Runner) next(ctx context.Context) (int, error) {
	first := 0
	for k, q := range r.open {
		if q.Done() {
			return k, nil
		}
		if r.before(k, first) {
			first = k
		}
	}
	return r.c.WaitAny(ctx, r.open, first)
}

func (r *Runner) before(a, b int) bool {
	i, j := r.steps[a], r.steps[b]
	if k, l := r.s.Steps[i].Kind, r.s.Steps[j].Kind; k != l {
		return k == Receive
	}
	return i < j
}

func (r *Runner) begin(i int32) error {
	switch step := &r.s.Steps[i]; step.Kind {
	case Send, Receive:
		r.message(i)
		return nil
	case Copy:
		copy(r.m.at(step.To), r.m.at(step.From))
	case Reduce:
		if err := r.op(r.m.at(step.To), r.m.at(step.From)); err != nil {
			return err
		}
	}
	r.stepDone(i)
	return nil
}

// message starts a message, and those that were held for it, once it is its turn among those of its
// pair and slot. There is no deadlock: of all messages that ranks hold or wait for, the one that
// comes first in the order of the lists is not held.
func (r *Runner) message(i int32) {
	if !r.unblocked[i] {
		r.held[i] = true
		r.queue++
		return
	}
	for {
		if step := &r.s.Steps[i]; step.Kind == Send {
			r.open = append(r.open, r.c.Isend(step.Peer, step.Slot%Slots, r.m.at(step.From)))
		} else {
			r.open = append(r.open, r.c.Irecv(step.Peer, step.Slot%Slots, r.m.at(step.To)))
		}
		r.steps = append(r.steps, i)
		if i = r.g.behind[i]; i < 0 {
			return
		}
		r.unblocked[i] = true
		if !r.held[i] {
			return
		}
		r.queue--
	}
}

func (r *Runner) stepDone(i int32) {
	for _, next := range r.g.successors(int(i)) {
		if r.waits[next]--; r.waits[next] == 0 {
			r.ready = append(r.ready, next)
		}
	}
}
