// Package plan knows by what the collective calls of a communicator choose their
// algorithms, alike on all ranks: where these run, what links have measured between them,
// what hints and rank 0's environment force, and whether all share a buffer.
//
// It knows the ranks by Comm and Call, and leaves the choice itself to package collectives.
// Its state is in the communicators' Sequences, and in the shared buffers.
package plan

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Config is what a process brings to the plans of all its communicators.
type Config struct {
	Here    func() overlay.NodeID // where it runs; zero: nobody says
	Orders  Orders
	Explain io.Writer   // where choices of algorithms are told; nil: nowhere
	Shares  func() bool // whether it makes calls over shared buffers
}

// Comm is the communicator of a plan.
type Comm interface {
	Name() string
	Rank() int
	Size() int
	Config() *Config
	Ways() []Way              // to ranks that this process has links with
	Refused(ctx uint32) error // why calls in a context are in vain, or nil
}

// Way is what a link has measured of the way to a rank; 0 is not known.
type Way struct {
	To   int
	RTT  float64 // seconds
	Rate float64 // bytes a second
}

// Call is a collective call that makes a plan.
type Call interface {
	collectives.Comm
	Rank() int
	Size() int
	Number() uint64                  // among the communicator's, from 1
	Context() uint32                 // of its messages
	UsePlanner(*collectives.Planner) // Planner returns it from then on
}

// A Plan is what a communicator's calls choose their algorithms by, alike on all ranks.
// Each call has that of its place in the order of calls, so that calls that go on by
// themselves choose the same everywhere, whenever they come to it. A new one begins with
//
//   - the first call of a communicator that starts anew: all tell where they are and,
//     if they are at several sites, what their links have measured;
//   - calls 64, 4096 and 262144, if they are: links know more by then;
//   - SetInfo: the same, but for the algorithms that are forced;
//   - call 16, if it is: those that are all on one node have a shared buffer from then on;
//   - the next call, where an algorithm over shared memory is forced: the same;
//   - a communicator that all of another have made: as that one's.
//
// What ranks tell each other is a part of the call that begins the plan, and the calls
// behind it wait for that.
type Plan struct {
	comm   Comm
	derive func(*snapshot) *snapshot // makes it of the one before; nil: the ranks agree on it
	hint   string                    // algorithms that the communicator's hints force, if nothing is before
	once   sync.Once
	done   chan struct{} // closed when the rest is set

	snapshot     *snapshot
	planner      *collectives.Planner
	sharedBuffer *SharedBuffer // nil: there is none
	err          error

	mu     sync.Mutex // guards the rest
	before *Plan      // what it goes on from, until it is done; nil: nothing
}

// comparisons are the calls with which ranks compare anew what links have measured.
var comparisons = []int32{FirstComparison, 4096, 262144}

// FirstComparison is the first of them.
const FirstComparison = 64

// Sequence is the plans of a communicator's calls. Who has it guards it by a lock.
type Sequence struct {
	last   *Plan  // of the next call; nil: that makes one
	forced string // algorithms that hints force
	seeks  bool   // the next call makes one: a shared buffer is due because an algorithm over it is forced
}

// Forced returns the algorithms that hints force.
func (s *Sequence) Forced() string { return s.forced }

// Last returns the plan of the next call, nil if that makes one.
func (s *Sequence) Last() *Plan { return s.last }

// Of returns the plan of a call, and the one that the call has to make, if any.
func (s *Sequence) Of(c Comm, number int32) (p, begins *Plan) {
	switch {
	case s.last == nil:
		first := &Plan{comm: c, hint: s.forced, done: make(chan struct{})}
		if alone := unplaced(c, s.forced); c.Size() == 1 || c.Config().Here().Name == "" && !seeks(c, alone) {
			first.derive = func(*snapshot) *snapshot { return alone }
		} else {
			begins = first
		}
		s.last = first
	case s.seeks || begin(c, number):
		s.seeks = false
		begins = &Plan{comm: c, before: s.last, done: make(chan struct{})}
		s.last = begins
	}
	return s.last, begins
}

// begin reports whether a call makes a plan because of its number.
func begin(c Comm, number int32) bool {
	return (number == SharedBufferAfter && c.Size() <= shm.MaxSharedBufferRanks || slices.Contains(comparisons, number)) && c.Size() > 1
}

// unplaced returns what is known where nobody says where ranks are, and all have the same
// environment: they are at one place.
func unplaced(c Comm, hint string) *snapshot { return &snapshot{orders: c.Config().Orders, hint: hint} }

// seeks reports whether ranks that know this look for a shared buffer without waiting for the call
// after which others do: an algorithm is forced that needs one.
func seeks(c Comm, o *snapshot) bool {
	return c.Size() > 1 && c.Size() <= shm.MaxSharedBufferRanks && o.forcesSharedMemory()
}

// goOn has c's calls go by what a plan makes known.
func (s *Sequence) goOn(c Comm, from *Plan, derive func(*snapshot) *snapshot) {
	s.last = &Plan{comm: c, before: from, derive: derive, done: make(chan struct{})}
}

// Force has the calls of c from now on carried out by the algorithms of a list, and others
// as before.
func (s *Sequence) Force(c Comm, list string) {
	if s.forced == list {
		return
	}
	s.forced = list
	if s.last != nil {
		s.goOn(c, s.last, func(o *snapshot) *snapshot { return o.forcing(list) })
		s.seeks = seeks(c, &snapshot{hint: list})
	}
}

// GoOnFrom has c begin with what the ranks know that made it in a call of that plan: c has
// some of the processes of whole.
func (s *Sequence) GoOnFrom(c Comm, from *Plan, whole, some *group.Group) {
	s.goOn(c, from, func(o *snapshot) *snapshot { return o.among(whole, some) })
	select {
	case <-from.done: // always: the call has had it
		s.seeks = from.err == nil && seeks(c, &snapshot{orders: from.snapshot.orders})
	default:
	}
}

// Get returns when the plan is made; by call, if begins is this plan.
func (p *Plan) Get(ctx context.Context, call Call, begins *Plan) error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	p.mu.Lock()
	before := p.before
	p.mu.Unlock()
	var o *snapshot
	var known *SharedBuffer
	if before != nil {
		if err := before.Get(ctx, call, begins); err != nil {
			return err
		}
		if o = before.snapshot; before.comm == p.comm {
			known = before.sharedBuffer
		}
	}
	switch {
	case p.derive != nil:
		p.once.Do(func() { p.set(p.derive(o), known, nil) })
	case begins == p:
		p.once.Do(func() { p.set(agree(ctx, call, p, o, known)) })
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for an earlier call on %s, with which its ranks tell where they are: %w", p.comm.Name(), context.Cause(ctx))
	}
}

func (p *Plan) set(o *snapshot, b *SharedBuffer, err error) {
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

// Planner returns this rank's, and SharedBuffer that of the ranks, nil if they have none;
// Get has returned.
func (p *Plan) Planner() *collectives.Planner { return p.planner }

// SharedBuffer is explained with Planner.
func (p *Plan) SharedBuffer() *SharedBuffer { return p.sharedBuffer }

// Places returns where the ranks run, if they have told each other; Get has returned.
func (p *Plan) Places() []overlay.NodeID { return p.snapshot.places }
