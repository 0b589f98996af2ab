package schedule

import (
	"context"
	"fmt"
)

// Comm carries the messages of one call of one rank.
type Comm interface {
	// Isend starts to send a message, and Irecv to receive one of exactly len(buf)
	// bytes. buf is the request's until that is complete. Messages of a pair are told
	// apart by their slots: they may be started in any order.
	Isend(dst, slot int, buf []byte) Request
	Irecv(src, slot int, buf []byte) Request

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
	r := runner{c: c, s: s, m: m, op: op, waits: make([]int32, len(s.Steps)), frees: s.followers()}
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
			return fmt.Errorf("%v: %w", r.s.Steps[i], err)
		}
		r.done(i)
	}
}

func (r *runner) begin(i int) error {
	switch step := &r.s.Steps[i]; step.Kind {
	case Send:
		r.started(i, r.c.Isend(step.Peer, step.Slot, r.m.at(step.From)))
		return nil
	case Receive:
		r.started(i, r.c.Irecv(step.Peer, step.Slot, r.m.at(step.To)))
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
