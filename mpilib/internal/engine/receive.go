package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
	"github.com/isthmus-grid/isthmus/wire"
)

// Irecv starts a receive into b from world rank src, or AnySource, of a message
// with tag, or AnyTag. r tells when b is the caller's again. g is who may be meant
// by AnySource.
func (e *Engine) Irecv(r *Request, g Group, ctxID uint32, src, tag int, b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.irecv(r, g, ctxID, src, tag, b)
}

// irecv is Irecv with mu held, which may be given up.
func (e *Engine) irecv(r *Request, g Group, ctxID uint32, src, tag int, b []byte) {
	r.begin(e, g, ctxID, src, tag, b)
	r.post.Source, r.post.Tag, r.post.Owner = int32(src), int32(tag), r
	if err := e.startError(g, ctxID); err != nil {
		r.finish(err)
		return
	}
	c := e.contextOf(ctxID)
	if m := c.table.Take(int32(src), int32(tag)); m != nil {
		e.give(r, m.Owner)
		return
	}
	if err := e.sourceError(src); err != nil {
		r.finish(err)
		return
	}
	c.table.Post(&r.post)
	e.seek(g, src, false)
}

// copiedLocked is up to how many bytes are copied with mu held.
const copiedLocked = 64 << 10

// give has a receive take a message that is here, or was announced. mu is held, and
// given up while much is copied.
func (e *Engine) give(r *Request, m *message) {
	r.state, m.taken = moving, true
	r.got = Result{Source: m.source, Tag: m.tag(), Bytes: m.size}
	r.err = truncated(m.size, len(r.buf))
	if m.sender != nil {
		m.sender.state = moving
	}
	if r.err == nil {
		if len(m.data) > copiedLocked {
			e.mu.Unlock()
			copy(r.buf, m.data)
			e.mu.Lock()
		} else {
			copy(r.buf, m.data)
		}
	}
	if m.source == e.cfg.Rank {
		e.selfHeld -= m.paid
		if m.sender != nil {
			m.sender.finish(nil)
		}
		r.finish(r.err)
		return
	}
	p := e.peers[m.source]
	p.refund(m.paid)
	if m.id != 0 {
		delete(p.arrivals.kept, m.id)
	}
	switch {
	case m.rts && p.failed != nil:
		r.finish(p.failed)
	case m.rts:
		m.transfer = p.sendCTS(r, m.id, uint64(len(m.data)), wire.EnvelopeLate, m.zeroCopy)
	default:
		if m.id != 0 {
			p.queueControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: m.id})
		}
		r.finish(r.err)
	}
	p.dispatch(false)
}

// drop forgets a message that is in no table any more. mu is held.
func (e *Engine) drop(m *message) {
	if m.source == e.cfg.Rank {
		e.selfHeld -= m.paid
		if m.sender != nil {
			m.sender.finish(e.closed)
		}
		return
	}
	p := e.peers[m.source]
	p.refund(m.paid)
	if p.arrivals.kept[m.id] != m {
		return
	}
	delete(p.arrivals.kept, m.id)
	p.decline(m.id, m.rts)
	p.dispatch(false)
}

// decline tells the peer that nobody will want a message that it announced, or that
// is synchronous. mu is held.
func (p *peer) decline(id uint32, offer bool) {
	if offer {
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeCTS, ID: id})
		return
	}
	p.queueControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: id})
}

// sendSelf matches at once. A message that nobody waits for is copied while it
// is small and there is room; otherwise the send waits for its receive. mu is held.
func (e *Engine) sendSelf(r *Request) {
	c := e.contextOf(r.ctxID)
	m := &message{ctxID: r.ctxID, source: e.cfg.Rank, data: r.buf, size: uint64(len(r.buf)), sender: r}
	m.entry = match.Message[*message]{Source: int32(e.cfg.Rank), Tag: int32(r.tag), Owner: m}
	if to := c.table.Arrive(m.entry.Source, m.entry.Tag); to != nil {
		e.give(to.Owner, m)
		return
	}
	if cost := len(r.buf) + messageCost; r.mode != Synchronous && len(r.buf) < gatherBelow && e.selfHeld+cost <= e.cfg.Unexpected {
		m.data, m.sender, m.paid = slices.Clone(r.buf), nil, cost
		e.selfHeld += cost
		r.finish(nil)
	}
	r.self = m
	c.table.Keep(&m.entry)
	e.wakeProbes()
}

// withdrawSelf takes a send to self back, unless a matched probe has it. mu is held.
func (e *Engine) withdrawSelf(r *Request) (found bool) {
	return e.contextOf(r.ctxID).table.Remove(&r.self.entry)
}

// abandonSelf gives the buffer of a send to self back to its owner, who waits no
// longer; a matched probe that has the message gets a copy. mu is held.
func (e *Engine) abandonSelf(r *Request, err error) {
	if m := r.self; !e.withdrawSelf(r) {
		m.data, m.sender = slices.Clone(m.data), nil
	}
	r.finish(err)
}

// abandonReceives fails every receive that is posted, and drops every message.
// mu is held.
func (e *Engine) abandonReceives() {
	for _, c := range e.contexts {
		c.table.Posted(func(m *match.Receive[*Request]) bool {
			c.table.Withdraw(m)
			m.Owner.finish(e.closed)
			return true
		})
		c.table.Messages(func(m *match.Message[*message]) bool {
			c.table.Remove(m)
			e.drop(m.Owner)
			return true
		})
	}
	e.wakeProbes()
}

// A Matched is a message that a matched probe took out (MPI-4.1, section 3.8.2):
// only its own Irecv receives it.
type Matched struct {
	e *Engine
	m *message
}

// result describes a message.
func (m *message) result() Result { return Result{Source: m.source, Tag: m.tag(), Bytes: m.size} }

// Result describes the message.
func (m Matched) Result() Result { return m.m.result() }

// Irecv starts to receive the message into b; it may be called once.
func (m Matched) Irecv(r *Request, g Group, b []byte) {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	m.irecv(r, g, b)
}

// irecv is Irecv with mu held, which may be given up.
func (m Matched) irecv(r *Request, g Group, b []byte) {
	r.begin(m.e, g, m.m.ctxID, m.m.source, m.m.tag(), b)
	m.e.give(r, m.m)
}

// Iprobe describes the message that Irecv with the same arguments would receive,
// if it is here; take takes it out. It returns an error only if none can come any
// more because a process has failed or this one is finalized.
func (e *Engine) Iprobe(g Group, ctxID uint32, src, tag int, take bool) (m Matched, found bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.startError(g, ctxID); err != nil {
		return Matched{}, false, err
	}
	if m, found = e.find(ctxID, src, tag, take); found {
		return m, true, nil
	}
	e.wakeReaders()
	if len(e.rings.peers) > 0 {
		e.pollOnce()
		if m, found = e.find(ctxID, src, tag, take); found {
			return m, true, nil
		}
	}
	e.seek(g, src, true)
	err = e.probeError(g, src)
	if e.closed == nil && errors.Is(err, ErrFinalized) {
		err = nil // the peer has left in order: there is no message, and that is all
	}
	return Matched{}, false, err
}

// probeError says why a probe finds nothing any more, or returns nil. mu is held.
func (e *Engine) probeError(g Group, src int) error {
	if src == AnySource && e.closed == nil {
		return e.anySourceError(g)
	}
	return e.sourceError(src)
}

// find is a probe. mu is held.
func (e *Engine) find(ctxID uint32, src, tag int, take bool) (Matched, bool) {
	t := &e.contextOf(ctxID).table
	m := t.Peek(int32(src), int32(tag))
	if m == nil {
		return Matched{}, false
	}
	if take {
		t.Remove(m)
		m.Owner.taken = true
	}
	return Matched{e, m.Owner}, true
}

// Probe is Iprobe that waits for a message.
func (e *Engine) Probe(ctx context.Context, g Group, ctxID uint32, src, tag int, take bool) (Matched, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if err := e.startError(g, ctxID); err != nil {
			return Matched{}, err
		}
		if m, found := e.find(ctxID, src, tag, take); found {
			return m, nil
		}
		if err := e.probeError(g, src); err != nil {
			return Matched{}, err
		}
		e.seek(g, src, true)
		if ctx.Err() != nil {
			return Matched{}, context.Cause(ctx)
		}
		e.wakeReaders()
		arrived := e.arrived
		if len(e.rings.peers) > 0 {
			e.poll(ctx, probeCondition{e, arrived})
			continue
		}
		e.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
}

// probeCondition is that a message, or the end of a process, may concern those who probe.
type probeCondition struct {
	e     *Engine
	since chan struct{}
}

func (n probeCondition) met() bool { return n.e.arrived != n.since }

func (n probeCondition) changed() <-chan struct{} { return n.since }
