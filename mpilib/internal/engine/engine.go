package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
)

// The wildcards of a receive or a probe.
const (
	AnySource = int(match.AnySource)
	AnyTag    = int(match.AnyTag)
)

var (
	// ErrTruncate is that of a receive whose message is longer than its buffer.
	ErrTruncate = errors.New("message is longer than the receive buffer")
	// ErrProcFailed is that of what needs a process that is lost.
	ErrProcFailed = errors.New("process failed")
	// ErrFinalized is that of what needs this engine, or a peer's, after its end.
	ErrFinalized = errors.New("world is finalized")
)

// Config says which process of which job the engine serves.
type Config struct {
	Rank, Size int

	// Unexpected is how many bytes each peer may have here, or on its way, in
	// messages that found no receive; 64 KiB at least. For each message 64
	// bytes more are counted.
	Unexpected int

	// MaxUnexpected is what that may grow to for a peer at the end of a path on which more is
	// under way; no more than Unexpected: it stays.
	MaxUnexpected int

	// SharedMemory has messages to processes of the same node go through shared memory
	// where the system lets them.
	SharedMemory bool

	// Connect returns when Attach was called for the rank, or why not. It is called
	// from goroutines of the engine, once for each peer.
	Connect func(ctx context.Context, rank int) error

	// Unmade reports whether a context is one that no process can have made. It is called
	// with the engine's lock held. nil: nothing is known of any.
	Unmade func(context uint32) bool

	// OnNews is told of news, one after the other, by a goroutine of the engine. It
	// may call the engine. nil: nobody is.
	OnNews func(News)
}

// An Engine moves the messages of one process. Safe for concurrent use.
type Engine struct {
	cfg Config

	mu       sync.Mutex
	contexts map[uint32]*msgContext
	made     map[uint32]bool // contexts of communicators that this process has
	latest   struct {        // of those that contextOf was asked for
		id uint32
		c  *msgContext
	}
	peers        []*peer // by world rank; nil for this process
	remote       int     // how many of them have a link
	arrived      chan struct{}
	selfHeld     int        // bytes of copied messages to self
	extraCredit  int        // what is left of extraCredit
	freeRequests []*Request // of Handles that are over; see handle.go
	freeAny      *anyOf     // that nobody uses; nil: none
	closed       error

	rings   rings
	sharing sharingCalls
	copies  []*transfer // zero-copy messages coming in, of which pieces are to be copied
	helps   []help      // zero-copy messages going out, of which pieces may be

	// See failure.go and seek.go.
	dead    []int             // world ranks that have failed, in the order in which that was learned
	outcast bool              // others take this process for failed
	revokes map[uint32]uint32 // first context: how many from there on
	revoked map[uint32]bool

	revokedAhead int // how many of these were not made here

	news    []News
	telling bool
	sought  []sought
	seeking bool

	idleWatched bool // watchIdle's clock runs
	idleWake    chan struct{}

	ctx    context.Context // of everything that is started here; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// A msgContext is what one communicator's messages, point-to-point or
// collective, have to themselves.
type msgContext struct {
	table match.Table[*Request, *message]
	by    *peer // who sent here before it was made; nil: nobody, or it is made
}

// A Group is the processes of a communicator.
type Group interface {
	// Member reports whether a world rank is in the group.
	Member(world int) bool

	// Whole reports whether its transfers need all members, as those of a
	// collective call do: the failure of any ends them.
	Whole() bool

	// Acknowledged reports whether a member's failure keeps no receive from any
	// source from being waited for any more.
	Acknowledged(world int) bool
}

// New returns an engine without links. Close ends it.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg, contexts: map[uint32]*msgContext{}, made: map[uint32]bool{}, arrived: make(chan struct{}), idleWake: make(chan struct{}, 1)}
	e.cfg.Unexpected = max(cfg.Unexpected, firstCredit)
	e.extraCredit = maxExtraCredit
	e.sharing = systemSharing
	e.rings.init(&e.mu)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.peers = make([]*peer, cfg.Size)
	for r := range cfg.Size {
		if r != cfg.Rank {
			e.peers[r] = newPeer(e, r)
		}
	}
	return e
}

// Rank returns the process's rank in the world.
func (e *Engine) Rank() int { return e.cfg.Rank }

// Size returns how many processes the world has.
func (e *Engine) Size() int { return e.cfg.Size }

// Attach gives the engine a link, which it owns from then on. A second one to
// the same peer, or one that comes after the end, is closed.
func (e *Engine) Attach(l *link.Link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rank := int(l.Peer.Rank)
	if e.ctx.Err() != nil || rank >= e.cfg.Size || e.peers[rank] == nil || e.peers[rank].link != nil || e.peers[rank].failed != nil {
		e.work.Go(func() { e.rejectLink(l) })
		return
	}
	if e.remote == 0 {
		e.work.Go(e.watchIdle)
	}
	e.remote++
	e.peers[rank].attach(l)
}

// contextOf returns what a context has. It may be one that this process will
// only create: a peer can be ahead. mu is held.
func (e *Engine) contextOf(id uint32) *msgContext {
	if e.latest.id == id && e.latest.c != nil {
		return e.latest.c
	}
	c := e.contexts[id]
	if c == nil {
		c = new(msgContext)
		e.contexts[id] = c
	}
	e.latest.id, e.latest.c = id, c
	return c
}

// Forget drops a context that no process will use any more, with the messages
// in it.
func (e *Engine) Forget(id uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.made, id)
	c := e.contexts[id]
	if c == nil {
		return
	}
	c.table.Messages(func(m *match.Message[*message]) bool {
		c.table.Remove(m)
		e.drop(m.Owner)
		return true
	})
	if c.table.Empty() {
		if c.by != nil {
			c.by.arrivals.ahead--
		}
		delete(e.contexts, id)
		e.latest.c = nil
	}
}

// wakeProbes has those who wait for a message look again. mu is held.
func (e *Engine) wakeProbes() {
	close(e.arrived)
	e.arrived = make(chan struct{})
}

// sourceError says why no message can come from source any more, or returns nil.
// mu is held.
func (e *Engine) sourceError(source int) error {
	switch {
	case e.closed != nil:
		return e.closed
	case source == e.cfg.Rank || source == AnySource:
		return nil
	}
	p := e.peers[source]
	if p.failed == nil && p.gone {
		return p.goodbyeError()
	}
	return p.failed
}

// failReceives completes every posted receive that the end of a peer makes
// hopeless. mu is held.
func (e *Engine) failReceives(p *peer, err error) {
	for _, c := range e.contexts {
		c.table.Posted(func(m *match.Receive[*Request]) bool {
			r := m.Owner
			if r.peer == p.rank {
				c.table.Withdraw(m)
				r.finish(err)
			}
			return true
		})
	}
	e.wakeProbes()
}

// tick is how long a link may be left alone before the peer's own goroutine reads.
const tick = time.Millisecond

// watchIdle sees to links that nobody reads, while there are any.
func (e *Engine) watchIdle() {
	clock := time.NewTimer(tick)
	defer clock.Stop()
	for {
		select {
		case <-e.idleWake:
		case <-e.ctx.Done():
			return
		}
		for again := true; again; {
			clock.Reset(tick)
			select {
			case <-clock.C:
			case <-e.ctx.Done():
				return
			}
			again = e.checkIdle()
		}
	}
}

// checkIdle has the links read, and written, that were left alone since the last look, and
// reports whether any are left to look at.
func (e *Engine) checkIdle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	again := e.checkRings()
	for _, p := range e.peers {
		if p == nil || p.link == nil || p.failed != nil {
			continue
		}
		if p.writable() {
			again = true
			if p.writing.count == p.writing.seen {
				wake(p.writing.wake)
			}
		}
		p.writing.seen = p.writing.count
		if p.reading.attended {
			continue
		}
		again = true
		if p.reading.count == p.reading.seen && !p.reading.busy {
			wake(p.reading.wake)
		}
		p.reading.seen = p.reading.count
	}
	e.idleWatched = again
	return again
}

// noteIdle is told that a link is read by nobody that stays. mu is held.
func (e *Engine) noteIdle() {
	if !e.idleWatched {
		e.idleWatched = true
		wake(e.idleWake)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake, or about to be
	}
}

func truncated(message uint64, buffer int) error {
	if message > uint64(buffer) {
		return fmt.Errorf("%w: the message has %d bytes, the buffer %d", ErrTruncate, message, buffer)
	}
	return nil
}
