package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
)

// called says in which call err came up and has the communicator's error
// handler see it.
func (c *Comm) called(name string, err error) error {
	c.leaves()
	if err != nil {
		return c.raise(fmt.Errorf("mpilib: %s on %s, rank %d%s: %w", name, c.Name(), c.core.Rank, c.world.watch.Line(), err))
	}
	return nil
}

// nextCall begins a collective call of an intracommunicator, and returns when it is known
// how to carry it out.
func (c *Comm) nextCall(ctx context.Context, args ...debug.Args) (*collectiveCall, error) {
	call, err := c.beginCall(args...)
	if err == nil {
		err = call.ready(ctx)
	}
	return call, err
}

// lastCall is the last number of a call; after it they begin anew. A call's messages have
// tags of their own, one for each slot.
const lastCall = (MaxTag+1)/schedule.Slots - 1

// beginCall gives a collective call its place among those of an intracommunicator. Also
// one that then fails for its arguments counts, so that the ranks stay in step. args are
// those that all ranks must give alike; they are for the debug mode.
func (c *Comm) beginCall(args ...debug.Args) (*collectiveCall, error) {
	if c.core.IsInter() {
		return nil, coll.Intra()
	}
	c.mu.Lock()
	if err := c.core.Usable(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if c.world.engine.Revoked(c.core.Context) {
		c.mu.Unlock()
		return nil, ErrRevoked
	}
	tag := c.calls
	c.calls = (c.calls + 1) & lastCall
	call := c.spareCall()
	c.begun++
	call.comm, call.context, call.tag, call.number = c, c.core.Context+comm.Collective, int(tag)*schedule.Slots, c.begun
	call.plan, call.begins = c.plans.Of((*plannedComm)(c), tag)
	c.mu.Unlock()
	if w := c.world.watch; w != nil {
		call.seen = w.Entered(&c.core, tag, args)
	}
	return call, nil
}

// collectiveCall is one collective call's collectives.Comm: its messages have
// a context that point-to-point messages do not, and tags of the call, from tag on.
type collectiveCall struct {
	comm         *Comm
	context      uint32
	tag          int
	seen         *debug.Calling // in debug mode; else nil
	pair         bool           // only two ranks make it, who need no other
	whole        *Comm          // whose call it is a part of, where that is not comm
	plan         *plan.Plan     // nil: all ranks are taken to be together
	begins       *plan.Plan     // which the call has to make; nil: none
	planner      *collectives.Planner
	waited       bool   // by the program, in its own goroutine
	program      bool   // one of the program's; else one that serves another, as the making of a communicator
	plan.Posting        // of a shared buffer, where it goes over one
	number       uint64 // among the communicator's, from 1
	mail         coll.Messages
	round        round // that it is all of
}

// spareCall returns one that is nobody's. c.mu is held.
func (c *Comm) spareCall() *collectiveCall {
	call := c.spare
	if call == nil {
		return &collectiveCall{}
	}
	c.spare = nil
	*call = collectiveCall{mail: call.mail}
	call.mail.Reset()
	return call
}

// over keeps a call that has succeeded for a later one, so that small calls need no memory.
// Nobody else may know of it.
func (c *collectiveCall) over() {
	if c.seen != nil {
		return
	}
	c.comm.mu.Lock()
	c.comm.spare = c
	c.comm.mu.Unlock()
}

// needs returns the communicator of which the call needs all processes, or nil.
func (c *collectiveCall) needs() *Comm {
	switch {
	case c.pair:
		return nil
	case c.whole != nil:
		return c.whole
	}
	return c.comm
}

// Internal implements collectives.Internal.
func (c *collectiveCall) Internal() bool { return !c.program }

// part notes that a request is a part of the call.
func (c *collectiveCall) part(r *Request) *Request {
	if r.seen != nil {
		r.seen.PartOf(c.seen, r.what().send)
	}
	return r
}

func (c *collectiveCall) Rank() int { return c.comm.core.Rank }
func (c *collectiveCall) Size() int { return c.comm.Size() }

// Global implements coll.Call.
func (c *collectiveCall) Global(r int) int { return c.comm.core.Global(r) }

// WorldRank, Turn and NewContext implement settle.Call.
func (c *collectiveCall) WorldRank(r int) int         { return c.comm.WorldRank(r) }
func (c *collectiveCall) Turn() int                   { return c.tag / schedule.Slots % c.Size() }
func (c *collectiveCall) NewContext() (uint32, error) { return c.comm.world.comms.contexts.New() }

func (c *collectiveCall) Isend(dst, slot int, buf []byte) collectives.Request {
	if c.seen != nil {
		what := transfer{comm: c.comm, send: true, peer: dst, tag: c.tag + slot, elem: 1, needs: c.needs()}
		return exactly{c.part(c.comm.isend(what, c.context, buf, engine.Standard, false)), len(buf)}
	}
	p := c.mail.Next(len(buf), true)
	c.comm.world.engine.StartSend(&p.Handle, c.parties(), c.context, c.comm.core.Global(dst), c.tag+slot, buf, engine.Standard, false)
	return p
}

func (c *collectiveCall) Irecv(src, slot int, buf []byte) collectives.Request {
	if c.seen != nil {
		what := transfer{comm: c.comm, peer: src, tag: c.tag + slot, elem: 1, needs: c.needs()}
		return exactly{c.part(c.comm.irecv(what, c.context, buf)), len(buf)}
	}
	p := c.mail.Next(len(buf), false)
	c.comm.world.engine.StartRecv(&p.Handle, c.parties(), c.context, c.comm.core.Global(src), c.tag+slot, buf)
	return p
}

// parties are the processes that its messages concern.
func (c *collectiveCall) parties() engine.Group {
	if all := c.needs(); all != nil {
		return all.core.Everybody()
	}
	return c.comm.core.Senders()
}

// WaitAny is that of several requests of this call.
func (c *collectiveCall) WaitAny(ctx context.Context, requests []collectives.Request, first int) (int, error) {
	if c.seen != nil {
		return c.watchedAny(ctx, requests)
	}
	for i, q := range requests { // small sends are complete when they are started
		if q.Done() {
			return i, nil
		}
	}
	if len(requests) == 1 { // who waits for one alone may read its link itself
		return 0, nil
	}
	return c.mail.WaitAny(ctx, requests, first)
}

// watchedAny is WaitAny in the debug mode.
func (c *collectiveCall) watchedAny(ctx context.Context, requests []collectives.Request) (int, error) {
	if err := c.seen.Agreed(ctx); err != nil { // ranks at odds may never send what these wait for
		return 0, err
	}
	if len(requests) == 1 {
		q := requests[0].(exactly)
		if err := q.r.await(ctx); err != nil && ctx.Err() != nil {
			return 0, err
		}
		return 0, nil
	}
	all := make([]*Request, len(requests))
	for i, q := range requests {
		all[i] = q.(exactly).r
	}
	return waitAny(ctx, all)
}

// IrecvPart implements coll.Call.
func (c *collectiveCall) IrecvPart(src int, p *buffer.Part) collectives.Request {
	into := buffer.ArrivalAt(*p, 0)
	what := transfer{comm: c.comm, peer: src, tag: c.tag, elem: 1, needs: c.needs()}
	r := c.part(c.comm.irecv(what, c.context, into.Buf))
	r.own().into = into
	return exactly{r, p.Size}
}

// exactly is a request whose message must have the length of its buffer.
type exactly struct {
	r *Request
	n int
}

// Done implements collectives.Request.
func (e exactly) Done() bool {
	_, ok := e.r.core.Settled()
	return ok || e.r.never
}

// Wait implements collectives.Request.
func (e exactly) Wait(ctx context.Context) error {
	if err := e.r.await(ctx); err != nil {
		return err
	}
	st, err := e.r.status()
	if err == nil && !e.r.what().send && st.Bytes != e.n {
		err = coll.WrongLength(st.Bytes, e.n)
	}
	return err
}
