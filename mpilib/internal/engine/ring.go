package engine

import (
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// eagerShared is up to which size messages are sent eagerly through shared
// memory, and how much of a larger one is: a record's worth. So each record is an
// envelope and all that belongs to it.
const eagerShared = shm.MaxRecord

// bellBytes is the envelope that wakes a peer.
var bellBytes = wire.Envelope{Kind: wire.EnvelopeBell}.Append(nil)

// sendRecord sends a record, or reports that there is no room. mu is held.
func (p *peer) sendRecord(env wire.Envelope, b []byte) bool {
	var head [shm.HeadSize]byte
	env.Append(head[:0])
	return p.trySend(&head, b)
}

func (p *peer) trySend(head *[shm.HeadSize]byte, b ...[]byte) bool {
	n := &p.shm
	if !n.tx.TrySend(head, b...) {
		switch err := n.tx.Err(); {
		case err != nil && n.linkErr == nil:
			n.linkErr, n.linkErrDoing = err, "sending"
			p.e.rings.requestSweep()
		case p.e.rings.asleep: // when that was announced, nothing waited for room here
			p.e.rings.requestSweep()
		}
		return false
	}
	if n.tx.PeerSleeps() {
		p.link.bellDue = true
	}
	return true
}

// flush sends what found no room in the ring before, as far as there is some now. mu is held.
func (p *peer) flush() {
	o, n := &p.out, 0
	if !o.inRing || len(o.link.queue.queue) > 0 {
		return
	}
	for n < len(o.ring) && p.proto.Failed == nil && p.resend(&o.ring[n]) {
		n++
	}
	o.ring = slices.Delete(o.ring, 0, n)
	p.e.carryOut() // what follows from that these are sent
	for len(o.ring) == 0 && len(o.bulk) > 0 && p.proto.Failed == nil {
		r := o.bulk[0]
		n := min(shm.MaxRecord, len(r.Buf)-r.At)
		if !p.sendRecord(wire.Envelope{Kind: wire.EnvelopeData, ID: r.ID, Length: uint64(n)}, r.Buf[r.At:r.At+n]) {
			return
		}
		if r.At += n; r.At == len(r.Buf) {
			o.bulk = o.bulk[1:]
		}
	}
}

// resend sends a queued record if there is room. mu is held.
func (p *peer) resend(rec *record) bool {
	payload := rec.copied
	if rec.r != nil {
		payload = rec.r.Buf[rec.at : rec.at+rec.n]
	}
	if !p.trySend(&rec.head, payload) {
		return false
	}
	if rec.r != nil {
		p.proto.Written(&rec.r.Request, rec.last)
	}
	return true
}

// stalled reports whether something waits for room in the ring, and how much of
// it: the payload of the next record. mu is held.
func (p *peer) stalled() (n int, yes bool) {
	o := &p.out
	switch {
	case !o.inRing || p.proto.Failed != nil || len(o.link.queue.queue) > 0:
		return 0, false
	case len(o.ring) > 0:
		return len(o.ring[0].copied) + o.ring[0].n, true
	case len(o.bulk) > 0:
		return min(shm.MaxRecord, len(o.bulk[0].Buf)-o.bulk[0].At), true
	}
	return 0, false
}

const (
	// How much of a ring is received before others have their turn.
	maxRecords  = 64
	maxReceived = 64 << 10
)

// receive acts on what is in the ring, and reports whether anything was. What is wanted may
// be nil. The polling token and mu are held, and mu may be released meanwhile.
func (p *peer) receive(w condition) bool {
	rx := p.shm.rx
	bytes := 0
	for i := range maxRecords {
		head, payload, ok, err := rx.Next()
		if err != nil {
			p.fail(p.linkError("receiving", err))
			return true
		}
		if !ok {
			if p.shm.linkErr != nil {
				p.ringEnded()
				return true
			}
			return i > 0
		}
		env, err := wire.ParseEnvelope(head[:])
		if err == nil && env.Kind == wire.EnvelopeEager && w != nil && w.met() && p.unmatchedEager(env) {
			return true
		}
		if err == nil {
			err = p.handleRecord(env, payload)
		}
		if err != nil {
			p.fail(p.linkError("receiving", err))
			return true
		}
		if rx.Done() {
			p.link.bellDue = true
		}
		if bytes += len(payload); bytes >= maxReceived || p.proto.Failed != nil {
			break
		}
	}
	return true
}

// unmatchedEager reports whether a message finds no receive. Where somebody waits who has what he waited
// for, such a message stays in the ring: he may have a receive to post for it, and a
// sender that is far ahead is held back by the ring instead of filling the memory. Who leaves
// the rings alone after that has them looked at. mu is held.
func (p *peer) unmatchedEager(env wire.Envelope) bool {
	return !p.e.core.Awaited(env.Context, p.rank, env.Tag)
}

// ringEnded fails a peer whose link is over and whose ring is empty. mu is held.
func (p *peer) ringEnded() {
	if p.e.ctx.Err() != nil {
		p.fail(p.e.core.Closed())
		return
	}
	p.fail(p.linkError(p.shm.linkErrDoing, p.shm.linkErr))
}

// handleRecord acts on a record. The payload is the peer's to change: it is only copied. mu is held.
func (p *peer) handleRecord(env wire.Envelope, payload []byte) error {
	want := uint64(0)
	var lent protocol.Lent
	switch env.Kind {
	case wire.EnvelopeCopying:
		return p.copyStarted(env, payload)
	case wire.EnvelopeRTS:
		var err error
		if lent, err = parseZeroCopy(payload); err != nil {
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
	p.in.lent = lent
	_, err := p.envelope(env, payload)
	p.in.lent = protocol.Lent{}
	return err
}
