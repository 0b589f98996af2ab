package mpilib

import (
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/mpilib/internal/attribute"
	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// Comm is a communicator: an ordered group of processes whose messages match
// no other communicator's. Safe for concurrent use, but collectives must be
// called in the same order on every rank, and so from one goroutine at a time.
//
// An intercommunicator (MPI-4.1, section 7.6) has two such groups: ranks given
// to point-to-point calls are then ranks of the remote group.
type Comm struct {
	world   *World
	core    calls.Comm
	handler atomic.Pointer[ErrorHandler]

	attributes attribute.List[*Comm]

	session *Session // the one it was created from, directly or not; otherwise nil
	inner   *Comm    // of an intercommunicator's local group; otherwise nil
	isInner bool     // it is the inner communicator of another
	slab    atomic.Pointer[slab]
	sent    atomic.Pointer[Request] // a send that completed at once, and
	got     atomic.Pointer[Request] // such a receive; see Comm.completed

	mu     sync.Mutex // guards the field below
	parted int        // number of tags assigned to partitions
}

// newComm returns the intracommunicator of the processes of g, of which this
// one is a member.
func newComm(w *World, name string, g *group.Group, context uint32) *Comm {
	c := &Comm{world: w}
	c.core.Init(&w.calls, name, g, context)
	return c
}

// newComm returns the communicator that n describes, nil for nil, with an error handler and a
// session.
func (w *World) newComm(n *calls.Created, h *ErrorHandler, s *Session) *Comm {
	if n == nil {
		return nil
	}
	c := &Comm{world: w}
	c.handler.Store(h)
	c.joinSession(s)
	if n.Peers == nil {
		n.Init(&w.calls, &c.core, nil)
		return c
	}
	c.inner = &Comm{world: w, isInner: true}
	c.inner.handler.Store(h)
	n.Init(&w.calls, &c.core, &c.inner.core)
	return c
}

// created ends a call on c that creates a communicator, which inherits what c passes on to all
// communicators created from it (MPI-4.1, section 9.3).
func (c *Comm) created(call string, n *calls.Created, err error) (*Comm, error) {
	return c.create(n), c.called(call, err)
}

func (c *Comm) create(n *calls.Created) *Comm {
	return c.world.newComm(n, c.handler.Load(), c.session)
}

// Rank returns the caller's rank, 0 <= Rank() < Size() (MPI-4.1, section 7.4.1).
func (c *Comm) Rank() int { return c.core.Rank }

// Size returns the number of processes, those of the caller's side in an
// intercommunicator (MPI-4.1, section 7.4.1).
func (c *Comm) Size() int { return c.core.Group.Size() }

// WorldRank returns the rank in the world of rank r of c's group, or Undefined
// if c has no such rank.
func (c *Comm) WorldRank(r int) int { return c.core.Group.WorldRank(r) }

// World returns the membership of the job that c belongs to.
func (c *Comm) World() *World { return c.world }

// Member reports whether messages of c can come from a world rank.
func (c *Comm) Member(world int) bool { return c.core.Member(world) }

// Name returns the communicator's name for messages to users, "world" or "world dup 2" unless
// SetName has set another (MPI-4.1, section 7.8).
func (c *Comm) Name() string { return c.core.Name() }

// SetName sets the name of c, which errors then use. It is local: other ranks may use different
// names (MPI-4.1, section 7.8).
func (c *Comm) SetName(name string) { c.core.SetName(name) }
