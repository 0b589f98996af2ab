package engine

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// How much of a ring is received before the other rings.
	maxRecords  = 64
	maxReceived = 64 << 10
)

// receive handles the records in the ring, and reports whether there were any. w, the condition of the
// caller, may be nil. The polling token and mu are held, and mu may be released meanwhile.
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

// unmatchedEager reports whether an eager message would be unexpected. If the condition of the polling
// goroutine is met, such a message stays in the ring: the program may post a receive for it next, and the
// ring limits a sender that is far ahead instead of unexpected messages filling the memory. Releasing the
// token later causes another sweep. mu is held.
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

// isEnded reports whether the peer fails once its ring is empty. mu is held.
func (p *peer) isEnded() bool { return p.shm.linkErr != nil || p.transport.ring.err != nil }

// handleRecord handles a record. The peer may change the payload at any time: it is copied before it is parsed.
// mu is held.
func (p *peer) handleRecord(env wire.Envelope, payload []byte) error {
	want := uint64(0)
	var exposed protocol.ExposedBuffer
	switch env.Kind {
	case wire.EnvelopeCopying:
		return p.copyStarted(env, payload)
	case wire.EnvelopeRTS:
		var err error
		if exposed, err = protocol.ParseExposedBuffer(payload, shm.CopySlots); err != nil {
			return err
		}
		want = uint64(len(payload))
	case wire.EnvelopeEager, wire.EnvelopeData, wire.EnvelopeNote, wire.EnvelopeValue:
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
