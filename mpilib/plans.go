package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// plannedComm is a communicator as seen by its plans.
type plannedComm Comm

func (c *plannedComm) Name() string         { return (*Comm)(c).Name() }
func (c *plannedComm) Rank() int            { return c.core.Rank }
func (c *plannedComm) Size() int            { return c.core.Group.Size() }
func (c *plannedComm) Config() *plan.Config { return &c.world.plans }

func (c *plannedComm) Ways() []plan.Way {
	var ways []plan.Way
	for _, p := range (*Comm)(c).Paths() {
		ways = append(ways, plan.Way{To: p.To, RTT: p.RTTMS / 1000, Rate: p.Bandwidth})
	}
	return ways
}

func (c *plannedComm) Refused(ctx uint32) error {
	return c.world.engine.Refused(c.core.Everybody(), ctx)
}

// planning is w's contribution to the plans of its communicators.
func (w *World) planning() plan.Config {
	return plan.Config{
		Here: func() overlay.NodeID { return w.comms.here }, Orders: w.config.orders, Explain: w.config.explain,
		Shares: func() bool { return !w.config.place.Unshared && w.watch == nil },
	}
}

// force makes later calls of c use the algorithms of a list, and choose others as before.
func (c *Comm) force(list string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plans.Force((*plannedComm)(c), list)
}

// goesOnFrom makes c start with the knowledge of the ranks that created it in a call; c's are among
// them.
func (c *Comm) goesOnFrom(call *collectiveCall) {
	if call.plan == nil {
		return
	}
	c = c.Local()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plans.GoOnFrom((*plannedComm)(c), call.plan, call.comm.core.Group, c.core.Group)
}

// ready returns when the plan of the call is known.
func (c *collectiveCall) ready(ctx context.Context) error {
	if c.plan == nil {
		return nil
	}
	err := c.plan.Get(ctx, c, c.begins)
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
func (c *collectiveCall) Planner() *collectives.Planner {
	if c.planner == nil {
		p, err := collectives.NewPlanner(c.comm.core.Rank, c.comm.Size(), nil)
		if err != nil {
			panic(err) // a communicator knows its own rank
		}
		c.planner = p
	}
	return c.planner
}

// Number, Context and UsePlanner implement plan.Call.
func (c *collectiveCall) Number() uint64                    { return c.number }
func (c *collectiveCall) Context() uint32                   { return c.context }
func (c *collectiveCall) UsePlanner(p *collectives.Planner) { c.planner = p }
