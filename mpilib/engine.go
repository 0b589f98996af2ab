package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// engine moves bytes between world ranks: it matches messages with receives
// and keeps a peer for every other rank. It knows neither types nor
// communicators' groups beyond what errors and wildcards need.
//
// Lock order: mu is the only lock and is never held while reading from,
// writing to or dialling a peer, nor while a message is copied.
type engine struct {
	rank, size int
	limit      int                                       // bytes of unexpected messages for each peer
	connect    func(ctx context.Context, rank int) error // returns when attach was called for rank

	mu       sync.Mutex
	contexts map[uint32]*matcher
	peers    []*peer // by world rank; nil for this process
	wildcard int     // receives and probes that wait for AnySource
	arrived  chan struct{}
	selfHeld int   // bytes of copied messages to self
	closed   error // set by close: why nothing starts any more

	ctx    context.Context // of dials; ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup // dials, readers and writers
}

func newEngine(rank, size, limit int) *engine {
	e := &engine{rank: rank, size: size, limit: limit, contexts: map[uint32]*matcher{}, arrived: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.peers = make([]*peer, size)
	for r := range size {
		if r != rank {
			e.peers[r] = newPeer(e, r)
		}
	}
	return e
}

// matcherOf returns the context's matcher. It may be one that this process
// will only create: a peer can be ahead in a Dup. mu is held.
func (e *engine) matcherOf(context uint32) *matcher {
	m := e.contexts[context]
	if m == nil {
		m = new(matcher)
		e.contexts[context] = m
	}
	return m
}

func (e *engine) newRequest(what transfer, context uint32, buf []byte) *Request {
	r := &Request{what: what, engine: e, context: context, buf: buf, global: what.comm.global(what.peer), done: make(chan struct{})}
	r.bytes = len(buf)
	return r
}

// finish completes r. mu is held.
func (e *engine) finish(r *Request, err error) {
	if r.state == complete {
		return
	}
	r.state, r.err, r.buf = complete, err, nil
	close(r.done)
}

func (e *engine) isend(what transfer, context uint32, b []byte) *Request {
	r := e.newRequest(what, context, b)
	if r.global == e.rank {
		e.sendSelf(r)
		return r
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed != nil {
		e.finish(r, e.closed)
		return r
	}
	e.peers[r.global].enqueue(r)
	return r
}

// sendSelf matches at once. A message that nobody waits for is copied while it
// is small and there is room; otherwise the send waits for its receive.
func (e *engine) sendSelf(r *Request) {
	e.mu.Lock()
	if e.closed != nil {
		e.finish(r, e.closed)
		e.mu.Unlock()
		return
	}
	m := e.matcherOf(r.context)
	if to := m.arrive(e.rank, r.what.tag); to != nil {
		e.unpost(to)
		to.state, to.source, r.state = moving, e.rank, moving
		e.mu.Unlock()
		e.copyTo(to, &message{source: e.rank, tag: r.what.tag, data: r.buf, sender: r})
		return
	}
	msg := &message{source: e.rank, tag: r.what.tag, data: r.buf, sender: r}
	if n := len(r.buf); n < gatherBelow && e.selfHeld+heldBytes(n) <= e.limit {
		msg.data, msg.sender = slices.Clone(r.buf), nil
		e.selfHeld += heldBytes(n)
		e.finish(r, nil)
	}
	e.arrive(m, msg)
	e.mu.Unlock()
}

// arrive keeps a message until its receive comes, and tells probes. mu is held.
func (e *engine) arrive(m *matcher, msg *message) {
	m.unexpected = append(m.unexpected, msg)
	e.wakeProbes()
}

func (e *engine) wakeProbes() {
	close(e.arrived)
	e.arrived = make(chan struct{})
}

// copyTo gives receive r, which is in state moving, the message's bytes.
func (e *engine) copyTo(r *Request, msg *message) {
	n := len(msg.data)
	err := truncated(n, len(r.buf))
	if err == nil {
		copy(r.buf, msg.data)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.release(msg)
	r.source, r.tag, r.bytes = msg.source, msg.tag, n
	e.finish(r, err)
}

func truncated(message, buffer int) error {
	if message > buffer {
		return fmt.Errorf("%w: the message has %d bytes, the buffer %d", ErrTruncate, message, buffer)
	}
	return nil
}

// release returns the memory that an unexpected message was charged for, or
// completes the send that lent it. mu is held.
func (e *engine) release(msg *message) {
	switch {
	case msg.sender != nil:
		e.finish(msg.sender, nil)
	case msg.source == e.rank:
		e.selfHeld -= heldBytes(len(msg.data))
	default:
		e.peers[msg.source].release(heldBytes(len(msg.data)))
	}
}

// heldBytes is what a message kept for later is charged, headers included, so
// that a flood of empty ones is bounded too.
func heldBytes(n int) int { return n + 128 }

func (e *engine) irecv(what transfer, context uint32, b []byte) *Request {
	r := e.newRequest(what, context, b)
	e.mu.Lock()
	m := e.matcherOf(context)
	if msg := m.take(r.global, what.tag); msg != nil {
		r.state, r.source = moving, msg.source
		if msg.sender != nil {
			msg.sender.state = moving
		}
		e.mu.Unlock()
		e.copyTo(r, msg)
		return r
	}
	if err := e.hopeless(what.comm, r.global); err != nil {
		e.finish(r, err)
	} else {
		m.posted = append(m.posted, r)
		e.expect(r.global, 1)
	}
	e.mu.Unlock()
	return r
}

// hopeless says why no message can come from source any more, or returns nil.
// mu is held.
func (e *engine) hopeless(c *Comm, source int) error {
	if e.closed != nil {
		return e.closed
	}
	if source == e.rank {
		return nil
	}
	if source != AnySource {
		p := e.peers[source]
		if p.failed == nil && p.gone {
			return fmt.Errorf("rank %d of the world: %w", source, ErrFinalized)
		}
		return p.failed
	}
	for global := range c.peers.WorldRanks() {
		if global != e.rank && e.peers[global].failed != nil && !e.peers[global].gone {
			return e.peers[global].failed
		}
	}
	return nil
}

// expect counts n more receives or probes that wait for source, so that its
// reader knows whether to read past its limit. mu is held.
func (e *engine) expect(source, n int) {
	switch {
	case source == AnySource:
		e.wildcard += n
		for _, p := range e.peers {
			if p != nil && n > 0 {
				p.wakeReader()
			}
		}
	case source != e.rank:
		e.peers[source].expected += n
		if n > 0 {
			e.peers[source].wakeReader()
		}
	}
}

// unpost notes that r was taken out of its matcher. mu is held.
func (e *engine) unpost(r *Request) { e.expect(r.global, -1) }

// giveUp makes r complete soon, with err unless it completes by itself first.
func (e *engine) giveUp(r *Request, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case r.state == complete:
	case r.state == moving:
		r.giveUp = err
		e.interrupt(r)
	case !r.what.send:
		if e.matcherOf(r.context).withdraw(r) {
			e.unpost(r)
		}
		e.finish(r, err)
	case r.global == e.rank:
		e.matcherOf(r.context).withdrawSend(r)
		e.finish(r, err)
	default:
		e.peers[r.global].withdraw(r)
		e.finish(r, err)
	}
}

// interrupt wakes whoever moves r's bytes; it then finds r.giveUp. Copies
// within memory end by themselves. mu is held.
func (e *engine) interrupt(r *Request) {
	switch {
	case r.what.send && r.global != e.rank:
		e.peers[r.global].interruptWrite()
	case !r.what.send && r.source != e.rank: // source is set when its bytes start to move
		e.peers[r.source].interruptRead()
	}
}

func (e *engine) iprobe(c *Comm, src, tag int) (Status, bool, error) {
	source := c.global(src)
	e.mu.Lock()
	defer e.mu.Unlock()
	if msg := e.matcherOf(c.context).peek(source, tag); msg != nil {
		return c.status(msg.source, msg.tag, len(msg.data), 1), true, nil
	}
	for _, p := range e.peers {
		if p != nil && (source == AnySource || source == p.rank) {
			p.readOneMore()
		}
	}
	err := e.hopeless(c, source)
	if e.closed == nil && errors.Is(err, ErrFinalized) {
		err = nil // the peer has left in order: there is no message, and that is all
	}
	return Status{}, false, err
}

func (e *engine) probe(ctx context.Context, c *Comm, src, tag int) (Status, error) {
	source := c.global(src)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expect(source, 1)
	defer e.expect(source, -1)
	for {
		if msg := e.matcherOf(c.context).peek(source, tag); msg != nil {
			return c.status(msg.source, msg.tag, len(msg.data), 1), nil
		}
		if err := e.hopeless(c, source); err != nil {
			return Status{}, err
		}
		arrived := e.arrived
		e.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
		}
		e.mu.Lock()
		if ctx.Err() != nil {
			return Status{}, ctx.Err()
		}
	}
}

// fail completes every posted receive that becomes hopeless with err. With
// alsoWild those from AnySource in a communicator with source count, too.
// mu is held.
func (e *engine) fail(source int, err error, alsoWild bool) {
	for _, m := range e.contexts {
		m.posted = slices.DeleteFunc(m.posted, func(r *Request) bool {
			if r.global != source && !(alsoWild && r.global == AnySource && r.what.comm.peers.Contains(source)) {
				return false
			}
			e.unpost(r)
			e.finish(r, err)
			return true
		})
	}
	e.wakeProbes()
}
