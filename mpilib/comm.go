package mpilib

import (
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/mpilib/internal/attribute"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
)

// Comm is a communicator: an ordered group of processes whose messages match
// no other communicator's. Safe for concurrent use, but collectives must be
// called in the same order on every rank, and so from one goroutine at a time.
//
// An intercommunicator (MPI-4.1, section 7.6) has two such groups: ranks given
// to point-to-point calls are then ranks of the remote group.
type Comm struct {
	world   *World
	core    comm.Core
	handler atomic.Pointer[ErrorHandler]

	attributes attribute.List[*Comm]

	session *Session // the one it was created from, directly or not; otherwise nil
	inner   *Comm    // of an intercommunicator's local group; otherwise nil
	lent    bool     // it is the inner communicator of another
	slab    atomic.Pointer[slab]
	sent    atomic.Pointer[Request] // a send that completed at once, and
	got     atomic.Pointer[Request] // such a receive; see Comm.completed
	layout  layout                  // nil if there is none

	mu     sync.Mutex    // guards the fields below; never held while calling the program
	calls  int32         // number of collective calls; the tag of the next one's messages
	begun  uint64        // the same, without wrapping around
	busy   int           // background calls, and partitioned requests
	parted int           // number of tags assigned to partitions
	plans  plan.Sequence // of collective calls
	spare  *collectiveCall
}

// newComm returns the intracommunicator of the processes of g, of which this
// one is a member.
func newComm(w *World, name string, g *group.Group, context uint32) *Comm {
	c := &Comm{world: w}
	c.core.Init(w.engine, name, g, context)
	c.core.Calls = c.callsBegun
	return c
}

func (c *Comm) callsBegun() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
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
