// Package calls makes the collective calls of communicators: it keeps their order, from which the
// ranks derive the tags of their messages, sends these messages, runs nonblocking calls in the
// background, and carries out the calls that create communicators.
//
// It knows neither requests nor error handlers: the caller has both, and gets errors without the
// name of the call. What the ranks do in a call is in the packages coll, settle and plan, which see
// it through interfaces that Call implements. The state is in Comm, one for each communicator, and
// in World.
package calls

import (
	"context"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
)

// World is what the communicators of a world share. Its fields do not change after the first call.
type World struct {
	Engine   *engine.Engine
	Watch    *debug.Watcher // of the debug mode; otherwise nil
	Contexts comm.Contexts
	Plans    plan.Config
	Life     context.Context // of background calls; ends with the engine
	Background
}

// Comm is a communicator's core with its collective calls. Call Init first. Exported fields do not
// change once the communicator is in use.
type Comm struct {
	comm.Core
	World  *World
	Inner  *Comm // of an intercommunicator's local group; otherwise nil
	Layout any   // its topology: a *topology.Cart, *topology.Graph or *topology.DistGraph, or nil

	mu    sync.Mutex    // guards the fields below; never held while calling the program
	calls int32         // number of collective calls; the tag of the next one's messages
	begun uint64        // the same, without wrapping around
	busy  int           // background calls, and partitioned requests
	plans plan.Sequence // of collective calls
	spare *Call
}

// Init initializes c for an intracommunicator of the processes of g, of which this one is a member.
func (c *Comm) Init(w *World, name string, g *group.Group, ctxID uint32) {
	c.World = w
	c.Core.Init(w.Engine, name, g, ctxID)
	c.Calls = c.callsBegun
}

func (c *Comm) callsBegun() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Next begins a collective call of an intracommunicator, and returns when the plan for it is known.
func (c *Comm) Next(ctx context.Context) (*Call, error) {
	call, err := c.begin(nil)
	if err == nil {
		err = call.ready(ctx)
	}
	return call, err
}

// lastCall is the last number of a call; after it the numbers restart. A call's messages have their
// own tags, one for each slot.
const lastCall = (mpi.MaxTag+1)/schedule.Slots - 1

// begin assigns a collective call its place in the order of an intracommunicator's calls. A call
// that then fails for its arguments also counts, so that the ranks stay in step. args must be equal
// on all ranks; they are for the debug mode.
func (c *Comm) begin(args []debug.Args) (*Call, error) {
	if c.IsInter() {
		return nil, coll.Intra()
	}
	c.mu.Lock()
	if err := c.Usable(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if c.Engine.Revoked(c.Context) {
		c.mu.Unlock()
		return nil, engine.ErrRevoked
	}
	tag := c.calls
	c.calls = (c.calls + 1) & lastCall
	call := c.spareCall()
	c.begun++
	call.comm, call.context, call.Tag, call.number = c, c.Context+comm.Collective, int(tag)*schedule.Slots, c.begun
	call.plan, call.begins = c.plans.Of((*plannedComm)(c), tag)
	c.mu.Unlock()
	if w := c.World.Watch; w != nil {
		call.seen = w.Entered(&c.Core, tag, args)
	}
	return call, nil
}

// spareCall returns an unused one. c.mu is held.
func (c *Comm) spareCall() *Call {
	call := c.spare
	if call == nil {
		return &Call{}
	}
	c.spare = nil
	*call = Call{mail: call.mail}
	call.mail.Reset()
	return call
}

// Restart makes c begin as if no collective call had been made, which all its processes do at the same place.
func (c *Comm) Restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls, c.begun, c.plans = 0, 0, plan.Sequence{}
}

// Occupy counts n more background calls, or partitioned requests, of c. When c is freed and none is
// left, its contexts are dropped; posted receives keep theirs.
func (c *Comm) Occupy(n int) {
	c.mu.Lock()
	c.busy += n
	over := c.busy == 0 && c.Freed.Load()
	c.mu.Unlock()
	if !over {
		return
	}
	for i := range uint32(comm.ContextsPerComm) {
		c.Engine.FreeContext(c.Context + i)
		if c.Inner != nil {
			c.Engine.FreeContext(c.Inner.Context + i)
		}
	}
}

// local returns the communicator of this side's processes: c, except for an intercommunicator.
func (c *Comm) local() *Comm {
	if c.Inner != nil {
		return c.Inner
	}
	return c
}

// Force makes later calls of c's processes on this side use the algorithms of a list, and choose
// others as before.
func (c *Comm) Force(list string) {
	c = c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plans.Force((*plannedComm)(c), list)
}

// Forced returns the algorithms that Force was last given.
func (c *Comm) Forced() string {
	c = c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plans.Forced()
}

// Plan returns the plan of the next call, nil if that call makes one.
func (c *Comm) Plan() *plan.Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plans.Last()
}

// goOnFrom makes c start with the knowledge of the ranks that created it in a call; c's are among
// them.
func (c *Comm) goOnFrom(call *Call) {
	if call == nil || call.plan == nil {
		return
	}
	c = c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plans.GoOnFrom((*plannedComm)(c), call.plan, call.comm.Group, c.Group)
}

// plannedComm is a communicator as seen by its plans.
type plannedComm Comm

func (c *plannedComm) Name() string         { return (*Comm)(c).Name() }
func (c *plannedComm) Rank() int            { return c.Core.Rank }
func (c *plannedComm) Size() int            { return c.Group.Size() }
func (c *plannedComm) Config() *plan.Config { return &c.World.Plans }

func (c *plannedComm) PathMeasurements() []plan.PathMeasurement {
	var ways []plan.PathMeasurement
	for _, p := range c.Engine.Links() {
		if c.Member(p.Rank) {
			_, rtt := p.Link.Current()
			ways = append(ways, plan.PathMeasurement{To: c.Local(p.Rank), RTT: rtt.Seconds(), Rate: p.Link.Bandwidth()})
		}
	}
	slices.SortFunc(ways, func(a, b plan.PathMeasurement) int { return a.To - b.To })
	return ways
}

func (c *plannedComm) Refused(ctx uint32) error {
	return c.Engine.StartError(c.CollectiveGroup(), ctx)
}

// Background runs functions in goroutines, until it has ended.
type Background struct {
	running sync.WaitGroup

	mu    sync.Mutex
	ended bool // nothing is started any more
}

// Start runs f in a goroutine, and reports whether it did.
func (b *Background) Start(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.running.Go(f)
	return true
}

// End makes Start refuse from now on.
func (b *Background) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// Wait returns when all functions have returned.
func (b *Background) Wait() { b.running.Wait() }
