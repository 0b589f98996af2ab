package engine

import (
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/wire"
)

// eagerShared is up to which size messages are sent eagerly through shared
// memory, and how much of a larger one is: a record's worth. So each record is an
// envelope and all that belongs to it.
const eagerShared = shm.MaxRecord

// bellBytes is the envelope that wakes a peer.
var bellBytes = wire.Envelope{Kind: wire.EnvelopeBell}.Append(nil)

// put queues an envelope and what belongs to it, or sends them at once where they
// go through shared memory and there is room. mu is held.
func (p *peer) put(env wire.Envelope, b []byte) {
	if p.out.near && len(p.out.queue) == 0 && p.through(env, b) {
		return
	}
	p.out.add(env, b)
}

// through sends a record, or reports that there is no room. mu is held.
func (p *peer) through(env wire.Envelope, b []byte) bool {
	var head [shm.HeadSize]byte
	env.Append(head[:0])
	return p.record(&head, b)
}

func (p *peer) record(head *[shm.HeadSize]byte, b ...[]byte) bool {
	n := &p.near
	if !n.tx.TrySend(head, b...) {
		switch err := n.tx.Err(); {
		case err != nil && n.cut == nil:
			n.cut, n.cutting = err, "sending"
			p.e.disturb()
		case p.e.rings.asleep: // when that was announced, nothing waited for room here
			p.e.disturb()
		}
		return false
	}
	if n.tx.PeerSleeps() {
		n.bell = true
	}
	return true
}

// flush sends what found no room before, as far as there is some now. mu is held.
func (p *peer) flush() {
	o, n := &p.out, 0
	for n < len(o.queue) && o.queue[n].near && p.failed == nil && p.forward(&o.queue[n]) {
		n++
	}
	o.queue = slices.Delete(o.queue, 0, n)
	for len(o.queue) == 0 && len(o.bulk) > 0 && p.failed == nil {
		r := o.bulk[0]
		n := min(shm.MaxRecord, len(r.buf)-r.at)
		if !p.through(wire.Envelope{Kind: wire.EnvelopeData, ID: r.id, Length: uint64(n)}, r.buf[r.at:r.at+n]) {
			return
		}
		if r.at += n; r.at == len(r.buf) {
			o.bulk = o.bulk[1:]
		}
	}
}

// forward sends a segment if there is room. mu is held.
func (p *peer) forward(s *segment) bool {
	var lent []byte
	if s.r != nil {
		lent = s.r.buf[s.at : s.at+s.n]
	}
	if !p.record(&s.head, s.copied, lent) {
		return false
	}
	switch r := s.r; {
	case r == nil:
	case s.last && r.mode != Synchronous:
		r.finish(nil)
	default:
		p.settled(r)
	}
	return true
}

// stalled reports whether something waits for room in the ring, and how much of
// it: the payload of the next record. mu is held.
func (p *peer) stalled() (n int, yes bool) {
	o := &p.out
	switch {
	case !o.near || p.failed != nil:
		return 0, false
	case len(o.queue) > 0:
		s := &o.queue[0]
		return len(s.copied) + s.n, s.near
	case len(o.bulk) > 0:
		return min(shm.MaxRecord, len(o.bulk[0].buf)-o.bulk[0].at), true
	}
	return 0, false
}

const (
	// How much of a ring is received before others have their turn.
	maxRecords  = 64
	maxReceived = copiedLocked
)

// receive acts on what is in the ring, and reports whether anything was. What is wanted may
// be nil. The polling turn and mu are held, and mu may be given up meanwhile.
func (p *peer) receive(w wanted) bool {
	rx := p.near.rx
	bytes := 0
	for i := range maxRecords {
		head, payload, ok, err := rx.Next()
		if err != nil {
			p.fail(p.lost("receiving", err))
			return true
		}
		if !ok {
			if p.near.cut != nil {
				p.ended()
				return true
			}
			return i > 0
		}
		env, err := wire.ParseEnvelope(head[:])
		if err == nil && env.Kind == wire.EnvelopeEager && w != nil && w.here() && p.early(env) {
			return true
		}
		if err == nil {
			err = p.take(env, payload)
		}
		if err != nil {
			p.fail(p.lost("receiving", err))
			return true
		}
		if rx.Done() {
			p.near.bell = true
		}
		if bytes += len(payload); bytes >= maxReceived || p.failed != nil {
			break
		}
	}
	return true
}

// early reports whether a message finds no receive. Where somebody waits who has what he waited
// for, such a message stays in the ring: he may have a receive to post for it, and a
// sender that is far ahead is held back by the ring instead of filling the memory. Who leaves
// the rings alone after that has them looked at. mu is held.
func (p *peer) early(env wire.Envelope) bool {
	c := p.e.contexts[env.Context]
	return c == nil || !c.table.Awaited(int32(p.rank), int32(env.Tag))
}

// ended fails a peer whose link is over and whose ring is empty. mu is held.
func (p *peer) ended() {
	if p.e.ctx.Err() != nil {
		p.fail(p.e.closed)
		return
	}
	p.fail(p.lost(p.near.cutting, p.near.cut))
}

// take acts on a record. The payload is the peer's to change: it is only copied. mu is held.
func (p *peer) take(env wire.Envelope, payload []byte) error {
	want := uint64(0)
	var lent loan
	switch env.Kind {
	case wire.EnvelopeBorrow:
		return p.borrowed(env, payload)
	case wire.EnvelopeOffer:
		var err error
		if lent, err = loanFrom(payload); err != nil {
			return err
		}
		want = uint64(len(payload))
	case wire.EnvelopeEager, wire.EnvelopeData, wire.EnvelopeNote:
		want = env.Length
	case wire.EnvelopeShare, wire.EnvelopeSwitch, wire.EnvelopeBell:
		return fmt.Errorf("%w: envelope kind %d in shared memory", wire.ErrMalformed, env.Kind)
	}
	if uint64(len(payload)) != want {
		return fmt.Errorf("%w: a record of %d bytes for %+v", wire.ErrMalformed, len(payload), env)
	}
	p.in.loan = lent
	if err := p.handle(env); err != nil {
		return err
	}
	p.in.loan = loan{}
	in := &p.in
	if in.left == 0 {
		return nil
	}
	copy(in.into, payload)
	in.left = 0
	return p.arrived()
}
