package mpilib

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// gatherBelow is the size from which on a message is written from the
	// caller's buffer instead of being copied behind others (about where the
	// copy starts to cost more than a system call).
	gatherBelow = 16 << 10
	batchSize   = 256 << 10 // of copied messages that are written at once
	maxGathered = 1 << 20   // bytes of copied messages that wait for one peer
)

// peer is another rank of the world as this one sees it. Everything is guarded
// by the engine's lock.
//
// Its life: no link -> (first message, or the peer dials) link -> failed, or
// gone after the peer's goodbye. Neither end leads back.
type peer struct {
	engine *engine
	rank   int

	link       *link.Link // nil before
	connecting bool
	failed     error // why nothing can be sent or received any more
	gone       bool  // it said goodbye: nothing more will come

	queue    []segment // waits for the writer, in order
	gathered int       // bytes of copied messages in queue
	spare    []byte    // memory for the next batch
	toWriter chan struct{}

	held     int  // what unexpected messages are charged
	expected int  // receives and probes that wait for this very rank
	oneMore  bool // a probe looked and found nothing: read a message
	toReader chan struct{}

	confirmed      chan struct{} // closed when it has read all we sent, or there is no one to read it
	isClosed       bool          // confirmed is
	confirmedFirst bool          // it was by the peer, before the link ended

	stats traffic
}

// traffic counts messages and their bytes, envelopes not included.
type traffic struct {
	messagesSent, bytesSent         uint64
	messagesReceived, bytesReceived uint64
}

// segment is a piece of the outgoing stream: copied bytes, then perhaps the
// buffer of a send that is still its caller's.
type segment struct {
	copied []byte
	lent   *Request
}

func newPeer(e *engine, rank int) *peer {
	return &peer{engine: e, rank: rank, toWriter: make(chan struct{}, 1), toReader: make(chan struct{}, 1), confirmed: make(chan struct{})}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake, or about to be
	}
}

func (p *peer) wakeReader() { wake(p.toReader) }

// enqueue puts r's message behind those that wait and sees to a link.
func (p *peer) enqueue(r *Request) {
	switch {
	case p.failed != nil:
		p.engine.finish(r, p.failed)
		return
	case p.gone:
		p.engine.finish(r, fmt.Errorf("rank %d of the world: %w", p.rank, ErrFinalized))
		return
	}
	p.stats.messagesSent++
	p.stats.bytesSent += uint64(len(r.buf))
	env := wire.Envelope{Kind: wire.EnvelopeMessage, Context: r.context, Tag: uint32(r.what.tag), Length: uint64(len(r.buf))}
	if len(r.buf) < gatherBelow && p.gathered+len(r.buf) < maxGathered {
		p.gather(env, r.buf)
		p.engine.finish(r, nil)
	} else {
		p.queue = append(p.queue, segment{copied: env.Append(nil), lent: r})
	}
	wake(p.toWriter)
	p.wantLink()
}

// gather copies an envelope and its message into the last batch, or a new one.
func (p *peer) gather(env wire.Envelope, b []byte) {
	n := len(p.queue)
	if n == 0 || p.queue[n-1].lent != nil || len(p.queue[n-1].copied)+wire.EnvelopeLen+len(b) > batchSize {
		p.queue = append(p.queue, segment{copied: p.spare})
		p.spare = nil
		n++
	}
	last := &p.queue[n-1]
	last.copied = append(env.Append(last.copied), b...)
	p.gathered += wire.EnvelopeLen + len(b)
}

// control sends an envelope without a message.
func (p *peer) control(kind wire.EnvelopeKind) {
	if p.failed != nil {
		return
	}
	p.gather(wire.Envelope{Kind: kind}, nil)
	wake(p.toWriter)
}

// wantLink starts to connect, once.
func (p *peer) wantLink() {
	if p.link != nil || p.connecting {
		return
	}
	p.connecting = true
	p.engine.wg.Go(func() {
		if err := p.engine.connect(p.engine.ctx, p.rank); err != nil {
			p.engine.mu.Lock()
			defer p.engine.mu.Unlock()
			if p.link == nil {
				p.fail(fmt.Errorf("rank %d of the world: %w", p.rank, err))
			}
		}
	})
}

// attach gives the peer its link. A second one, or one that comes after the
// end, is closed: package link makes one for each pair.
func (e *engine) attach(l *link.Link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rank := int(l.Peer.Rank)
	if e.ctx.Err() != nil || rank >= e.size || e.peers[rank] == nil || e.peers[rank].link != nil || e.peers[rank].failed != nil {
		l.Conn.Close()
		return
	}
	p := e.peers[rank]
	p.link = l
	e.wg.Go(p.write)
	e.wg.Go(p.read)
}

// withdraw takes a send that does not move yet out of the queue.
func (p *peer) withdraw(r *Request) {
	p.queue = slices.DeleteFunc(p.queue, func(s segment) bool { return s.lent == r })
}

// release returns n bytes of unexpected messages to the peer's limit.
func (p *peer) release(n int) {
	p.held -= n
	p.wakeReader()
}

// readOneMore lets a reader that stopped at its limit go one message further.
func (p *peer) readOneMore() {
	p.oneMore = true
	p.wakeReader()
}

// A deadline in the past makes a read or write under way return; the
// goroutine it belongs to takes the deadline back and looks what changed.
func (p *peer) interruptRead() {
	if p.link != nil {
		p.link.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

func (p *peer) interruptWrite() {
	if p.link != nil {
		p.link.Conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

// fail ends the peer: everything that needs it gets err.
func (p *peer) fail(err error) {
	if p.failed != nil {
		return
	}
	if p.gone {
		// Its end of the link closes after its goodbye: that is no failure, but
		// what was still to be sent finds no one.
		p.failed = fmt.Errorf("rank %d of the world: %w", p.rank, ErrFinalized)
	} else {
		p.failed = err
	}
	for _, s := range p.queue {
		if s.lent != nil {
			p.engine.finish(s.lent, p.failed)
		}
	}
	p.queue, p.gathered = nil, 0
	p.confirm()
	if p.link != nil {
		p.link.Conn.Close()
	}
	wake(p.toWriter)
	p.wakeReader()
	p.engine.fail(p.rank, p.failed, !p.gone)
}

// depart notes the peer's goodbye.
func (p *peer) depart() {
	p.gone = true
	p.engine.fail(p.rank, fmt.Errorf("rank %d of the world: %w", p.rank, ErrFinalized), false)
}

func (p *peer) confirm() {
	if !p.isClosed {
		p.isClosed = true
		close(p.confirmed)
	}
}

// lost describes the end of the peer's link.
func (p *peer) lost(doing string, cause error) error {
	l := p.link
	where := ""
	if l.Path.Peer.Name != "" {
		where = " on " + l.Path.Peer.String()
	}
	return fmt.Errorf("rank %d of the world%s: %w: the link (%v) broke while %s: %w",
		p.rank, where, ErrProcFailed, l.Path, doing, l.Explain(cause))
}
