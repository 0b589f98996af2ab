package calls

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// An Operation is a collective operation with its arguments, before the call. Each is defined once, and
// used in three ways: Bcast waits for it (Call), Ibcast does not (Detach), and BcastInit lets it be
// made repeatedly (Repeated).
//
// Calls take their place in the order of a communicator's calls, which is a tag for their messages,
// before they return, and so in program order. A nonblocking call runs in a separate goroutine,
// which only its messages and reductions can block, and which the world's end ends.
type Operation struct {
	Name string     // "Bcast"
	args debug.Args // for the debug mode
	err  error      // error in this rank's arguments
	run  coll.Run
}

// callName is the name of a blocking call. The program's function may have another, such as Collective.Call, where another rank's has
// this one.
func callName(operation string) string { return operation }

// detachedName is that of a nonblocking call.
func detachedName(operation string) string {
	return "I" + strings.ToLower(operation[:1]) + operation[1:]
}

// repeatedName is that of a persistent one.
func repeatedName(operation string) string { return operation + "Init" }

// compared returns what the debug mode compares of a call on c.
func (o *Operation) compared(c *Comm, name func(operation string) string) debug.Args {
	a := o.args
	if c.World.Watch != nil {
		a.Name = name(o.Name)
	}
	return a
}

// Call makes the call on c and waits for it.
func (o *Operation) Call(ctx context.Context, c *Comm) error {
	r, err := c.Begin(o.compared(c, callName))
	if err != nil {
		return err
	}
	r.call.waited = true
	err = o.do(ctx, r)
	if r.call.Leave(); err == nil {
		r.call.recycle()
	}
	return err
}

func (o *Operation) do(ctx context.Context, r *Round) error {
	if err := r.call.ready(ctx); err != nil { // also if this rank's arguments are invalid: others wait for its message
		return err
	}
	if o.err != nil {
		return o.err
	}
	r.call.program = true
	err := o.run(ctx, &r.Round)
	if errors.Is(err, collectives.ErrArgument) { // of buffers: everything else was checked
		return mpi.CausedBy(err, mpi.ErrCount)
	}
	return err
}

// Begin begins a nonblocking call on c, for Detach.
func (o *Operation) Begin(c *Comm) (*Round, error) {
	return c.Begin(o.compared(c, detachedName).Detached())
}

// Detach carries out the call that r has begun in the background, and completes q then.
func (o *Operation) Detach(r *Round, q debug.Request) {
	c := r.comm
	ctx, giveUp := context.WithCancelCause(c.World.Life)
	w := c.World.Watch
	if w != nil {
		w.Detached(q, r.call.seen)
	}
	c.Engine.BeginTask(q.Handle(), giveUp)
	over := func(err error) {
		giveUp(nil)
		c.Occupy(-1)
		if w != nil {
			w.LeftBehind(r.call.seen)
		}
		q.Handle().Finish(err)
	}
	c.Occupy(1)
	if !c.World.Start(func() { over(o.do(ctx, r)) }) {
		over(mpi.ErrFinalized)
	}
}

// Repeated is a persistent call. All starts use one tag: the messages of a rank that is ahead of
// another match that one's receives in order, and a rank cannot start the next call before it has
// ended this one. One goroutine uses it at a time.
type Repeated struct {
	op     *Operation
	first  *Round
	last   *engine.Handle // of the last start; nil before the first
	broken error          // why it cannot be started any more, or nil
}

// Repeat prepares the call on c.
func (o *Operation) Repeat(c *Comm) (*Repeated, error) {
	r, err := c.Begin(o.compared(c, repeatedName).Detached())
	if err != nil {
		return nil, err
	}
	if w := c.World.Watch; w != nil {
		w.LeftBehind(r.call.seen) // except for its verdict
	}
	if first := *r.call; first.begins != nil { // others wait for it; the start of the call reports the error
		first.mail = coll.Messages{}
		c.World.Start(func() { first.ready(c.World.Life) })
	}
	return &Repeated{op: o, first: r}, nil
}

// Next begins the next call. A failed one may have left messages, which the next would receive as
// its own; so there is none after it.
func (p *Repeated) Next() (*Round, error) {
	if p.last != nil && p.broken == nil {
		_, p.broken = p.last.Result()
	}
	if p.broken != nil {
		return nil, fmt.Errorf("an earlier start failed, so make another request: %w", p.broken)
	}
	r, call := *p.first, *p.first.call
	r.of(&call)
	call.begins = nil
	if w := r.comm.World.Watch; w != nil {
		call.seen = w.EnteredAgain(p.first.call.seen)
	}
	p.broken = r.comm.Usable()
	return &r, p.broken
}

// Detach carries out the call that Next has begun as Operation.Detach does.
func (p *Repeated) Detach(r *Round, q debug.Request) {
	p.last = q.Handle()
	p.op.Detach(r, q)
}
