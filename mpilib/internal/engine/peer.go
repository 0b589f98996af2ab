package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/wire"
)

// peer is this process's state of another process of the world. The engine's lock guards
// all of it but what the holder of a token owns.
//
// States: no link -> link, after the first message or when the peer dials -> failed, or
// gone after the peer's goodbye. Both end states are final.
type peer struct {
	e       *Engine
	process int
	rank    int // of the process

	transport    transport
	shm          sharedMemory
	connecting   bool
	leftBefore   bool // it had left when this process first connected to it; others may report that it has failed
	notesAwaited bool // the owner waits for notes of the peer
	proto        protocol.Peer
	slots        slots

	in      incoming // owned by the holder of the reading token
	taken   []uint32 // the sends of which the peer needs no more, and to which the link may still refer
	goodbye goodbyeState

	envelopes        uint32 // received, for checkReplies
	notes, noteBytes int    // not delivered to the owner yet
}

// goodbyeState is the state of this process's goodbye to a peer.
type goodbyeState struct {
	sent     bool
	done     chan struct{} // closed when the peer has read everything sent to it, or never will
	isDone   bool          // done is closed
	byPeer   bool          // the peer confirmed it before the link ended
	received bool          // the peer's own has come
}

func newPeer(e *Engine, process int) *peer {
	p := &peer{e: e, process: process, goodbye: goodbyeState{done: make(chan struct{})}}
	p.transport.link.init(e.ctx, &e.mu, &e.idle, &p.proto, p)
	p.transport.proto = &p.proto
	p.transport.ring = ringTransport{link: &p.transport.link, rings: &e.rings}
	p.transport.link.indirect = e.replicas != nil
	p.slots.p, p.transport.values = p, &p.slots.values
	e.core.AddPeer(&p.proto, process)
	p.rank = p.proto.Rank
	return p
}

// String names the peer in errors.
func (p *peer) String() string {
	if p.e.cfg.Replicas > 1 {
		return p.e.replicas.layout().Name(p.process)
	}
	return fmt.Sprintf("rank %d of the world", p.rank)
}

// attach gives the peer its link. mu is held, and may be released.
func (p *peer) attach(l *link.Link) {
	p.transport.link.attach(l)
	l.Conn.SetUser(&p.transport)
	p.e.replicas.requestLinks(p.rank)
	p.resize()
	p.giveCredit(true)
	p.sendHistory()
	if p.slots.used() {
		l.BoundUnsent(maxUnsentSlots)
	}
	p.transport.link.wakeReader()
	p.e.work.Go(p.transport.link.reader)
	p.startSharing()
	p.transport.dispatch(false)
}

// wantLink starts to connect, once. mu is held.
func (p *peer) wantLink() {
	if p.transport.connected() || p.connecting {
		return
	}
	p.connecting = true
	p.e.work.Go(func() {
		if err := p.e.cfg.Connect(p.e.ctx, p.process); err != nil {
			p.e.mu.Lock()
			defer p.e.mu.Unlock()
			p.connectFailed(err)
		}
	})
}

// queueControl queues an envelope without a message. mu is held.
func (p *peer) queueControl(env wire.Envelope) {
	if p.proto.Failed == nil {
		p.transport.send(env, nil)
	}
}

func (p *peer) carryOut() { p.e.carryOut() }

// fail ends the peer and fails every operation that needs it with err. mu is held, and may be released at the end.
func (p *peer) fail(err error) {
	if p.proto.Failed != nil {
		return
	}
	why := err
	if p.proto.Gone {
		// A peer closes its end of the link after its goodbye: that is no failure, but
		// messages still to be sent cannot be delivered.
		why = p.proto.GoodbyeError()
	}
	p.claimAll(why)
	p.transport.fail(why)
	p.slots.fail(why)
	p.taken = nil
	p.abandonCopies()
	p.proto.Lost(why, p.transport.link.reading.busy)
	defer p.e.carryOut() // which may release mu: others that come meanwhile find all that follows
	p.confirm()
	p.transport.link.close()
	if p.transport.fromRing {
		p.e.rings.remove(p)
	}
	switch {
	case p.e.replicas != nil: // any failure counts: others serve the same ranks
		if p.e.ctx.Err() == nil && !p.proto.Gone {
			p.e.announceFailure(p)
		}
		return
	case p.e.core.Closed() == nil && !p.proto.Gone && errors.Is(err, ErrProcFailed):
		p.e.announceFailure(p)
	}
	p.e.events.addLost(p.rank)
}

// goodbyeReceived handles the peer's goodbye: the peer neither sends nor receives any more. mu is held.
func (p *peer) goodbyeReceived() {
	p.claimAll(p.proto.GoodbyeError())
	p.proto.GoodbyeReceived()
	p.slots.fail(p.proto.GoodbyeError())
	p.e.carryOut()
	if p.e.replicas != nil {
		p.e.replicas.processLeft(p)
		return
	}
	p.e.events.addLost(p.rank)
}

func (p *peer) confirm() {
	if !p.goodbye.isDone {
		p.goodbye.isDone = true
		close(p.goodbye.done)
	}
}

// linkError describes the end of the peer's link.
func (p *peer) linkError(doing string, cause error) error {
	l := p.transport.link.l
	where := ""
	if l.Path.Peer.Name != "" {
		where = " on " + l.Path.Peer.String()
	}
	return fmt.Errorf("%v%s: %w: the link (%v) broke while %s: %w",
		p, where, ErrProcFailed, l.Path, doing, l.Explain(cause))
}

// LinkState is a peer's link and its traffic.
type LinkState struct {
	Rank    int
	Replica int // of the rank
	Link    *link.Link
	Shared  bool  // messages go through shared memory, in both directions
	Reason  error // why they do not, between processes of one node
	protocol.Traffic
}

// Links returns the links that exist, by process. Those to processes that are no replica of a rank, or no longer, are left out.
func (e *Engine) Links() []LinkState {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []LinkState
	for _, p := range e.peers {
		if p == nil || !p.transport.connected() {
			continue
		}
		if seat := e.replicas.seatOf(p); seat.Rank != replica.Unseated {
			all = append(all, LinkState{Rank: seat.Rank, Replica: seat.Replica, Link: p.transport.link.l, Shared: p.transport.shared(), Reason: p.shm.reason, Traffic: p.proto.Traffic})
		}
	}
	return all
}

// Goodbye waits until every peer has read all messages to it: a goodbye follows the last
// message on each link, and the peer's engine confirms it without its program. It also waits
// for peers without a link that messages are queued for. After it no operation can be started,
// and pending receives have failed.
func (e *Engine) Goodbye(ctx context.Context) error {
	e.mu.Lock()
	if e.core.Closed() != nil {
		defer e.mu.Unlock()
		return e.replicas.endError()
	}
	e.core.Close(fmt.Errorf("rank %d: %w", e.cfg.Rank, ErrFinalized))
	e.carryOut()
	var errs []error
	var ended error
	if e.replicas != nil {
		ended = e.replicas.end(ctx)
		errs = append(errs, ended)
	}
	e.drain(ctx)
	for _, p := range e.peers {
		if p != nil {
			p.slots.fail(e.core.Closed()) // no value may follow the goodbye
		}
	}
	var silent []int
	for open := partFrom(e.peers); len(open) > 0; open = partFrom(e.peers) { // links may come meanwhile
		e.rings.serve()
		e.mu.Unlock()
		for _, p := range open {
			select {
			case <-p.goodbye.done:
			case <-ctx.Done():
			}
			parted, err := p.goodbyeDone()
			switch {
			case !parted:
				silent = append(silent, p.rank)
			case err != nil:
				errs = append(errs, err)
			}
		}
		e.mu.Lock()
	}
	e.parted = true // a later link is rejected, which says goodbye
	if ended == nil {
		errs = append(errs, e.replicas.endError()) // others may have said last what they received
	}
	e.mu.Unlock()

	if len(silent) > 0 {
		errs = append(errs, fmt.Errorf("%s not confirmed that everything was read: %w", protocol.DescribeRanks(silent), ctx.Err()))
	}
	return errors.Join(errs...)
}

// partFrom sends a goodbye to each peer that has a link, or is to get one for what is queued, and has been sent none yet, and
// returns these peers. One that has said goodbye itself confirms it, too, if it is not over yet: to wait for the end of its
// link would be to wait until all others have confirmed to it, and several processes could wait so in a circle. mu is held.
func partFrom(peers []*peer) (open []*peer) {
	for _, p := range peers {
		if p == nil || p.goodbye.sent || p.proto.Failed != nil || !p.transport.connected() && !p.transport.queued() && p.proto.Backlog() == 0 {
			continue // no goodbye is needed
		}
		p.goodbye.sent = true
		open = append(open, p)
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeGoodbye})
		p.transport.dispatch(false)
	}
	return open
}

// drain waits until every announced message is taken or never will be: buffered sends are
// complete before their messages are delivered. mu is held, and released meanwhile.
func (e *Engine) drain(ctx context.Context) {
	e.wakeReaders()
	e.rings.serve()
	for ctx.Err() == nil && slices.ContainsFunc(e.peers, (*peer).hasPendingSends) {
		arrived := e.arrived
		e.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
}

// hasPendingSends reports whether messages wait for a CTS, or are to be announced.
func (p *peer) hasPendingSends() bool {
	return p != nil && p.proto.Failed == nil && !p.proto.Gone && p.proto.Unfinished() > 0
}

// goodbyeDone reports whether the peer has answered the goodbye, or cannot any more, and
// what went wrong with it.
func (p *peer) goodbyeDone() (bool, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.goodbye.isDone && p.proto.Failed != nil && !p.proto.Gone && !p.goodbye.byPeer && p.e.replicas == nil && p.e.cfg.Spares == 0 { // who has replicas or is replaced may die at any time
		return true, p.proto.Failed
	}
	return p.goodbye.isDone || p.proto.Gone, nil
}

// Close ends every link and goroutine of the engine and returns when they are
// gone. Requests that are not complete fail.
func (e *Engine) Close() {
	e.cancel()
	e.mu.Lock()
	e.core.Close(fmt.Errorf("rank %d: %w", e.cfg.Rank, ErrFinalized))
	e.carryOut()
	e.replicas.close(e.core.Closed())
	for _, p := range e.peers {
		if p != nil {
			p.fail(e.core.Closed())
			p.transport.link.unwatch()
		}
	}
	e.rings.requestSweep()
	e.mu.Unlock()
	e.work.Wait()
	e.unmap()
	for _, p := range e.peers {
		if p == nil || !p.transport.connected() {
			continue
		}
		if done := p.transport.link.l.Done(); done != nil {
			<-done // bounded by the link
		}
	}
}
