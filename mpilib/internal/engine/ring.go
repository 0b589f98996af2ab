package engine

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// flush sends what found no room in the ring before, as far as there is some now. mu is held.
func (p *peer) flush() {
	if !p.transport.toRing || len(p.transport.link.queue.queue) > 0 {
		return
	}
	p.transport.ring.flushQueue()
	p.e.carryOut() // what follows from that these are sent
	p.transport.ring.flushBulk()
}

const (
	// How much of a ring is received before others have their turn.
	maxRecords  = 64
	maxReceived = 64 << 10
)

// receive acts on what is in the ring, and reports whether anything was. What is wanted may
// be nil. The polling token and mu are held, and mu may be released meanwhile.
func (p *peer) receive(w condition) bool {
	rx := p.transport.ring.rx
	bytes := 0
	for i := range maxRecords {
		head, payload, ok, err := rx.Next()
		if err != nil {
			p.fail(p.linkError("receiving", err))
			return true
		}
		if !ok {
			if p.isEnded() {
				p.ringEnded()
				return true
			}
			return i > 0
		}
		env, err := wire.ParseEnvelope(head[:])
		if err == nil && env.Kind == wire.EnvelopeEager && w != nil && w.isMet() && p.unmatchedEager(env) {
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
			p.transport.link.bellDue = true
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
	if p.transport.ring.err != nil {
		p.fail(p.linkError("sending", p.transport.ring.err))
		return
	}
	p.fail(p.linkError(p.shm.linkErrDoing, p.shm.linkErr))
}

// isEnded reports whether the peer fails when its ring is empty. mu is held.
func (p *peer) isEnded() bool { return p.shm.linkErr != nil || p.transport.ring.err != nil }

// handleRecord acts on a record. The payload is the peer's to change: it is only copied. mu is held.
func (p *peer) handleRecord(env wire.Envelope, payload []byte) error {
	want := uint64(0)
	var exposed protocol.ExposedBuffer
	switch env.Kind {
	case wire.EnvelopeCopying:
		return p.copyStarted(env, payload)
	case wire.EnvelopeRTS:
		var err error
		if exposed, err = parseZeroCopy(payload); err != nil {
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
	p.in.exposed = exposed
	_, err := p.envelope(env, payload)
	p.in.exposed = protocol.ExposedBuffer{}
	return err
}
