// Package plan holds the basis on which the collective calls of a communicator choose their
// algorithms, equal on all ranks: the locations of the ranks, the measurements of links between
// them, what hints and rank 0's environment force, and whether all share a buffer.
//
// It accesses the ranks through Comm and Call, and leaves the choice itself to package collectives.
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

// Config is a process's contribution to the plans of all its communicators.
type Config struct {
	Here    func() overlay.NodeID // its location; zero if unknown
	Orders  Orders
	Explain io.Writer   // receives the choices of algorithms; nil for none
	Shares  func() bool // whether it makes calls over shared buffers

	// Replicated says that ranks have replicas. Those have different links and processors, and must send the same: so ranks
	// exchange neither measurements nor what a shared buffer needs.
	Replicated bool
}

// Comm is the communicator of a plan.
type Comm interface {
	Name() string
	Rank() int
	Size() int
	Config() *Config
	PathMeasurements() []PathMeasurement // to ranks that this process has links with
	Refused(ctx uint32) error            // returns why calls in a context must fail, or nil
}

// PathMeasurement is a link's measurement of the path to a rank; 0 is unknown.
type PathMeasurement struct {
	To   int
	RTT  float64 // seconds
	Rate float64 // bytes a second
}

// Call is a collective call that makes a plan.
type Call interface {
	collectives.Comm
	Rank() int
	Size() int
	Number() uint64                  // number among the communicator's calls, from 1
	Context() uint32                 // number used to match its messages
	UsePlanner(*collectives.Planner) // Planner returns it from then on
}

// A Plan is the basis on which a communicator's calls choose their algorithms, equal on all
// ranks. Each call has the plan of its place in the order of calls, so that nonblocking calls
// choose the same everywhere, regardless of their timing. A new one begins with
//
//   - the first call of a communicator that starts from nothing: all ranks exchange their
//     locations and, if they are at several sites, the measurements of their links;
//   - calls 64, 4096 and 262144, if they are: links have measured more by then;
//   - SetInfo: the same, except for the forced algorithms;
//   - call 16, if it is: ranks that are all on one node have a shared buffer from then on;
//   - the next call, if an algorithm over shared memory is forced: the same;
//   - a communicator created by all ranks of another: as that one's.
//
// The exchange is a part of the call that begins the plan, and later calls wait for it.
type Plan struct {
	comm   Comm
	derive func(*snapshot) *snapshot // makes it of the one before; nil: the ranks agree on it
	hint   string                    // algorithms that the communicator's hints force, if nothing is before
	once   sync.Once
	done   chan struct{} // closed when the fields below are set

	snapshot     *snapshot
	planner      *collectives.Planner
	sharedBuffer *SharedBuffer // nil for none
	err          error

	mu     sync.Mutex // guards the fields below
	before *Plan      // the plan it is based on, until it is done; nil for none
}

// comparisons are the calls with which ranks exchange new measurements of links.
var comparisons = []int32{FirstComparison, 4096, 262144}

// FirstComparison is the first of them.
const FirstComparison = 64

// Sequence is the plans of a communicator's calls. Its owner's lock guards it.
type Sequence struct {
	last              *Plan  // of the next call; nil: that call makes one
	forced            string // algorithms that hints force
	wantsSharedBuffer bool   // the next call makes one: a shared buffer is due because an algorithm over it is forced
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
		if alone := unplaced(c, s.forced); c.Size() == 1 || c.Config().Here().Name == "" && !wantsSharedBuffer(c, alone) {
			first.derive = func(*snapshot) *snapshot { return alone }
		} else {
			begins = first
		}
		s.last = first
	case s.wantsSharedBuffer || begin(c, number):
		s.wantsSharedBuffer = false
		begins = &Plan{comm: c, before: s.last, done: make(chan struct{})}
		s.last = begins
	}
	return s.last, begins
}

// begin reports whether a call makes a plan because of its number.
func begin(c Comm, number int32) bool {
	return (number == SharedBufferAfter && c.Size() <= shm.MaxSharedBufferRanks || slices.Contains(comparisons, number)) && c.Size() > 1
}

// unplaced returns the snapshot of ranks without known locations, which all have the same
// environment: they are at one place.
func unplaced(c Comm, hint string) *snapshot { return &snapshot{orders: c.Config().Orders, hint: hint} }

// wantsSharedBuffer reports whether ranks that know this look for a shared buffer without waiting for the call
// after which others do: an algorithm is forced that needs one.
func wantsSharedBuffer(c Comm, o *snapshot) bool {
	return c.Size() > 1 && c.Size() <= shm.MaxSharedBufferRanks && o.forcesSharedMemory()
}

// goOn has c's calls go by what a plan makes known.
func (s *Sequence) goOn(c Comm, from *Plan, derive func(*snapshot) *snapshot) {
	s.last = &Plan{comm: c, before: from, derive: derive, done: make(chan struct{})}
}

// Force makes later calls of c use the algorithms of a list, and choose others as before.
func (s *Sequence) Force(c Comm, list string) {
	if s.forced == list {
		return
	}
	s.forced = list
	if s.last != nil {
		s.goOn(c, s.last, func(o *snapshot) *snapshot { return o.withHint(list) })
		s.wantsSharedBuffer = wantsSharedBuffer(c, &snapshot{hint: list})
	}
}

// GoOnFrom makes c start with the knowledge of the ranks that created it in a call of that plan: c
// has some of the processes of whole.
func (s *Sequence) GoOnFrom(c Comm, from *Plan, whole, some *group.Group) {
	s.goOn(c, from, func(o *snapshot) *snapshot { return o.subset(whole, some) })
	select {
	case <-from.done: // always: the call has had it
		s.wantsSharedBuffer = from.err == nil && wantsSharedBuffer(c, &snapshot{orders: from.snapshot.orders})
	default:
	}
}

// Get returns when the plan is made; call makes it if begins is this plan.
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
	if err != nil { // a rank that failed lacks the knowledge of the others
		err = fmt.Errorf("the ranks of %s did not tell each other where they are, so that it has no collective calls: %w", p.comm.Name(), err)
	}
	p.snapshot, p.sharedBuffer, p.err = o, b, err
	p.mu.Lock()
	p.before = nil
	p.mu.Unlock()
	close(p.done)
}

// Planner returns this rank's planner, and SharedBuffer the ranks' shared buffer, nil if they have
// none; Get has returned.
func (p *Plan) Planner() *collectives.Planner { return p.planner }

// SharedBuffer is described at Planner.
func (p *Plan) SharedBuffer() *SharedBuffer { return p.sharedBuffer }

// Places returns the ranks' locations, if they have exchanged them; Get has returned.
func (p *Plan) Places() []overlay.NodeID { return p.snapshot.places }
