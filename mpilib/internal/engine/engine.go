package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// The wildcards of a receive or a probe.
const (
	AnySource = protocol.AnySource
	AnyTag    = protocol.AnyTag
)

var (
	// ErrTruncate fails a receive whose message is longer than its buffer.
	ErrTruncate = protocol.ErrTruncate
	// ErrProcFailed fails an operation that needs a failed process.
	ErrProcFailed = errors.New("process failed")
	// ErrFinalized fails an operation after this engine's end, or its peer's.
	ErrFinalized = protocol.ErrFinalized
)

// Config says which process of which job the engine serves.
type Config struct {
	Rank, Size int // of the world that the program sees

	// Spares is how many of Size, the highest ones, are numbers of processes that start later, or never. A
	// process with such a number connects to the others by itself: a receive from any source looks for none.
	Spares int

	Replication

	// Unexpected bounds the bytes that each peer may have here, or under way, in
	// messages without a posted receive; at least 64 KiB. Each message counts 64
	// bytes more than its payload.
	Unexpected int

	// MaxUnexpected is how far that bound may grow for a peer behind a path with a larger
	// bandwidth-delay product. A value up to Unexpected keeps it fixed.
	MaxUnexpected int

	// SharedMemory sends messages between processes of one node through shared memory
	// where the system permits it.
	SharedMemory bool

	// Connect returns nil once Attach was called for the process, or why no link could be made.
	// The engine calls it from its own goroutines, once for each peer.
	Connect func(ctx context.Context, process int) error

	// Unallocated reports whether no process can have created a context yet. The engine calls it
	// with its lock held. nil: every context is taken to exist.
	Unallocated func(context uint32) bool

	// OnEvent receives the engine's events, one at a time, on a goroutine of the engine. It
	// may call the engine. nil drops them.
	OnEvent func(Event)
}

// An Engine moves the messages of one process. Safe for concurrent use.
type Engine struct {
	cfg Config

	mu         sync.Mutex
	core       protocol.Core
	effects    []protocol.Effect // memory for the next list of the core's effects
	dispatches []*peer           // peers with queued envelopes to send
	peers      []*peer           // by process; nil for this one
	remote     int               // how many of them have a link
	arrived    chan struct{}

	freeRequests []*Request // Requests for reuse; see handle.go
	freeAny      *anyOf     // for reuse; nil: none

	rings   rings
	sharing sharingCalls
	copies  copies

	replicas *replicas // nil: ranks have one process each

	// See failure.go, event.go and seek.go.
	dead    []int // failed world ranks, in the order in which this process learned of them
	failed  []int // failed processes, likewise
	outcast bool  // others consider this process failed
	parted  bool  // Goodbye has waited for all that have links

	events eventQueue
	seeker seeker

	idle idleWatch

	maxAnswers int // the constant, but in tests

	ctx    context.Context // of every goroutine of the engine; Close cancels it
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// Replication says which of the processes of a rank an engine serves, and how they act as one: see package
// replica. The zero Replication is that of a rank with one process. Replica c of rank k is process c*Size + k: links,
// their peers and the failures that engines report to each other are of processes, all else is of ranks.
type Replication struct {
	Replica, Replicas int
	Newcomers         int // process numbers from Size*Replicas on, of processes that come to take the place of lost ones
	Number            int // of this process, if it is one of those; 0: it is not
	Table             replica.Table
	SendDeterministic bool
	MaxKept           int                        // bytes; see replica.Config
	InOrder           func(context uint32) bool  // contexts in which the program itself sends; nil: none
	Kinds             []string                   // names of the kinds of points, for reports
	Site              func() (call, line string) // what the program called of the library, and where, for reports; nil: unknown. It waits for nothing

	// Expelled, if not nil, is called once the other processes take this one for failed: it must
	// end without further output, since another one goes on in its place. It may be called with the
	// engine's lock held, and need not return. Without it all calls fail.
	Expelled func()
}

// process returns the number of the engine's process, and processes how many there are.
func (c *Config) process() int { return max(c.Replica*c.Size+c.Rank, c.Number) }

func (c *Config) processes() int { return c.Size*max(1, c.Replicas) + c.Newcomers }

// A Group is the processes of a communicator.
type Group interface {
	// Member reports whether a world rank is in the group.
	Member(world int) bool

	// Whole reports whether transfers need all members, as those of a collective call
	// do: then the failure of any member ends them.
	Whole() bool

	// Acknowledged reports whether the program has acknowledged a member's failure, so
	// that receives from any source can be waited for again.
	Acknowledged(world int) bool
}

// New returns an engine without links. Close ends it.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg, arrived: make(chan struct{}), idle: idleWatch{start: make(chan struct{}, 1)}, maxAnswers: maxAnswers}
	core := protocol.Config{Rank: cfg.Rank, Ranks: cfg.Size, Unexpected: cfg.Unexpected, MaxCredit: cfg.MaxUnexpected, Unallocated: cfg.Unallocated}
	if cfg.Replicas > 1 {
		e.replicas = newReplicas(e)
		core.Replica, e.cfg.SharedMemory = e.replicas.process, false
		core.Unallocated = nil // a replica of this rank may be ahead, and have made any
	}
	e.core.Init(core, cfg.processes())
	e.sharing, e.seeker.e, e.events.e = systemSharing, e, e
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.rings.init(e)
	e.peers = make([]*peer, cfg.processes())
	for q := range e.peers {
		if q != cfg.process() {
			e.peers[q] = newPeer(e, q)
		}
	}
	return e
}

// Rank returns the process's rank in the world.
func (e *Engine) Rank() int { return e.cfg.Rank }

// Size returns how many ranks the world has.
func (e *Engine) Size() int { return e.cfg.Size }

// Attach hands the engine a link, which the engine owns from then on. It closes a second
// link to the same peer, and one that comes when Goodbye has returned, or after Close.
func (e *Engine) Attach(l *link.Link) {
	e.mu.Lock()
	if e.parted || e.ctx.Err() != nil { // Close waits for work, to which nothing may be added any more
		e.mu.Unlock()
		e.rejectLink(l)
		return
	}
	defer e.mu.Unlock()
	process := int(l.Peer.Rank)
	if process >= len(e.peers) || e.peers[process] == nil || e.peers[process].transport.connected() || e.peers[process].proto.Failed != nil {
		e.work.Go(func() { e.rejectLink(l) })
		return
	}
	if e.remote == 0 {
		e.work.Go(e.watchIdle)
	}
	e.remote++
	e.peers[process].attach(l)
}

// FreeContext drops a context that no process will use any more, with its messages.
func (e *Engine) FreeContext(id uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.FreeContext(id)
	for _, p := range e.peers {
		if p != nil {
			p.slots.free(id)
		}
	}
	e.carryOut()
}

// wakeProbes wakes pending probes to look again. mu is held.
func (e *Engine) wakeProbes() {
	close(e.arrived)
	e.arrived = make(chan struct{})
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a wake-up is pending
	}
}
