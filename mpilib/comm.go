package mpilib

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/mpilib/internal/attribute"
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
	rank    int          // of this process in group
	group   *group.Group // the processes on this side
	peers   *group.Group // whom the ranks of messages name: group, or the remote group
	aligned bool         // ranks of peers are world ranks
	context uint32       // of point-to-point messages, the first of contextsPerComm

	label   atomic.Pointer[string]
	freed   atomic.Bool
	handler atomic.Pointer[ErrorHandler]
	hints   atomic.Uint32                // hints
	acked   atomic.Pointer[map[int]bool] // processes, by world rank, whose failure is acknowledged; written with mu held

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
	c := &Comm{world: w, rank: g.Rank(w.engine.Rank()), group: g, peers: g, context: context}
	c.aligned = isAligned(g)
	c.label.Store(&name)
	w.engine.Open(context-context%contextsPerComm, contextsPerComm)
	return c
}

// isAligned reports whether every rank of g is its world rank.
func isAligned(g *group.Group) bool {
	for rank, world := range g.All() {
		if rank != world {
			return false
		}
	}
	return true
}

// Rank returns the caller's rank, 0 <= Rank() < Size() (MPI-4.1, section 7.4.1).
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of processes, those of the caller's side in an
// intercommunicator (MPI-4.1, section 7.4.1).
func (c *Comm) Size() int { return c.group.Size() }

// WorldRank returns the rank in the world of rank r of c's group, or Undefined
// if c has no such rank.
func (c *Comm) WorldRank(r int) int { return c.group.WorldRank(r) }

// World returns the membership of the job that c belongs to.
func (c *Comm) World() *World { return c.world }

// global is rank r of a message in terms of the world; AnySource and ProcNull
// stay what they are. r was checked.
func (c *Comm) global(r int) int {
	if c.aligned || r < 0 {
		return r
	}
	return c.peers.WorldRank(r)
}

// local is the inverse of global for a member.
func (c *Comm) local(world int) int {
	if c.aligned {
		return world
	}
	return c.peers.Rank(world)
}

// Member reports whether a world rank is one that messages of c come from.
func (c *Comm) Member(world int) bool {
	return c.aligned && world >= 0 && world < c.peers.Size() || !c.aligned && c.peers.Rank(world) >= 0
}

func (c *Comm) isInter() bool { return c.peers != c.group }

// usable says why nothing can be done with c, or returns nil.
func (c *Comm) usable() error {
	if c.freed.Load() {
		return fmt.Errorf("%w; make it last longer, or Dup it for whom outlives it", ErrFreed)
	}
	return nil
}

func (c *Comm) checkSend(dst, tag int) error {
	if err := c.usable(); err != nil {
		return err
	}
	if dst != ProcNull && (dst < 0 || dst >= c.peers.Size()) {
		return fmt.Errorf("%w: %d, communicator %s has ranks 0 to %d", ErrRank, dst, c.Name(), c.peers.Size()-1)
	}
	if tag < 0 || tag > MaxTag {
		return fmt.Errorf("%w: %d, tags are 0 to %d", ErrTag, tag, MaxTag)
	}
	return nil
}

func (c *Comm) checkRecv(src, tag int) error {
	if err := c.checkAsserted(src, tag); err != nil {
		return err
	}
	if src == AnySource {
		src = ProcNull
	}
	if tag == AnyTag {
		tag = 0
	}
	return c.checkSend(src, tag)
}

// Name returns the communicator's name for people, "world" or "world dup 2"
// unless SetName gave it another (MPI-4.1, section 7.8).
func (c *Comm) Name() string { return *c.label.Load() }

// SetName gives c a name for people, which errors then use. It is local: other
// ranks may name theirs otherwise (MPI-4.1, section 7.8).
func (c *Comm) SetName(name string) { c.label.Store(&name) }
