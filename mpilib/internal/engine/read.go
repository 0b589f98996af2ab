package engine

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// readBufferSize is how many bytes one read of small messages may return. No more than this is
// copied of a large message.
const readBufferSize = 16 << 10

// incoming is what the bytes are that follow an envelope, beside messages. The holder of the reading
// token owns it.
type incoming struct {
	lent       protocol.Lent // of the RTS that is being handled
	descriptor bool          // the bytes that follow say how to map the peer's memory
	note       []byte        // or they are a note of the owner: see failure.go
	context    uint32        // of the note
}

// readable reports whether the reading token is free. mu is held.
func (p *peer) readable() bool {
	return !p.link.reading.busy && p.link.l != nil && p.proto.Failed == nil
}

// readForWaiter reads on behalf of a waiter until its request is complete or needs something
// else. mu is held, and released meanwhile.
func (p *peer) readForWaiter(ctx context.Context, r *Request) {
	p.link.reading.busy = true
	p.link.reading.count++
	p.link.reading.ctx.watch(&p.e.mu, ctx, p.link.interruptRead)
	r.reader, p.link.reading.forRequest = p, r
	for r.State != complete && r.holdError() == nil && p.proto.Failed == nil && !p.shm.open && ctx.Err() == nil && !(r.IsSend && p.link.writable()) {
		p.step(r.IsSend)
	}
	r.reader, p.link.reading.forRequest = nil, nil
	p.release(false)
}

// release returns the reading token. mu is held.
func (p *peer) release(stays bool) {
	p.link.reading.busy = false
	if p.shm.open && !stays {
		wake(p.link.reading.wake) // from now on it alone reads the link
	}
	switch {
	case p.link.reading.waiters > 0:
		wake(p.link.reading.token)
		fallthrough
	case !stays:
		p.link.reading.attended = false
		p.e.idle.note()
	}
}

// reader reads the link while it is idle, until a waiter wants to. It ends with the link or the
// engine.
func (p *peer) reader() {
	e := p.e
	for {
		select {
		case <-p.link.reading.wake:
		case <-e.ctx.Done():
			return
		}
		e.mu.Lock()
		if p.readable() {
			p.link.reading.busy, p.link.reading.attended = true, true
			p.link.reading.count++
			for p.proto.Failed == nil && (p.link.reading.waiters == 0 || p.shm.open) && p.shm.linkErr == nil && e.ctx.Err() == nil {
				p.step(false)
			}
			p.release(p.shm.open)
		}
		failed := p.proto.Failed
		e.mu.Unlock()
		if failed != nil {
			return
		}
	}
}

// step reads once and handles what came; hold says that the caller does long writes. mu is
// held, and released while it reads.
func (p *peer) step(hold bool) {
	in, msg := &p.link.in, &p.proto.In
	if p.hasBuffered() {
		if err := p.digest(); err != nil {
			p.readFailed(err)
			return
		}
		p.respond(hold)
		return
	}
	direct := msg.Left > 0 && in.begin == in.end && len(msg.Into) > 0
	var dst []byte
	if direct {
		dst = msg.Into[:min(msg.Left, uint64(len(msg.Into)))]
	} else {
		in.end = copy(in.buf, in.buf[in.begin:in.end])
		in.begin = 0
		dst = in.buf[in.end:]
	}
	p.link.reading.blocked = true
	p.e.mu.Unlock()
	n, err := p.link.l.Conn.Read(dst)
	p.e.mu.Lock()
	p.link.reading.blocked = false
	if n > 0 {
		if direct {
			msg.Into = msg.Into[n:]
			if msg.Left -= uint64(n); msg.Left == 0 {
				err = errors.Join(err, p.arrived())
			}
		} else {
			in.end += n
		}
		if broken := p.digest(); broken != nil {
			err = broken
		}
	}
	if !wasInterrupted(&p.link.reading.interrupted, err, p.link.l.Conn.SetReadDeadline) && err != nil {
		p.readFailed(err)
		return
	}
	if r := msg.Request; r != nil && r.GiveUp != nil {
		p.proto.StopReceive(r)
		p.e.carryOut()
	}
	p.respond(hold)
}

// respond sends what reading has queued, and looks where the peer has rung. mu is held,
// and given up meanwhile.
func (p *peer) respond(hold bool) {
	p.dispatch(hold)
	if p.shm.bellReceived {
		p.shm.bellReceived = false
		p.e.serveRings()
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

// stopReceive completes a receive that was given up while its message is coming. mu is held.
func (p *peer) stopReceive(r *Request) {
	if p.proto.In.Request == &r.Request && p.link.reading.busy {
		p.link.interruptRead()
		return
	}
	if p.proto.StopReceive(&r.Request) {
		p.e.carryOut()
	} else if f := p.proto.Moving(r.ID); f != nil && f.Request == &r.Request {
		wake(p.e.rings.attendantWake) // it is complete once the sender has stopped copying
	} // else it is being copied, and complete soon
}

// hasBuffered reports whether digest has left bytes that it could handle.
func (p *peer) hasBuffered() bool {
	n := p.link.in.end - p.link.in.begin
	return n >= wire.EnvelopeLen || n > 0 && p.proto.In.Left > 0
}

// digest handles the buffered bytes until the request of the waiter that reads is complete: the
// waiter may post a receive for the next message. mu is held.
func (p *peer) digest() error {
	in, msg := &p.link.in, &p.proto.In
	for {
		if msg.Left > 0 {
			n := min(msg.Left, uint64(in.end-in.begin))
			k := copy(msg.Into, in.buf[in.begin:in.begin+int(n)])
			msg.Into = msg.Into[k:]
			in.begin += int(n)
			if msg.Left -= n; msg.Left > 0 {
				return nil
			}
			if err := p.arrived(); err != nil {
				return err
			}
		}
		if in.end-in.begin < wire.EnvelopeLen || p.link.reading.forRequest != nil && p.link.reading.forRequest.State == complete {
			return nil
		}
		env, err := wire.ParseEnvelope(in.buf[in.begin:in.end])
		if err != nil {
			return err
		}
		in.begin += wire.EnvelopeLen
		if err := p.handle(env); err != nil {
			return err
		}
	}
}

// handle handles an envelope. mu is held.
func (p *peer) handle(env wire.Envelope) error {
	if err := p.checkReplies(); err != nil {
		return err
	}
	var err error
	switch env.Kind {
	case wire.EnvelopeEager:
		if err := p.proto.Eager(env); err != nil {
			return err
		}
		p.e.carryOut()
		if p.proto.In.Left == 0 {
			return p.arrived()
		}
		return nil
	case wire.EnvelopeData:
		return p.proto.Data(env)
	case wire.EnvelopeRTS:
		err = p.proto.RTS(env, p.in.lent)
	case wire.EnvelopeCTS:
		if err = p.proto.CTS(env); err == nil && env.Length == 0 {
			p.e.carryOut()
			p.announceBacklog()
		}
	case wire.EnvelopeTaken:
		return p.takenReceived(env)
	case wire.EnvelopeCredit:
		p.proto.MoreCredit(env)
		p.announceBacklog()
	case wire.EnvelopeWithdraw:
		p.proto.Withdrawal(env.ID)
	case wire.EnvelopeWithdrawn:
		if err = p.proto.Withdrawn(env); err == nil {
			p.e.carryOut()
			p.announceBacklog()
		}
	case wire.EnvelopeGoodbye:
		p.goodbyeReceived()
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeConfirm})
	case wire.EnvelopeConfirm:
		p.parting.byPeer = true
		p.confirm()
	case wire.EnvelopeCopying: // comes through shared memory only
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
	}
	p.e.carryOut()
	return err
}

// takenReceived handles a Taken. mu is held, and given up while the link may refer to the message.
func (p *peer) takenReceived(env wire.Envelope) error {
	taken, err := p.proto.Taken(env)
	if err != nil {
		return err
	}
	if r := owner(taken); r.mark > 0 && r.State != moving { // the peer's process has it, so the link has acknowledged it
		p.e.mu.Unlock()
		err := p.link.l.Conn.Await(r.mark)
		if errors.Is(err, os.ErrDeadlineExceeded) { // an interrupt for a write that has ended
			p.link.l.Conn.Reclaim()
			err = nil
		}
		p.e.mu.Lock()
		if err != nil {
			return err
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
	if note := p.in.note; note != nil {
		p.in.note = nil
		p.noteArrived(p.in.context, note)
	}
	return nil
}
