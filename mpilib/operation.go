package mpilib

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// An operation is a collective call with its arguments, before it is made. Each is defined once, in
// operations.go and similar files, and used in three ways: Bcast waits for it, Ibcast does not, and
// BcastInit lets it be made repeatedly.
//
// Calls take their place in the order of a communicator's calls, which is a tag for their messages,
// before they return, and so in program order. A nonblocking call runs in a separate goroutine,
// which only its messages and reductions can block, and which Finalize ends.
type operation struct {
	name string     // "Bcast"
	args debug.Args // for the debug mode
	err  error      // error in this rank's arguments
	run  coll.Run
}

// call makes the call and waits for it.
func (o *operation) call(ctx context.Context, c *Comm) error {
	r, err := c.beginRound(o.args)
	if err == nil {
		r.call.waited = true
		err = o.do(ctx, r)
		if r.call.Leave(); err == nil {
			r.call.over()
		}
	}
	return c.called(o.name, err)
}

func (o *operation) do(ctx context.Context, r *round) error {
	if err := r.call.ready(ctx); err != nil { // also if this rank's arguments are invalid: others wait for its message
		return err
	}
	if o.err != nil {
		return o.err
	}
	r.call.program = true
	err := o.run(ctx, &r.Round)
	if errors.Is(err, collectives.ErrArgument) { // of buffers: everything else was checked
		return mpi.CausedBy(err, ErrCount)
	}
	return err
}

// start starts the call.
func (o *operation) start(c *Comm) *Request {
	what := transfer{comm: c, call: "I" + strings.ToLower(o.name[:1]) + o.name[1:]}
	r, err := c.beginRound(o.args.Detached())
	if err != nil {
		return failedRequest(what, err)
	}
	return o.detach(what, r)
}

// init prepares the call. All starts use one tag: the messages of a rank that is ahead of another
// match that one's receives in order, and a rank cannot start the next call before it has ended
// this one.
func (o *operation) init(c *Comm) *Persistent {
	what := transfer{comm: c, call: o.name + "Init"}
	r, err := c.beginRound(o.args.Detached())
	if err != nil {
		return &Persistent{what: what, again: func() *Request { return failedRequest(what, err) }}
	}
	if w := c.world.watch; w != nil {
		w.LeftBehind(r.call.seen) // except for its verdict
	}
	if first := *r.call; first.begins != nil { // others wait for it; the start of the call reports the error
		first.mail = coll.Messages{}
		c.world.comms.start(func() { first.ready(c.world.life) })
	}
	return &Persistent{what: what, again: o.repeatedly(what, r)}
}

// repeatedly returns a function that restarts the call. A failed one may have left messages, which
// the next would receive as its own.
func (o *operation) repeatedly(what transfer, first *round) func() *Request {
	var last *Request
	var broken error
	return func() *Request {
		if last != nil && broken == nil {
			broken = last.failed()
		}
		if broken != nil {
			return failedRequest(what, fmt.Errorf("an earlier start failed, so make another request: %w", broken))
		}
		r, call := *first, *first.call
		r.of(&call)
		call.begins = nil
		if w := what.comm.world.watch; w != nil {
			call.seen = w.EnteredAgain(first.call.seen)
		}
		if last = failedRequest(what, what.comm.core.Usable()); last.err == nil {
			last = o.detach(what, &r)
		}
		return last
	}
}

// failed returns the error of a request that is complete.
func (r *Request) failed() error {
	if r.never {
		return r.err
	}
	_, err := r.core.Result()
	return err
}

// detach runs the call in the background.
func (o *operation) detach(what transfer, r *round) *Request {
	c := what.comm
	ctx, giveUp := context.WithCancelCause(c.world.life)
	q := newRequest(what)
	w := c.world.watch
	if w != nil {
		w.Detached((*watchedRequest)(q), r.call.seen)
	}
	c.world.engine.BeginTask(&q.core, giveUp)
	over := func(err error) {
		giveUp(nil)
		c.occupy(-1)
		if w != nil {
			w.LeftBehind(r.call.seen)
		}
		q.core.Finish(err)
	}
	c.occupy(1)
	if !c.world.comms.start(func() { over(o.do(ctx, r)) }) {
		over(ErrFinalized)
	}
	return q
}

// errNoCancel is the error for cancelling a collective call.
var errNoCancel = errors.New("a collective call cannot be cancelled; wait for it, or Wait with a context that is done to give it up")
