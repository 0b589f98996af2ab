package engine

import (
	"errors"
	"io"
	"os"

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
	p.dispatch(hold)
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
		if err = p.proto.CTSReceived(env); err == nil && env.Length == 0 {
			p.e.carryOut()
			p.announceBacklog()
		}
	case wire.EnvelopeTaken:
		return p.takenReceived(env)
	case wire.EnvelopeCredit:
		p.proto.CreditReceived(env)
		p.announceBacklog()
	case wire.EnvelopeWithdraw:
		p.proto.WithdrawReceived(env.ID)
	case wire.EnvelopeWithdrawn:
		if err = p.proto.WithdrawnReceived(env); err == nil {
			p.e.carryOut()
			p.announceBacklog()
		}
	case wire.EnvelopeGoodbye:
		p.goodbyeReceived()
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeConfirm})
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

// takenReceived handles Taken. mu is held, and released while the link may refer to the message.
func (p *peer) takenReceived(env wire.Envelope) error {
	taken, err := p.proto.TakenReceived(env)
	if err != nil {
		return err
	}
	if r := owner(taken); r.mark > 0 && r.State != moving { // the peer's process has it, so the link has acknowledged it
		p.e.mu.Unlock()
		err := p.transport.link.l.Conn.Await(r.mark)
		if errors.Is(err, os.ErrDeadlineExceeded) { // an interrupt for a write that has ended
			p.transport.link.l.Conn.Reclaim()
			err = nil
		}
		p.e.mu.Lock()
		if err != nil {
			return err
		}
		// Meanwhile the send may have been given up, so that its copy is in its place, or have failed with the
		// peer. Then its owner may have begun something else with the same Request.
		if taken = p.proto.PendingSend(env.ID); taken == nil {
			return nil
		}
	}
	p.proto.SendDone(taken)
	p.e.carryOut()
	p.announceBacklog()
	return nil
}

// arrived handles the last byte of what follows an envelope. mu is held, and may be given up.
func (p *peer) arrived() error {
	if r := p.proto.Arrived(); r != nil {
		owner(r).completed()
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
