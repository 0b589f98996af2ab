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

// called adds the name of the call to err and passes it to the communicator's error handler.
func (c *Comm) called(name string, err error) error {
	c.leaves()
	if err != nil {
		return c.raise(fmt.Errorf("mpilib: %s on %s, rank %d%s: %w", name, c.Name(), c.core.Rank, c.world.watch.Line(), err))
	}
	return nil
}

// nextCall begins a collective call of an intracommunicator, and returns when the plan for it is
// known.
func (c *Comm) nextCall(ctx context.Context, args ...debug.Args) (*collectiveCall, error) {
	call, err := c.beginCall(args...)
	if err == nil {
		err = call.ready(ctx)
	}
	return call, err
}

// lastCall is the last number of a call; after it the numbers restart. A call's messages have their
// own tags, one for each slot.
const lastCall = (MaxTag+1)/schedule.Slots - 1

// beginCall assigns a collective call its place in the order of an intracommunicator's calls. A
// call that then fails for its arguments also counts, so that the ranks stay in step. args must be
// equal on all ranks; they are for the debug mode.
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

// collectiveCall is one collective call's collectives.Comm: its messages have a context different
// from that of point-to-point messages, and the tags of the call, from tag on.
type collectiveCall struct {
	comm         *Comm
	context      uint32
	tag          int
	seen         *debug.Calling // in debug mode; otherwise nil
	pair         bool           // only two ranks make it, which need no others
	whole        *Comm          // the communicator whose call it is part of, if not comm
	plan         *plan.Plan     // nil: all ranks count as being together
	begins       *plan.Plan     // which the call has to make; nil for none
	planner      *collectives.Planner
	waited       bool   // blocking, in the program's goroutine
	program      bool   // the program's; false if it serves another call, for example the creation of a communicator
	plan.Posting        // of a shared buffer, if it uses one
	number       uint64 // number among the communicator's calls, from 1
	mail         coll.Messages
	round        round // the call that this is a part of
}

// spareCall returns an unused one. c.mu is held.
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

// over keeps a call that has succeeded for reuse, so that small calls allocate no memory. There
// must be no other reference to it.
func (c *collectiveCall) over() {
	if c.seen != nil {
		return
	}
	c.comm.mu.Lock()
	c.comm.spare = c
	c.comm.mu.Unlock()
}

// needs returns the communicator all of whose processes the call needs, or nil.
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

// parties returns the processes that its messages involve.
func (c *collectiveCall) parties() engine.Group {
	if all := c.needs(); all != nil {
		return all.core.Everybody()
	}
	return c.comm.core.Senders()
}

// WaitAny waits for any of several requests of this call.
func (c *collectiveCall) WaitAny(ctx context.Context, requests []collectives.Request, first int) (int, error) {
	if c.seen != nil {
		return c.watchedAny(ctx, requests)
	}
	for i, q := range requests { // small sends complete when they are started
		if q.Done() {
			return i, nil
		}
	}
	if len(requests) == 1 { // a goroutine that waits for a single request may read its link itself
		return 0, nil
	}
	return c.mail.WaitAny(ctx, requests, first)
}

// watchedAny is WaitAny in the debug mode.
func (c *collectiveCall) watchedAny(ctx context.Context, requests []collectives.Request) (int, error) {
	if err := c.seen.Agreed(ctx); err != nil { // ranks in different calls may never send what these wait for
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
