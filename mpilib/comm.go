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

	session *Session // that it was made from, directly or not; else nil
	inner   *Comm    // of an intercommunicator's local group; else nil
	lent    bool     // it is another's inner
	slab    atomic.Pointer[slab]
	sent    atomic.Pointer[Request] // a send that was complete at once, and
	got     atomic.Pointer[Request] // such a receive; see Comm.completed
	layout  layout                  // nil where there is none

	mu     sync.Mutex    // guards the rest; never held while calling the program
	calls  int32         // collective calls begun; the tag of the next one's messages
	begun  uint64        // the same, for ever
	busy   int           // calls in the background, and partitioned requests
	parted int           // tags that partitions were given
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

// Member reports whether a world rank is one that messages of c come from.
func (c *Comm) Member(world int) bool { return c.core.Member(world) }

// Name returns the communicator's name for people, "world" or "world dup 2"
// unless SetName gave it another (MPI-4.1, section 7.8).
func (c *Comm) Name() string { return c.core.Name() }

// SetName gives c a name for people, which errors then use. It is local: other
// ranks may name theirs otherwise (MPI-4.1, section 7.8).
func (c *Comm) SetName(name string) { c.core.SetName(name) }
