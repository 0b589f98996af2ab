package engine

import (
	"errors"
	"io"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// incoming describes the bytes that follow an envelope, if they are not a message's. The holder of the
// reading token owns it.
type incoming struct {
	exposed     protocol.ExposedBuffer // of the RTS that is being handled
	descriptor  bool                   // the bytes that follow are the descriptor of the peer's memory
	note        []byte                 // or they are a note of the owner: see failure.go
	replicaNote []byte                 // or a message of package replica
	context     uint32                 // of the note
	value       *openSlot              // or they are the end of a slot's value
}

// bufferHandled ends a receive that was abandoned, sends what reading has queued, and serves the rings if
// the peer has rung. mu is held, and released meanwhile.
func (p *peer) bufferHandled(hold bool) {
	if r := p.proto.In.Request; r != nil && r.GiveUp != nil {
		p.proto.StopReceive(r)
		p.e.carryOut()
	}
	if len(p.taken) > 0 {
		p.released()
	}
	p.transport.dispatch(hold)
	if p.shm.bellReceived {
		p.shm.bellReceived = false
		p.e.rings.serve()
	}
}

// readFailed ends the peer because of a failed read or malformed bytes. mu is held.
func (p *peer) readFailed(err error) {
	switch {
	case err != io.EOF:
	case p.proto.In.Left > 0:
		err = errors.New("the peer closed it in the middle of a message")
	default:
		err = errors.New("the peer closed it")
	}
	if p.e.ctx.Err() == nil {
		p.linkLost("receiving", err)
	} else {
		p.fail(p.e.core.Closed())
	}
	p.proto.ReadEnded()
	p.e.carryOut()
}

// stopReceive completes a receive that was abandoned while its message arrives. mu is held.
func (p *peer) stopReceive(r *Request) {
	if p.proto.In.Request == &r.Request && p.transport.link.reading.busy {
		p.transport.link.interruptRead()
		return
	}
	if p.proto.StopReceive(&r.Request) {
		p.e.carryOut()
	} else if f := p.proto.Transfer(r.ID); f != nil && f.Request == &r.Request {
		wake(p.e.rings.attendantWake) // it is complete once the sender has stopped copying
	} // else it is being copied, and complete soon
}

// envelope handles an envelope, and those of the bytes that follow it which are in b: the first n. mu is
// held, and may be released.
func (p *peer) envelope(env wire.Envelope, b []byte) (n int, err error) {
	if err := p.handle(env); err != nil {
		return 0, err
	}
	if in := &p.proto.In; in.Left > 0 {
		if n = fill(in, b); in.Left == 0 {
			err = p.arrived()
		}
	}
	return n, err
}

// handle handles an envelope. mu is held.
func (p *peer) handle(env wire.Envelope) error {
	if err := p.checkReplies(); err != nil {
		return err
	}
	var err error
	switch env.Kind {
	case wire.EnvelopeEager:
		if err := p.proto.EagerReceived(env); err != nil {
			return err
		}
		p.e.carryOut()
		if p.proto.In.Left == 0 {
			return p.arrived()
		}
		return nil
	case wire.EnvelopeData:
		return p.proto.DataReceived(env)
	case wire.EnvelopeRTS:
		err = p.proto.RTSReceived(env, p.in.exposed)
	case wire.EnvelopeCTS:
		return p.sendDone(p.proto.CTSReceived(env))
	case wire.EnvelopeTaken:
		return p.sendDone(p.proto.TakenReceived(env))
	case wire.EnvelopeCredit:
		p.proto.CreditReceived(env)
		p.announceBacklog()
	case wire.EnvelopeWithdraw:
		p.proto.WithdrawReceived(env.ID)
	case wire.EnvelopeWithdrawn:
		return p.sendDone(p.proto.WithdrawnReceived(env))
	case wire.EnvelopeGoodbye:
		p.goodbye.received = true
		p.released()
	case wire.EnvelopeConfirm:
		p.goodbye.byPeer = true
		p.confirm()
	case wire.EnvelopeCopying: // sent through shared memory only
		return protocol.UnknownMessage("copies", env)
	case wire.EnvelopeShare:
		return p.shareReceived(env.Length)
	case wire.EnvelopeSwitch:
		return p.switchReceived()
	case wire.EnvelopeBell:
		p.shm.bellReceived = true
	case wire.EnvelopeFailed:
		return p.failedReceived(env)
	case wire.EnvelopeRevoked:
		return p.revokedReceived(env)
	case wire.EnvelopeNote:
		return p.noteReceived(env)
	case wire.EnvelopeReplica:
		return p.replicaReceived(env)
	case wire.EnvelopeSlot:
		err = p.slots.opened(env)
	case wire.EnvelopeValue:
		return p.slots.received(env)
	}
	p.e.carryOut()
	return err
}

// sendDone completes a send of which the peer needs no more, once the link does not refer to its buffer; nil: there is
// none, or an error. mu is held, and may be released.
func (p *peer) sendDone(done *protocol.Request, err error) error {
	switch {
	case done == nil || err != nil:
		p.e.carryOut()
		return err
	case slices.Contains(p.taken, done.ID):
		return protocol.UnknownMessage("has taken again", wire.Envelope{ID: done.ID})
	case p.linkRefersTo(done): // the acknowledgement has come, or comes, on another carrier
		p.taken = append(p.taken, done.ID)
		return nil
	}
	p.completeSend(done)
	return nil
}

// linkRefersTo reports whether the link may still refer to a send's buffer. If so, a read returns when that is over. mu is
// held.
func (p *peer) linkRefersTo(send *protocol.Request) bool {
	r := owner(send)
	return r.mark > 0 && r.State != moving && !p.transport.link.l.Conn.Released(r.mark)
}

// released completes the sends of which the peer needs no more, and that the link does not refer
// to any more. Behind them comes the peer's goodbye, which fails all others. mu is held, and may be released.
func (p *peer) released() {
	for i := 0; i < len(p.taken); {
		taken := p.proto.PendingSend(p.taken[i]) // perhaps the copy of one that was given up
		if taken != nil && p.linkRefersTo(taken) {
			i++
			continue
		}
		p.taken = slices.Delete(p.taken, i, i+1)
		if taken != nil {
			p.completeSend(taken)
		}
	}
	if p.goodbye.received && len(p.taken) == 0 && !p.proto.Gone {
		p.goodbyeReceived()
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeConfirm})
	}
}

func (p *peer) completeSend(done *protocol.Request) {
	p.proto.SendDone(done)
	p.e.carryOut()
	p.announceBacklog()
}

// arrived handles the last byte of what follows an envelope. mu is held, and may be given up.
func (p *peer) arrived() error {
	if r := p.proto.Arrived(); r != nil {
		owner(r).wakeWaiters()
	}
	p.e.carryOut()
	if p.in.descriptor {
		p.in.descriptor = false
		return p.descriptorReceived()
	}
	if note := p.in.replicaNote; note != nil {
		p.in.replicaNote = nil
		return p.e.replicas.noteArrived(p, note)
	}
	if s := p.in.value; s != nil {
		p.in.value = nil
		p.slots.arrived(s)
	}
	if note := p.in.note; note != nil {
		p.in.note = nil
		p.noteArrived(p.in.context, note)
	}
	return nil
}
