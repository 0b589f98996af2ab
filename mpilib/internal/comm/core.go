// Package comm holds the part of a communicator that matters for messages: its processes, the
// contexts of its messages, the program's assertions, and the acknowledged failures. Contexts
// allocates numbers that no two communicators share.
//
// It creates no communicators and sends nothing. A Core is embedded in its communicator, so sending
// a message needs no lookup elsewhere.
package comm

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Core is the core of a communicator. Call Init first; exported fields that are not atomic do not
// change after that.
type Core struct {
	Engine  *engine.Engine
	Rank    int          // of this process in Group
	Group   *group.Group // the processes on this side
	Peers   *group.Group // the processes that message ranks refer to: Group, or the remote group
	Context uint32       // of point-to-point messages, the first of ContextsPerComm
	aligned bool         // ranks of Peers are world ranks

	Freed atomic.Bool
	Hints atomic.Uint32 // of type Hints
	Calls func() int32  // number of collective calls begun, as used to match their messages
	label atomic.Pointer[string]

	mu    sync.Mutex                   // held while acked is modified
	acked atomic.Pointer[map[int]bool] // processes, by world rank, whose failure is acknowledged
}

// Init initializes c for an intracommunicator of the processes of g, of which this one is a member.
func (c *Core) Init(e *engine.Engine, name string, g *group.Group, ctxID uint32) {
	c.Engine, c.Rank, c.Group, c.Context = e, g.Rank(e.Rank()), g, ctxID
	c.SetPeers(g)
	c.SetName(name)
	e.CreateContexts(ctxID-ctxID%ContextsPerComm, ContextsPerComm)
}

// SetPeers makes c an intercommunicator's core if g is another group. c is not shared yet.
func (c *Core) SetPeers(g *group.Group) { c.Peers, c.aligned = g, isAligned(g) }

// isAligned reports whether every rank of g is its world rank.
func isAligned(g *group.Group) bool {
	for rank, world := range g.All() {
		if rank != world {
			return false
		}
	}
	return true
}

// Name returns the communicator's name for messages to users.
func (c *Core) Name() string { return *c.label.Load() }

// SetName sets the name.
func (c *Core) SetName(name string) { c.label.Store(&name) }

// Global converts rank r of a message to a world rank; AnySource and ProcNull are returned
// unchanged. r was checked.
func (c *Core) Global(r int) int {
	if c.aligned || r < 0 {
		return r
	}
	return c.Peers.WorldRank(r)
}

// Local is the inverse of Global for a member.
func (c *Core) Local(world int) int {
	if c.aligned {
		return world
	}
	return c.Peers.Rank(world)
}

// Member reports whether messages of c can come from a world rank.
func (c *Core) Member(world int) bool {
	return c.aligned && world >= 0 && world < c.Peers.Size() || !c.aligned && c.Peers.Rank(world) >= 0
}

// IsInter reports whether c is an intercommunicator's.
func (c *Core) IsInter() bool { return c.Peers != c.Group }

// Contains reports whether a world rank is on either side of c.
func (c *Core) Contains(world int) bool {
	return c.Group.Rank(world) >= 0 || c.IsInter() && c.Peers.Rank(world) >= 0
}

// AllMembers returns both sides of an intercommunicator, in an order that is the same on both, or c's
// group.
func (c *Core) AllMembers() *group.Group {
	switch {
	case !c.IsInter():
		return c.Group
	case c.Group.WorldRank(0) < c.Peers.WorldRank(0):
		return group.Union(c.Group, c.Peers)
	}
	return group.Union(c.Peers, c.Group)
}

// Usable returns why c cannot be used, or nil.
func (c *Core) Usable() error {
	if c.Freed.Load() {
		return freed()
	}
	return nil
}

func freed() error {
	return fmt.Errorf("%w; free it later, or give a Dup of it to what outlives it", mpi.ErrFreed)
}

// CheckSend returns why a message to rank dst with a tag cannot be sent, or nil. It and
// CheckRecv are called for each message: they decide the usual case without a further call,
// and checkSend and checkRecv know all cases.
func (c *Core) CheckSend(dst, tag int) error {
	if uint(dst) < uint(c.Peers.Size()) && uint(tag) <= mpi.MaxTag && !c.Freed.Load() {
		return nil
	}
	return c.checkSend(dst, tag)
}

func (c *Core) checkSend(dst, tag int) error {
	if err := c.Usable(); err != nil {
		return err
	}
	if dst != mpi.ProcNull && (dst < 0 || dst >= c.Peers.Size()) {
		return fmt.Errorf("%w: %d, communicator %s has ranks 0 to %d", mpi.ErrRank, dst, c.Name(), c.Peers.Size()-1)
	}
	return CheckTag(tag)
}

// CheckTag returns an error if the tag is invalid, or nil.
func CheckTag(tag int) error {
	if tag < 0 || tag > mpi.MaxTag {
		return fmt.Errorf("%w: %d, tags are 0 to %d", mpi.ErrTag, tag, mpi.MaxTag)
	}
	return nil
}

// CheckRecv returns why a message from rank src with a tag, which may be wildcards, cannot be
// received, or nil.
func (c *Core) CheckRecv(src, tag int) error {
	if uint(src) < uint(c.Peers.Size()) && uint(tag) <= mpi.MaxTag && !c.Freed.Load() {
		return nil // no wildcard, so no hint speaks of it
	}
	return c.checkRecv(src, tag)
}

func (c *Core) checkRecv(src, tag int) error {
	if err := c.checkAsserted(src, tag); err != nil {
		return err
	}
	if src == mpi.AnySource {
		src = mpi.ProcNull
	}
	if tag == mpi.AnyTag {
		tag = 0
	}
	return c.checkSend(src, tag)
}
