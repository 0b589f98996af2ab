package engine

import (
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// messageCost is what a message is charged beside its bytes, so that a flood
	// of empty ones is bounded too.
	messageCost = 64
	// maxPendingSends is how many sends may wait for a peer's CTS at a time.
	maxPendingSends = 4096
	// eagerShort is up to which size messages are sent eagerly to a peer nearby,
	// and how much of a larger one is. It takes as long as the peer's answer.
	eagerShort = 64 << 10
	// maxHead is how much of a large message is sent eagerly to a peer whose
	// receives are there before the messages: so much that nobody waits for the
	// peer's answer, and that others' messages need not wait long.
	maxHead = 1 << 20
	// longRTT is from where on a peer counts as far, and farRate what a path to it is
	// thought to carry before that was measured, in bytes a second. Both are looked
	// at again after farLook messages: links change their paths.
	longRTT        = time.Millisecond
	assumedRate    = 125e6
	pathCheckEvery = 64
)

// Isend starts a send of b to world rank dst, which may be this process. r
// tells when b is the caller's again; it must not change until then. hold says
// that the caller waits at once, and so will write itself what takes long.
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
		r, hold = own, false // its caller waits for nothing
	}
	if dst == e.cfg.Rank {
		e.sendSelf(r)
		return
	}
	e.peers[dst].send(r, hold)
}

// sendNow sends a message that needs no Request, because it is copied at once, or
// reports that it is not such a one: see announce. hold is as for Isend. mu is held, and
// may be given up after that.
func (e *Engine) sendNow(g Group, ctxID uint32, dst, tag int, b []byte, mode Mode, hold bool) bool {
	if mode == Synchronous || dst == e.cfg.Rank || e.closed != nil || e.startError(g, ctxID) != nil {
		return false
	}
	p, cost := e.peers[dst], len(b)+messageCost
	if p.link == nil || p.failed != nil || p.gone || len(p.sends.backlog) > 0 || cost > p.sends.credit {
		return false
	}
	env := wire.Envelope{Kind: wire.EnvelopeEager, Context: ctxID, Tag: uint32(tag), Length: uint64(len(b))}
	switch {
	case p.out.viaShm:
		if len(b) > eagerShared || len(p.out.queue) > 0 || !p.sendRecord(env, b) {
			return false
		}
	case len(b) >= gatherBelow || len(b) > p.eagerLimit() || len(p.out.queue) >= maxBatches:
		return false
	default:
		p.out.add(env, b)
	}
	p.sends.credit -= cost
	p.stats.MessagesSent++
	p.stats.BytesSent += uint64(len(b))
	if !p.out.viaShm || p.shm.bellDue {
		p.dispatch(hold && mode == Standard)
	}
	return true
}

// send sends r or has it wait. mu is held.
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

// dispatch sees to it that what is queued is written; with hold the caller writes
// what cannot be written without waiting. mu is held, and may be released.
func (p *peer) dispatch(hold bool) {
	p.post()
	if !hold && p.writable() {
		wake(p.writing.wake)
	}
}

// eagerLimit returns how many bytes of a message may be sent before the peer asks,
// if there is credit.
func (p *peer) eagerLimit() int {
	if p.link == nil {
		return eagerShort
	}
	if p.out.viaShm {
		return eagerShared
	}
	if p.sends.eagerQueries%pathCheckEvery == 0 {
		_, rtt := p.link.Current()
		p.sends.eagerSize = eagerAt(rtt, p.link.Bandwidth(), p.sends.maxCredit)
	}
	p.sends.eagerQueries++
	return p.sends.eagerSize
}

// eagerAt is what goes eagerly over a path with that round trip that carries rate
// bytes a second, as far as was measured: twice what is under way in it, so that the
// peer's answer is here before the path is empty, and at most half of the credit.
func eagerAt(rtt time.Duration, rate float64, credit int) int {
	if rtt <= longRTT {
		return eagerShort
	}
	if rate == 0 {
		rate = assumedRate
	}
	return max(eagerShort, int(min(2*rate*rtt.Seconds(), float64(credit/2))))
}

// announce queues r's message, or an offer of it; it returns false if not even that
// may be sent now. Messages are announced in the order of their sends. mu is held.
func (p *peer) announce(r *Request) bool {
	n := len(r.buf)
	env := wire.Envelope{Kind: wire.EnvelopeEager, Context: r.ctxID, Tag: uint32(r.tag), Length: uint64(n)}
	if cost := n + messageCost; n <= p.eagerLimit() && cost <= p.sends.credit {
		p.sends.credit -= cost
		if r.mode == Synchronous {
			env.Flags, env.ID = wire.EnvelopeSynchronous, p.sends.assignID(r)
		}
		if p.out.viaShm && len(p.out.queue) == 0 && p.sendRecord(env, r.buf) {
			if r.mode != Synchronous {
				r.finish(nil)
			}
			return true
		}
		if n >= gatherBelow || p.out.viaShm || len(p.out.queue) >= maxBatches { // who finds no room shall wait, not fill the memory
			p.out.addFromBuffer(env, r, 0, n, true)
			return true
		}
		p.out.add(env, r.buf)
		if r.mode != Synchronous {
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

// maxHead returns how many bytes of an offer may go eagerly, if there is credit.
func (p *peer) maxHead() int {
	if p.out.viaShm {
		return eagerShared
	}
	return max(p.sends.head, p.eagerLimit())
}

// assignID gives r an id, and remembers it by that.
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

// sendBacklog announces what credit, or the end of another send, allows. mu is held.
func (p *peer) sendBacklog() {
	n := 0
	for n < len(p.sends.backlog) && p.announce(p.sends.backlog[n]) {
		n++
	}
	p.sends.backlog = slices.Delete(p.sends.backlog, 0, n)
}

// ctsReceived is told that the peer wants n bytes of a send's message, whose RTS came late if it had to
// be kept. mu is held.
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
	if r.cleared && r.state == waiting && r.at < len(r.buf) && !slices.Contains(p.out.bulk, r) {
		p.out.bulk = append(p.out.bulk, r)
	}
}

// sendDone is told that the peer has what it wants of r's message. mu is held.
func (p *peer) sendDone(r *Request) {
	delete(p.sends.pending, r.id)
	p.endZeroCopy(r)
	if p.e.closed != nil {
		p.e.wakeProbes() // drain may wait for it
	}
	defer p.sendBacklog()
	if r.state == moving {
		r.ended = true
		return
	}
	p.out.remove(r)
	if r.giveUp == nil && p.e.revoked[r.ctxID] { // the peer has dropped it
		r.giveUp = ErrRevoked
	}
	r.finish(r.giveUp)
}

// cancel asks for a message back that was announced, or is to be. mu is held.
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

// abandon gives r's buffer back to its owner, who waits no longer, and completes
// it with err. mu is held, and may be released.
func (p *peer) abandon(r *Request, err error) {
	if i := slices.Index(p.sends.backlog, r); i >= 0 {
		p.sends.backlog = slices.Delete(p.sends.backlog, i, i+1)
		r.finish(err)
		return
	}
	if r.id == 0 { // queued, to be sent at once
		p.out.remove(r)
		p.sends.credit += len(r.buf) + messageCost
		r.finish(err)
		return
	}
	if r.exposed && !p.shm.tx.Revoke(r.slot) { // the peer copies it, and is soon done
		r.giveUp = err
		return
	}
	// The peer knows of it. What it may want is sent from a copy.
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
	if r.mark > 0 && p.failed == nil { // the link may still read from it
		r.state = moving
		p.e.mu.Unlock()
		p.link.Conn.Reclaim()
		p.e.mu.Lock()
	}
	r.finish(err)
	p.queueRest(own)
	p.dispatch(false)
}
