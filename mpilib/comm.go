package mpilib

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

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
	rank    int          // of this process in group
	group   *group.Group // the processes on this side
	peers   *group.Group // whom the ranks of messages name: group, or the remote group
	aligned bool         // ranks of peers are world ranks
	context uint32       // of point-to-point messages, the first of contextsPerComm

	label   atomic.Pointer[string]
	freed   atomic.Bool
	handler atomic.Pointer[ErrorHandler]

	mu    sync.Mutex
	calls int32 // collective calls begun; the tag of the next one's messages
}

// newComm returns the intracommunicator of the processes of g, of which this
// one is a member.
func newComm(w *World, name string, g *group.Group, context uint32) *Comm {
	c := &Comm{world: w, rank: g.Rank(w.engine.rank), group: g, peers: g, context: context}
	c.aligned = isAligned(g)
	c.label.Store(&name)
	return c
}

// isAligned reports whether every rank of g is its world rank.
func isAligned(g *group.Group) bool {
	all, err := group.Range(0, g.Size())
	return err == nil && group.Compare(all, g) == group.Identical
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

// Dup returns a communicator of the same processes in the same order
// (MPI_Comm_dup). A collective call.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	call, err := c.nextCall()
	if err != nil {
		return nil, c.called("Dup", err)
	}
	id, err := agree(ctx, call, terms{kind: callDup})
	if err != nil {
		return nil, c.called("Dup", err)
	}
	return c.child(nameOf(c, "dup", id), c.group, id), nil
}

// child returns a new communicator that inherits what c hands on to all
// (MPI-4.1, section 9.3).
func (c *Comm) child(name string, g *group.Group, id uint32) *Comm {
	made := newComm(c.world, name, g, id)
	made.handler.Store(c.handler.Load())
	return made
}

// nameOf is the name of a communicator made from c: the same on all ranks and
// on no two communicators.
func nameOf(c *Comm, how string, id uint32) string {
	return fmt.Sprintf("%s %s %d", c.Name(), how, id/contextsPerComm)
}

// Split returns a communicator of the processes that gave the same colour,
// ordered by key and, where keys are equal, by rank in c (MPI_Comm_split). It
// returns nil to those whose colour is Undefined. A collective call.
func (c *Comm) Split(ctx context.Context, colour, key int) (*Comm, error) {
	call, err := c.nextCall()
	if err != nil {
		return nil, c.called("Split", err)
	}
	made, err := c.split(ctx, call, terms{kind: callSplit}, colour, key)
	return made, c.called("Split", err)
}

func (c *Comm) split(ctx context.Context, call *collectiveCall, t terms, colour, key int) (*Comm, error) {
	if colour < 0 && colour != Undefined {
		t.fault = fmt.Errorf("%w: colour %d is negative and not Undefined", ErrArg, colour)
	}
	id, err := agree(ctx, call, t)
	if err != nil {
		return nil, err
	}
	all, err := allgather(ctx, call, [2]int64{int64(colour), int64(key)})
	if err != nil || colour == Undefined {
		return nil, err
	}
	choices := make([]group.Choice, len(all))
	for r, one := range all {
		choices[r] = group.Choice{Colour: int(one[0]), Key: int(one[1])}
	}
	g, err := group.SplitOff(c.group, choices, colour)
	if err != nil {
		return nil, err
	}
	// Communicators of one Split share their context: no process is in two.
	return c.child(fmt.Sprintf("%s colour %d", nameOf(c, "split", id), colour), g, id), nil
}
