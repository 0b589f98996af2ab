package mpilib

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
)

// A plan is what a communicator's calls choose their algorithms by, alike on all ranks.
// Each call has that of its place in the order of calls, so that calls that go on by
// themselves choose the same everywhere, whenever they come to it. A new one begins with
//
//   - the first call of a communicator that starts anew: all tell where they are and,
//     if they are at several sites, what their links have measured;
//   - calls 64, 4096 and 262144, if they are: links know more by then;
//   - SetInfo: the same, but for the algorithms that are forced;
//   - call 16, if it is: those that are all on one node have a shared buffer from then on;
//   - a communicator that all of another have made: as that one's.
//
// What ranks tell each other is a part of the call that begins the plan, and the calls
// behind it wait for that.
type plan struct {
	comm   *Comm
	derive func(*snapshot) *snapshot // makes it of the one before; nil: the ranks agree on it
	once   sync.Once
	done   chan struct{} // closed when the rest is set

	snapshot     *snapshot
	planner      *collectives.Planner
	sharedBuffer *sharedBuffer // nil: there is none
	err          error

	mu     sync.Mutex // guards the rest
	before *plan      // what it goes on from, until it is done; nil: nothing
}

// comparisons are the calls with which ranks compare anew what links have measured.
var comparisons = []int32{64, 4096, 262144}

// planOf returns the plan of a call, and the one that the call has to make, if any. c.mu
// is held.
func (c *Comm) planOf(number int32) (p, begins *plan) {
	switch {
	case c.plan == nil:
		first := &plan{comm: c, done: make(chan struct{})}
		if c.Size() == 1 || c.world.comms.here.Name == "" { // all are at one place
			first.derive = func(*snapshot) *snapshot { return &snapshot{orders: c.world.config.orders} }
		} else {
			begins = first
		}
		c.plan = first
		c.forceAnew()
	case c.begins(number):
		begins = &plan{comm: c, before: c.plan, done: make(chan struct{})}
		c.plan = begins
	}
	return c.plan, begins
}

// begins reports whether a call makes a plan because of its number. c.mu is held.
func (c *Comm) begins(number int32) bool {
	return c.Size() > 1 && (number == sharedBufferAfter && c.Size() <= shm.MaxSharedBufferRanks || slices.Contains(comparisons, number))
}

// goOn has c's calls go by what a plan makes known. c.mu is held.
func (c *Comm) goOn(from *plan, derive func(*snapshot) *snapshot) {
	c.plan = &plan{comm: c, before: from, derive: derive, done: make(chan struct{})}
}

// force has the calls of c from now on carried out by the algorithms of a list, and others
// as before.
func (c *Comm) force(list string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forced == list {
		return
	}
	c.forced = list
	c.forceAnew()
}

// forceAnew is for who holds c.mu.
func (c *Comm) forceAnew() {
	if list := c.forced; c.plan != nil {
		c.goOn(c.plan, func(o *snapshot) *snapshot { return o.forcing(list) })
	}
}

// goesOnFrom has c begin with what the ranks know that made it in a call, all of c's among
// them.
func (c *Comm) goesOnFrom(call *collectiveCall) {
	if call.plan == nil {
		return
	}
	c = c.Local()
	whole, some := call.comm.group, c.group
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goOn(call.plan, func(o *snapshot) *snapshot { return o.among(whole, some) })
}

// get returns when the plan is made; by call, if it is the one.
func (p *plan) get(ctx context.Context, call *collectiveCall) error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	p.mu.Lock()
	before := p.before
	p.mu.Unlock()
	var o *snapshot
	var known *sharedBuffer
	if before != nil {
		if err := before.get(ctx, call); err != nil {
			return err
		}
		if o = before.snapshot; before.comm == p.comm {
			known = before.sharedBuffer
		}
	}
	switch {
	case p.derive != nil:
		p.once.Do(func() { p.set(p.derive(o), known, nil) })
	case call.begins == p:
		p.once.Do(func() { p.set(call.agree(ctx, o, known)) })
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for an earlier call on %s, with which its ranks tell where they are: %w", p.comm.Name(), context.Cause(ctx))
	}
}

func (p *plan) set(o *snapshot, b *sharedBuffer, err error) {
	if err == nil {
		p.planner, err = o.planner(p.comm)
	}
	if err != nil { // who failed does not know what others know
		err = fmt.Errorf("the ranks of %s did not tell each other where they are, so that it has no collective calls: %w", p.comm.Name(), err)
	}
	p.snapshot, p.sharedBuffer, p.err = o, b, err
	p.mu.Lock()
	p.before = nil
	p.mu.Unlock()
	close(p.done)
}

// ready returns when it is known how to carry out the call.
func (c *collectiveCall) ready(ctx context.Context) error {
	if c.plan == nil {
		return nil
	}
	err := c.plan.get(ctx, c)
	c.planner = c.plan.planner
	if err == nil {
		err = c.takeSharedBuffer()
	}
	return err
}

// Planner is that of the call's plan. What has none, as a call before the plan is made,
// takes all ranks to be together.
func (c *collectiveCall) Planner() *collectives.Planner {
	if c.planner == nil {
		p, err := collectives.NewPlanner(c.comm.rank, c.comm.Size(), nil)
		if err != nil {
			panic(err) // a communicator has its own rank
		}
		c.planner = p
	}
	return c.planner
}
