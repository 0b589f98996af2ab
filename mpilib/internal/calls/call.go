package calls

import (
	"context"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Call is one collective call's collectives.Comm: its messages have a context different from that
// of point-to-point messages, and the tags of the call, from Tag on.
type Call struct {
	Tag int

	comm         *Comm
	context      uint32
	seen         *debug.PendingCall // in debug mode; otherwise nil
	pair         bool               // only two ranks make it, which need no others
	whole        *Comm              // the communicator whose call it is part of, if not comm
	plan         *plan.Plan         // nil: all ranks count as being together
	begins       *plan.Plan         // which the call has to make; nil for none
	planner      *collectives.Planner
	waited       bool   // blocking, in the program's goroutine
	program      bool   // the program's; false if it serves another call, for example the creation of a communicator
	plan.Posting        // of a shared buffer, if it uses one
	number       uint64 // number among the communicator's calls, from 1
	mail         coll.Messages
	round        Round                  // the call that this is a part of
	reserved     func() (uint32, error) // returns the context that Round.Reserve has allocated; nil for none
}

// recycle keeps a call that has succeeded for reuse, so that small calls allocate no memory. There
// must be no other reference to it.
func (c *Call) recycle() {
	if c.seen != nil {
		return
	}
	c.comm.mu.Lock()
	c.comm.spare = c
	c.comm.mu.Unlock()
}

// needs returns the communicator all of whose processes the call needs, or nil.
func (c *Call) needs() *Comm {
	switch {
	case c.pair:
		return nil
	case c.whole != nil:
		return c.whole
	}
	return c.comm
}

// ready returns when the plan of the call is known.
func (c *Call) ready(ctx context.Context) error {
	if c.plan == nil {
		return nil
	}
	err := c.plan.Get(ctx, c, c.begins)
	if err != nil && ctx.Err() != nil {
		return engine.Expired(c.comm.Engine, err)
	}
	c.planner = c.plan.Planner()
	if err == nil && c.waited && c.needs() == c.comm {
		if b := c.plan.SharedBuffer(); b != nil {
			err = c.Posting.Take(b, c.number)
		}
	}
	return err
}

// Planner returns that of the call's plan. Without one, as for a call before the plan is made, all
// ranks count as being together.
func (c *Call) Planner() *collectives.Planner {
	if c.planner == nil {
		p, err := collectives.NewPlanner(c.Rank(), c.Size(), nil)
		if err != nil {
			panic(err) // a communicator knows its own rank
		}
		c.planner = p
	}
	return c.planner
}

// Number, Context and UsePlanner implement plan.Call.
func (c *Call) Number() uint64                    { return c.number }
func (c *Call) Context() uint32                   { return c.context }
func (c *Call) UsePlanner(p *collectives.Planner) { c.planner = p }

// Internal implements collectives.Internal.
func (c *Call) Internal() bool { return !c.program }

// Rank returns this process's rank among those that make the call, and Size their number.
func (c *Call) Rank() int { return c.comm.Core.Rank }

// Size is described at Rank.
func (c *Call) Size() int { return c.comm.Group.Size() }

// Global implements coll.Call.
func (c *Call) Global(r int) int { return c.comm.Global(r) }

// WorldRank, Allocator and NewContext implement settle.Call.
func (c *Call) WorldRank(r int) int { return c.comm.Group.WorldRank(r) }
func (c *Call) Allocator() int      { return c.Tag / schedule.Slots % c.Size() }
func (c *Call) NewContext() (uint32, error) {
	if c.reserved != nil {
		return c.reserved()
	}
	return c.comm.World.Contexts.New()
}

// Places returns the locations of the ranks. The caller owns the slice.
func (c *Call) Places(ctx context.Context) ([]overlay.NodeID, error) {
	if c.plan != nil {
		if places := c.plan.Places(); places != nil { // so has every rank
			return append([]overlay.NodeID(nil), places...), nil
		}
	}
	return place.Gather(ctx, c, c.Size(), c.comm.World.Plans.Here())
}

// parties returns the processes that its messages involve.
func (c *Call) parties() engine.Group {
	if all := c.needs(); all != nil {
		return all.CollectiveGroup()
	}
	return c.comm.Senders()
}

// Isend implements collectives.Comm.
func (c *Call) Isend(dst, slot int, buf []byte) collectives.Request {
	if c.seen != nil {
		m := c.message(true, dst, c.Tag+slot, buf)
		c.comm.Engine.StartSend(&m.handle, c.parties(), c.context, c.comm.Global(dst), c.Tag+slot, buf, engine.Copied, false)
		m.seen.SetCall(c.seen, true)
		return m
	}
	p := c.mail.Next(len(buf), true)
	c.comm.Engine.StartSend(&p.Handle, c.parties(), c.context, c.comm.Global(dst), c.Tag+slot, buf, engine.Copied, false)
	return p
}

// Irecv implements collectives.Comm.
func (c *Call) Irecv(src, slot int, buf []byte) collectives.Request {
	if c.seen != nil {
		return c.receive(c.message(false, src, c.Tag+slot, buf), buf)
	}
	p := c.mail.Next(len(buf), false)
	c.comm.Engine.StartRecv(&p.Handle, c.parties(), c.context, c.comm.Global(src), c.Tag+slot, buf)
	return p
}

// IrecvPart implements coll.Call.
func (c *Call) IrecvPart(src int, p *buffer.Part) collectives.Request {
	into := buffer.ArrivalAt(*p, 0)
	m := c.message(false, src, c.Tag, into.Buf)
	m.into, m.size = into, p.Size
	return c.receive(m, into.Buf)
}

// receive starts the receive of m into buf.
func (c *Call) receive(m *message, buf []byte) *message {
	c.comm.Engine.StartRecv(&m.handle, c.parties(), c.context, c.comm.Global(m.what.Peer), m.what.Tag, buf)
	if m.seen != nil {
		m.seen.SetCall(c.seen, false)
	}
	return m
}

// WaitAny waits for any of several requests of this call.
func (c *Call) WaitAny(ctx context.Context, requests []collectives.Request, first int) (int, error) {
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
func (c *Call) watchedAny(ctx context.Context, requests []collectives.Request) (int, error) {
	if err := c.seen.Agreed(ctx); err != nil { // ranks in different calls may never send what these wait for
		return 0, err
	}
	if len(requests) == 1 {
		m := requests[0].(*message)
		if err := m.seen.Wait(ctx, m); err != nil && ctx.Err() != nil {
			return 0, err
		}
		return 0, nil
	}
	all, handles := make([]debug.Request, len(requests)), make([]*engine.Handle, len(requests))
	for i, q := range requests {
		m := q.(*message)
		all[i], handles[i] = m, &m.handle
	}
	return c.comm.World.Watch.WaitAny(ctx, all, handles)
}
