package schedule

import (
	"context"
	"fmt"
	"slices"
)

// Comm carries the messages of one call of one rank.
type Comm interface {
	// Isend starts to send a message, and Irecv to receive one of exactly len(buf)
	// bytes. buf is the request's until that is complete. Between a pair of ranks
	// messages match receives in the order in which both were started.
	Isend(dst int, buf []byte) Request
	Irecv(src int, buf []byte) Request

	// WaitAny waits until one of the requests, of which there is one at least, is
	// complete, and returns which. It returns an error only when ctx is done before.
	WaitAny(ctx context.Context, requests []Request) (int, error)
}

// Request is a message under way.
type Request interface {
	// Wait returns when the message is sent or received, or has failed; or, when ctx is
	// done before, has been given up. The buffer is not touched after it.
	Wait(ctx context.Context) error
}

// Run has a rank carry out its schedule. Whatever it returns, none of the memory is
// used any more when it does. Steps that wait for nothing are begun in the order of
// the list. When one fails the others are given up, and the error is the first one's.
func Run(ctx context.Context, c Comm, s *Schedule, m *Memory, op Apply) error {
	r := runner{c: c, s: s, m: m, op: op, waits: make([]int32, len(s.Steps)), frees: s.followers(), turns: make([][2]int, s.Size)}
	for i := range s.Steps {
		if r.waits[i] = int32(len(s.Steps[i].After)); r.waits[i] == 0 {
			r.ready = append(r.ready, i)
		}
	}
	err := r.run(ctx)
	if err != nil {
		over, giveUp := context.WithCancel(ctx)
		giveUp()
		for _, q := range r.open {
			q.Wait(over)
		}
	}
	return err
}

type runner struct {
	c     Comm
	s     *Schedule
	m     *Memory
	op    Apply
	waits []int32   // how many steps each waits for
	frees [][]int32 // who waits for each
	ready []int     // steps that can begin
	turns [][2]int  // by peer, which message is to be started next, of Send and of Receive
	held  []int     // messages that could begin before their turn
	open  []Request // messages under way
	steps []int     // what they are
}

func (r *runner) run(ctx context.Context) error {
	for {
		for k := 0; k < len(r.ready); k++ { // grows meanwhile
			if err := r.begin(r.ready[k]); err != nil {
				return err
			}
		}
		r.ready = r.ready[:0]
		if len(r.open) == 0 {
			if len(r.held) > 0 {
				return fmt.Errorf("%w: %d messages wait for others of their pair", ErrStuck, len(r.held))
			}
			return nil
		}
		k, err := r.c.WaitAny(ctx, r.open)
		if err != nil {
			return err
		}
		i, last := r.steps[k], len(r.open)-1
		q := r.open[k]
		r.open[k], r.steps[k] = r.open[last], r.steps[last]
		r.open[last] = nil
		r.open, r.steps = r.open[:last], r.steps[:last]
		if err := q.Wait(ctx); err != nil {
			return fmt.Errorf("%s: %w", r.s.Steps[i].message(), err)
		}
		r.done(i)
	}
}

func (r *runner) begin(i int) error {
	switch step := &r.s.Steps[i]; step.Kind {
	case Send, Receive:
		r.message(i, step)
		return nil
	case Copy:
		copy(r.m.at(step.To), r.m.at(step.From))
	case Reduce:
		if err := r.op(r.m.at(step.To), r.m.at(step.From)); err != nil {
			return err
		}
	}
	r.done(i)
	return nil
}

// message starts a message, and those that were held for it, once it is its turn among
// those of the pair. Nobody waits for ever: of all messages that ranks hold or wait for,
// the one that comes first in the order of the lists is held by none.
func (r *runner) message(i int, step *Step) {
	if step.Slot != r.turns[step.Peer][step.Kind] {
		r.held = append(r.held, i)
		return
	}
	for i >= 0 {
		step = &r.s.Steps[i]
		r.turns[step.Peer][step.Kind]++
		if step.Kind == Send {
			r.started(i, r.c.Isend(step.Peer, r.m.at(step.From)))
		} else {
			r.started(i, r.c.Irecv(step.Peer, r.m.at(step.To)))
		}
		i = r.next(step)
	}
}

// next returns the message behind another, if it is held, or -1.
func (r *runner) next(after *Step) int {
	for k, i := range r.held {
		if s := &r.s.Steps[i]; s.Kind == after.Kind && s.Peer == after.Peer && s.Slot == after.Slot+1 {
			r.held = slices.Delete(r.held, k, k+1)
			return i
		}
	}
	return -1
}

func (r *runner) started(i int, q Request) {
	r.open = append(r.open, q)
	r.steps = append(r.steps, i)
}

func (r *runner) done(i int) {
	for _, next := range r.frees[i] {
		if r.waits[next]--; r.waits[next] == 0 {
			r.ready = append(r.ready, int(next))
		}
	}
}
