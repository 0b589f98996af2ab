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

// An operation is a collective call with its arguments, before it is made. Each is
// written down once, in operations.go and its like, and is made in three ways: Bcast
// waits for it, Ibcast does not, and BcastInit has it made again and again.
//
// Calls take their place in the order of a communicator's calls, which is a tag for
// their messages, before they return, and so in the order of the program. A call that
// nobody waits for runs in a goroutine of its own, which nothing but its messages and its
// reductions can hold up, and which Finalize ends.
type operation struct {
	name string     // "Bcast"
	args debug.Args // for the debug mode
	err  error      // what is wrong with this rank's arguments
	run  coll.Run
}

// call makes it and waits.
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
	if err := r.call.ready(ctx); err != nil { // also where this rank's arguments are bad: others wait for what it tells
		return err
	}
	if o.err != nil {
		return o.err
	}
	r.call.program = true
	err := o.run(ctx, &r.Round)
	if errors.Is(err, collectives.ErrArgument) { // of buffers: all else has been looked at
		return mpi.CausedBy(err, ErrCount)
	}
	return err
}

// start makes it.
func (o *operation) start(c *Comm) *Request {
	what := transfer{comm: c, call: "I" + strings.ToLower(o.name[:1]) + o.name[1:]}
	r, err := c.beginRound(o.args.Detached())
	if err != nil {
		return failedRequest(what, err)
	}
	return o.detach(what, r)
}

// init prepares it. All starts are made with one tag: a rank that is further than another
// has its messages match that one's receives in their order, and it cannot start the next
// call before it has ended this one.
func (o *operation) init(c *Comm) *Persistent {
	what := transfer{comm: c, call: o.name + "Init"}
	r, err := c.beginRound(o.args.Detached())
	if err != nil {
		return &Persistent{what: what, again: func() *Request { return failedRequest(what, err) }}
	}
	if w := c.world.watch; w != nil {
		w.LeftBehind(r.call.seen) // but for its verdict
	}
	if first := *r.call; first.begins != nil { // others wait for it; who starts the call looks for the error
		first.mail = coll.Messages{}
		c.world.comms.start(func() { first.ready(c.world.life) })
	}
	return &Persistent{what: what, again: o.repeatedly(what, r)}
}

// repeatedly returns what starts the call again. One that failed may have left messages,
// which the next would take for its own.
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

// detach has the call run by itself.
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

// errNoCancel is that of cancelling a collective call.
var errNoCancel = errors.New("a collective call cannot be cancelled; wait for it, or Wait with a context that is done to give it up")
