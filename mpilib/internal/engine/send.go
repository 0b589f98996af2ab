package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
)

// Isend starts a send of b to world rank dst, which may be this process. b must not change
// until r is complete. hold says that the caller waits for r at once, and so writes it
// itself.
func (e *Engine) Isend(r *Request, g Group, ctxID uint32, dst, tag int, b []byte, mode Mode, hold bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isend(r, g, ctxID, dst, tag, b, mode, hold && e.replicas == nil) // with replicas it is complete before it is written
}

// isend is Isend with mu held, which may be released.
func (e *Engine) isend(r *Request, g Group, ctxID uint32, dst, tag int, b []byte, mode Mode, hold bool) {
	r.begin(e, g, ctxID, dst, tag, b)
	r.IsSend, r.Mode = true, mode
	r.Got = Result{Source: e.cfg.Rank, Tag: tag, Bytes: uint64(len(b))}
	if e.core.Closed() != nil {
		r.finish(e.core.Closed())
		return
	}
	if err := e.startError(g, ctxID); err != nil {
		r.finish(err)
		return
	}
	if e.replicas != nil && dst != e.cfg.Rank {
		e.replicas.send(r, hold)
		return
	}
	if mode == Buffered {
		own := &Request{e: e, group: g}
		own.Begin(own, ctxID, dst, tag, slices.Clone(b))
		own.IsSend, own.Got = true, r.Got
		r.finish(nil)
		r, hold = own, false // its caller does not wait
	}
	if dst == e.cfg.Rank {
		e.core.SendSelf(&r.Request)
		e.carryOut()
		return
	}
	e.peers[dst].send(r, hold)
}

// sendNow sends a message that needs no Request because it is copied at once, and reports
// whether it did. mu is held, and may be released after the copy.
func (e *Engine) sendNow(g Group, ctxID uint32, dst, tag int, b []byte, mode Mode) bool {
	if mode == Synchronous || dst == e.cfg.Rank || e.replicas != nil || e.core.Closed() != nil || e.startError(g, ctxID) != nil {
		return false
	}
	p := e.peers[dst]
	if !p.transport.connected() || !p.proto.CanSendNow(len(b)) || !p.transport.sendSmall(protocol.EagerEnvelope(ctxID, tag, len(b)), b) {
		return false
	}
	p.proto.SentNow(len(b))
	if t := &p.transport; t.link.unflushed || t.link.bellDue {
		t.dispatchNow()
	}
	return true
}

// send sends r or queues it. mu is held.
func (p *peer) send(r *Request, hold bool) {
	eager := 0
	if p.proto.Backlog() == 0 {
		eager = p.transport.eagerLimit()
	}
	p.proto.Send(&r.Request, eager)
	p.e.carryOut()
	if p.proto.Failed != nil || p.proto.Gone {
		return
	}
	p.wantLink()
	if hold && r.State != complete {
		p.transport.dispatch(true)
	} else {
		p.transport.dispatchNow()
	}
}

// announceBacklog announces queued sends as far as credit and limits allow. mu is held.
func (p *peer) announceBacklog() {
	for p.proto.Backlog() > 0 && p.proto.AnnounceNext(p.transport.eagerLimit()) {
		p.e.carryOut()
	}
}

// abandon completes r with err and returns its buffer to the owner, soon if the link refers to it. mu is
// held, and may be released.
func (p *peer) abandon(r *Request, err error) {
	if r.uncopied {
		p.reclaim(r, err)
		p.transport.link.takeAllBack()
		return
	}
	if p.proto.Abandon(&r.Request, err) {
		p.e.carryOut()
		return
	}
	if r.exposed && !p.transport.ring.tx.Revoke(r.slot) { // the peer is copying it, and completes it soon
		r.GiveUp = err
		return
	}
	// The message was announced to the peer. If it still asks for bytes, they are sent from a copy.
	own := &Request{e: p.e, group: r.group, orphan: true, exposed: r.exposed, slot: r.slot}
	own.Begin(own, r.Context, r.Peer, r.Tag, slices.Clone(r.Buf))
	r.exposed = false
	p.proto.Replace(&r.Request, &own.Request)
	p.transport.replace(r, own)
	p.reclaim(r, err)
	p.proto.Replaced(&own.Request)
	p.e.carryOut()
}

// reclaim completes r, of which nothing more is to be sent, with err, or has takeAllBack do so if the link may refer to its
// buffer. mu is held.
func (p *peer) reclaim(r *Request, err error) {
	p.transport.remove(r)
	if r.mark == 0 || r.orphan {
		r.finish(err)
	} else {
		p.transport.link.claim(r, err)
	}
}

// claimAll has carryOut complete, with err, the sends that are not complete and to which the link may refer. mu is held.
func (p *peer) claimAll(err error) {
	p.e.dispatches = append(p.e.dispatches, p)
	p.proto.PendingSends(func(r *protocol.Request) {
		if o := owner(r); o.mark > 0 && r.State == waiting && !o.orphan {
			p.reclaim(o, err)
		}
	})
}
