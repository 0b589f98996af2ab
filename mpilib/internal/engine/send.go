package engine

import (
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// messageCost is charged for each message beside its bytes, so that a flood of
	// empty messages is bounded, too.
	messageCost = 64
	// maxPendingSends is how many sends may wait for a peer's CTS at a time.
	maxPendingSends = 4096
	// eagerShort is the eager limit on a short path, and how much of a larger message goes
	// eagerly there. Sending it takes about as long as a round trip.
	eagerShort = 64 << 10
	// maxHead is how much of a large message is sent eagerly to a peer whose receives are
	// posted before the messages: enough to cover the round trip of the CTS, and little
	// enough not to delay other messages.
	maxHead = 1 << 20
	// longRTT is from where on a peer counts as far, and farRate what a path to it is
	// thought to carry before that was measured, in bytes a second. Both are looked
	// at again after farLook messages: links change their paths.
	longRTT        = time.Millisecond
	assumedRate    = 125e6
	pathCheckEvery = 64
)

// Isend starts a send of b to world rank dst, which may be this process. b must not change
// until r is complete. hold says that the caller waits for r at once, so that it does long
// writes itself.
func (e *Engine) Isend(r *Request, g Group, ctxID uint32, dst, tag int, b []byte, mode Mode, hold bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isend(r, g, ctxID, dst, tag, b, mode, hold)
}

// isend is Isend with mu held, which may be given up.
func (e *Engine) isend(r *Request, g Group, ctxID uint32, dst, tag int, b []byte, mode Mode, hold bool) {
	r.begin(e, g, ctxID, dst, tag, b)
	r.send, r.mode = true, mode
	r.got = Result{Source: e.cfg.Rank, Tag: tag, Bytes: uint64(len(b))}
	if e.closed != nil {
		r.finish(e.closed)
		return
	}
	if err := e.startError(g, ctxID); err != nil {
		r.finish(err)
		return
	}
	if mode == Buffered {
		own := &Request{e: e, group: g, state: waiting, send: true, ctxID: ctxID, peer: dst, tag: tag, buf: slices.Clone(b), got: r.got}
		r.finish(nil)
		r, hold = own, false // its caller does not wait
	}
	if dst == e.cfg.Rank {
		e.sendSelf(r)
		return
	}
	e.peers[dst].send(r, hold)
}

// sendNow sends a message that needs no Request because it is copied at once, and reports
// whether it did; see announce. hold is as for Isend. mu is held, and may be released after
// the copy.
func (e *Engine) sendNow(g Group, ctxID uint32, dst, tag int, b []byte, mode Mode, hold bool) bool {
	if mode == Synchronous || dst == e.cfg.Rank || e.closed != nil || e.startError(g, ctxID) != nil {
		return false
	}
	p, cost := e.peers[dst], len(b)+messageCost
	if p.link == nil || p.failed != nil || p.gone || len(p.sends.backlog) > 0 || cost > p.sends.credit {
		return false
	}
	env := wire.Envelope{Kind: wire.EnvelopeEager, Context: ctxID, Tag: uint32(tag), Length: uint64(len(b))}
	if !p.sendSmall(env, b) {
		return false
	}
	p.sends.credit -= cost
	p.stats.MessagesSent++
	p.stats.BytesSent += uint64(len(b))
	if p.out.forLink() || p.shm.bellDue {
		p.dispatch(hold && mode == Standard)
	}
	return true
}

// send sends r or queues it. mu is held.
func (p *peer) send(r *Request, hold bool) {
	switch {
	case p.failed != nil:
		r.finish(p.failed)
		return
	case p.gone:
		r.finish(p.goodbyeError())
		return
	}
	p.stats.MessagesSent++
	p.stats.BytesSent += uint64(len(r.buf))
	if len(p.sends.backlog) > 0 || !p.announce(r) {
		p.sends.backlog = append(p.sends.backlog, r)
	}
	p.wantLink()
	p.dispatch(hold)
}

// dispatch writes what the link takes without blocking, and wakes the writer for the rest;
// with hold the caller will write the rest. mu is held, and may be released.
func (p *peer) dispatch(hold bool) {
	p.post()
	if !hold && p.writable() {
		wake(p.writing.wake)
	}
}

// eagerAt is the eager limit of a path with that round trip and rate in bytes a second (0: not
// measured): twice the bandwidth-delay product, so that the CTS arrives before the path runs
// empty, and at most half of the credit.
func eagerAt(rtt time.Duration, rate float64, credit int) int {
	if rtt <= longRTT {
		return eagerShort
	}
	if rate == 0 {
		rate = assumedRate
	}
	return max(eagerShort, int(min(2*rate*rtt.Seconds(), float64(credit/2))))
}

// announce queues r's message or its RTS, and returns false if not even the RTS may be sent
// now. Messages are announced in the order of their sends. mu is held.
func (p *peer) announce(r *Request) bool {
	n := len(r.buf)
	env := wire.Envelope{Kind: wire.EnvelopeEager, Context: r.ctxID, Tag: uint32(r.tag), Length: uint64(n)}
	if cost := n + messageCost; n <= p.eagerLimit() && cost <= p.sends.credit {
		p.sends.credit -= cost
		if r.mode == Synchronous {
			env.Flags, env.ID = wire.EnvelopeSynchronous, p.sends.assignID(r)
		}
		if p.sendEager(env, r) && r.mode != Synchronous {
			r.finish(nil)
		}
		return true
	}
	if len(p.sends.pending) >= maxPendingSends {
		return false
	}
	env.Kind, env.ID = wire.EnvelopeRTS, p.sends.assignID(r)
	lent := p.exposeBuffer(r)
	p.queueOrSend(env, lent)
	if lent != nil {
		return true
	}
	if head := min(n, p.maxHead(), p.sends.credit); head > 0 {
		p.sends.credit -= head
		r.at = head
		p.out.addFromBuffer(wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: r.id, Length: uint64(head)}, r, 0, head, false)
	}
	return true
}

// assignID gives r an id under which it is pending.
func (s *sends) assignID(r *Request) uint32 {
	for {
		s.nextID++
		if _, used := s.pending[s.nextID]; !used && s.nextID != 0 {
			break
		}
	}
	r.id = s.nextID
	s.pending[r.id] = r
	return r.id
}

// sendBacklog announces queued sends as far as credit and limits allow. mu is held.
func (p *peer) sendBacklog() {
	n := 0
	for n < len(p.sends.backlog) && p.announce(p.sends.backlog[n]) {
		n++
	}
	p.sends.backlog = slices.Delete(p.sends.backlog, 0, n)
}

// ctsReceived handles a CTS for n bytes of r; late says that the receive was posted after the
// RTS had come. mu is held.
func (p *peer) ctsReceived(r *Request, n uint64, late bool) {
	if late {
		p.sends.head = 0
	} else {
		p.sends.head = min(4*max(p.sends.head, eagerShort), maxHead)
	}
	if n == 0 {
		p.sendDone(r)
		return
	}
	r.cleared = true
	p.queueRest(r)
}

// queueRest has the rest of a send written if the CTS is here and its head is
// not being written any more. mu is held.
func (p *peer) queueRest(r *Request) {
	if r.cleared && r.state == waiting && r.at < len(r.buf) {
		p.out.stream(r)
	}
}

// sendDone completes r: the peer has what it wants of the message. mu is held.
func (p *peer) sendDone(r *Request) {
	delete(p.sends.pending, r.id)
	p.endZeroCopy(r)
	if p.e.closed != nil {
		p.e.wakeProbes() // drain may wait for this
	}
	defer p.sendBacklog()
	if r.state == moving {
		r.ended = true
		return
	}
	p.out.remove(r)
	if r.giveUp == nil && p.e.revoked[r.ctxID] { // the peer has dropped the message
		r.giveUp = ErrRevoked
	}
	r.finish(r.giveUp)
}

// cancel withdraws a message that was announced or is queued. mu is held.
func (p *peer) cancel(r *Request) {
	if i := slices.Index(p.sends.backlog, r); i >= 0 {
		p.sends.backlog = slices.Delete(p.sends.backlog, i, i+1)
		r.got.Cancelled = true
		r.finish(nil)
		return
	}
	if p.sends.pending[r.id] == r && !r.cleared && r.id != 0 {
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: r.id})
		p.dispatch(false)
	}
}

// abandon completes r with err and returns its buffer to the owner, which gave up waiting. mu is
// held, and may be released.
func (p *peer) abandon(r *Request, err error) {
	if i := slices.Index(p.sends.backlog, r); i >= 0 {
		p.sends.backlog = slices.Delete(p.sends.backlog, i, i+1)
		r.finish(err)
		return
	}
	if r.id == 0 { // queued as eager
		p.out.remove(r)
		p.sends.credit += len(r.buf) + messageCost
		r.finish(err)
		return
	}
	if r.exposed && !p.shm.tx.Revoke(r.slot) { // the peer is copying it, and soon done
		r.giveUp = err
		return
	}
	// The peer knows the message. What it may still want is sent from a copy.
	own := &Request{e: p.e, group: r.group, state: waiting, send: true, mode: r.mode, ctxID: r.ctxID, peer: r.peer, tag: r.tag,
		buf: slices.Clone(r.buf), got: r.got, id: r.id, at: r.at, cleared: r.cleared, orphan: true, exposed: r.exposed, slot: r.slot}
	r.exposed = false
	if p.sends.pending[r.id] == r {
		p.sends.pending[r.id] = own
		if !r.cleared {
			p.queueControl(wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: r.id})
		}
	}
	p.out.replace(r, own)
	if r.mark > 0 && p.failed == nil { // the link may still refer to it
		r.state = moving
		p.e.mu.Unlock()
		p.link.Conn.Reclaim()
		p.e.mu.Lock()
	}
	r.finish(err)
	p.queueRest(own)
	p.dispatch(false)
}
