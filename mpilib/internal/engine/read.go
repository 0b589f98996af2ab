package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
	"github.com/isthmus-grid/isthmus/wire"
)

// readBuffer is how many bytes one read of small messages may return. No more than this is
// copied of a large message.
const readBuffer = 16 << 10

// incoming is the state of the peer's stream. The holder of the reading token owns it, but
// other goroutines look at request.
type incoming struct {
	buf        []byte
	begin, end int // of the buffered bytes

	// Of the message, or part of one, whose bytes are being read.
	size, left uint64    // bytes in all, and not read yet
	into       []byte    // where they go, as far as there is room
	request    *Request  // the receive whose buffer that is
	transfer   *transfer // of a matched RTS
	msg        *message  // or the message that is kept
	refund     int       // credit to return when they have come
	zeroCopy   zeroCopy  // of an RTS that exposes its buffer
	descriptor bool      // they say how to map the peer's memory
}

// message is a message that came before its receive, or the RTS of one.
type message struct {
	entry    match.Message[*message]
	ctxID    uint32
	source   int    // world rank
	data     []byte // the bytes that have come
	head     []byte // where the head of a rendezvous message goes while it comes
	size     uint64 // of all of it
	id       uint32 // of an RTS or a synchronous message
	rts      bool
	note     bool      // a note of the owner: see failure.go
	taken    bool      // a receive or a matched probe has it: it cannot be withdrawn
	sender   *Request  // a send to self that waits for its receive; nil for others
	paid     int       // credit to return once it is taken
	transfer *transfer // of an RTS that was matched while its head came
	zeroCopy zeroCopy  // of an RTS that exposes its buffer
}

func (m *message) tag() int { return int(m.entry.Tag) }

// transfer is a rendezvous message that a receive has matched.
type transfer struct {
	id   uint32
	r    *Request // nil: the receive was given up
	left uint64   // bytes to come

	// Of a zero-copy transfer, in which both processes copy pieces.
	zeroCopy     zeroCopy
	p            *peer
	claimed      int  // pieces that this process took
	copying      bool // this process is copying one
	awaitsSender bool // all pieces are taken; the sender is copying its last one
}

// readable reports whether the reading token is free. mu is held.
func (p *peer) readable() bool { return !p.reading.busy && p.link != nil && p.failed == nil }

// readForWaiter reads on behalf of a waiter until its request is complete or needs something
// else. mu is held, and released meanwhile.
func (p *peer) readForWaiter(ctx context.Context, r *Request) {
	p.reading.busy = true
	p.reading.count++
	p.reading.ctx.watch(p.e, ctx, p.interruptRead)
	r.reader, p.reading.forRequest = p, r
	for r.state != complete && r.holdError() == nil && p.failed == nil && !p.shm.open && ctx.Err() == nil && !(r.send && p.writable()) {
		p.step(r.send)
	}
	r.reader, p.reading.forRequest = nil, nil
	p.release(false)
}

// release returns the reading token. mu is held.
func (p *peer) release(stays bool) {
	p.reading.busy = false
	if p.shm.open && !stays {
		wake(p.reading.wake) // from now on it alone reads the link
	}
	switch {
	case p.reading.waiters > 0:
		wake(p.reading.token)
		fallthrough
	case !stays:
		p.reading.attended = false
		p.e.noteIdle()
	}
}

// reader reads the link while it is idle, until a waiter wants to. It ends with the link or the
// engine.
func (p *peer) reader() {
	e := p.e
	for {
		select {
		case <-p.reading.wake:
		case <-e.ctx.Done():
			return
		}
		e.mu.Lock()
		if p.readable() {
			p.reading.busy, p.reading.attended = true, true
			p.reading.count++
			for p.failed == nil && (p.reading.waiters == 0 || p.shm.open) && p.shm.linkErr == nil && e.ctx.Err() == nil {
				p.step(false)
			}
			p.release(p.shm.open)
		}
		failed := p.failed
		e.mu.Unlock()
		if failed != nil {
			return
		}
	}
}

// step reads once and handles what came; hold says that the caller does long writes. mu is
// held, and released while it reads.
func (p *peer) step(hold bool) {
	in := &p.in
	if p.hasBuffered() {
		if err := p.digest(); err != nil {
			p.readFailed(err)
			return
		}
		p.respond(hold)
		return
	}
	direct := in.left > 0 && in.begin == in.end && len(in.into) > 0
	var dst []byte
	if direct {
		dst = in.into[:min(in.left, uint64(len(in.into)))]
	} else {
		in.end = copy(in.buf, in.buf[in.begin:in.end])
		in.begin = 0
		dst = in.buf[in.end:]
	}
	p.reading.blocked = true
	p.e.mu.Unlock()
	n, err := p.link.Conn.Read(dst)
	p.e.mu.Lock()
	p.reading.blocked = false
	if n > 0 {
		if direct {
			in.into = in.into[n:]
			if in.left -= uint64(n); in.left == 0 {
				err = errors.Join(err, p.arrived())
			}
		} else {
			in.end += n
		}
		if broken := p.digest(); broken != nil {
			err = broken
		}
	}
	if !wasInterrupted(&p.reading.interrupted, err, p.link.Conn.SetReadDeadline) && err != nil {
		p.readFailed(err)
		return
	}
	if r := in.request; r != nil && r.giveUp != nil {
		p.giveUp(r)
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
	case p.in.left > 0:
		err = errors.New("the peer closed it in the middle of a message")
	default:
		err = errors.New("the peer closed it")
	}
	if p.e.ctx.Err() == nil {
		p.linkLost("receiving", err)
	} else {
		p.fail(p.e.closed)
	}
	if r := p.in.request; r != nil && p.failed != nil {
		p.in.request, p.in.into = nil, nil
		r.finish(p.failed)
	}
}

// stopReceive completes a receive that was given up while its message is coming. mu is held.
func (p *peer) stopReceive(r *Request) {
	if p.in.request == r {
		if p.reading.busy {
			p.interruptRead()
			return
		}
		p.giveUp(r)
		return
	}
	if f := p.arrivals.moving[r.id]; f != nil && f.r == r && f.zeroCopy.valid {
		wake(p.e.rings.attendantWake) // it is complete once the sender has stopped copying
	} else if f != nil && f.r == r {
		f.r = nil
		r.finish(r.giveUp)
	} // else it is being copied, and complete soon
}

// giveUp completes the receive whose bytes are coming, and returns its buffer to the owner.
func (p *peer) giveUp(r *Request) {
	in := &p.in
	in.request, in.into = nil, nil
	if in.transfer != nil {
		in.transfer.r = nil
	}
	r.finish(r.giveUp)
}

// hasBuffered reports whether digest has left bytes that it could handle.
func (p *peer) hasBuffered() bool {
	n := p.in.end - p.in.begin
	return n >= wire.EnvelopeLen || n > 0 && p.in.left > 0
}

// digest handles the buffered bytes until the request of the waiter that reads is complete: the
// waiter may post a receive for the next message. mu is held.
func (p *peer) digest() error {
	in := &p.in
	for {
		if in.left > 0 {
			n := min(in.left, uint64(in.end-in.begin))
			k := copy(in.into, in.buf[in.begin:in.begin+int(n)])
			in.into = in.into[k:]
			in.begin += int(n)
			if in.left -= n; in.left > 0 {
				return nil
			}
			if err := p.arrived(); err != nil {
				return err
			}
		}
		if in.end-in.begin < wire.EnvelopeLen || p.reading.forRequest != nil && p.reading.forRequest.state == complete {
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
	switch env.Kind {
	case wire.EnvelopeEager:
		return p.eager(env)
	case wire.EnvelopeRTS:
		return p.rtsReceived(env)
	case wire.EnvelopeData:
		return p.data(env)
	case wire.EnvelopeCTS:
		r := p.sends.pending[env.ID]
		if r == nil || r.cleared || env.Length != 0 && env.Length != r.got.Bytes {
			return p.unknownMessage("asks for", env)
		}
		p.ctsReceived(r, env.Length, env.Flags&wire.EnvelopeLate != 0)
	case wire.EnvelopeTaken:
		r := p.sends.pending[env.ID]
		if r == nil || r.cleared && r.at < len(r.buf) {
			return p.unknownMessage("has taken", env)
		}
		if r.mark > 0 && r.state != moving { // the peer's process has it, so the link has acknowledged it
			p.e.mu.Unlock()
			err := p.link.Conn.Await(r.mark)
			if errors.Is(err, os.ErrDeadlineExceeded) { // an interrupt for a write that has ended
				p.link.Conn.Reclaim()
				err = nil
			}
			p.e.mu.Lock()
			if err != nil {
				return err
			}
		}
		p.sendDone(r)
	case wire.EnvelopeCredit:
		p.sends.credit = min(p.sends.credit+int(env.Length), wire.MaxMessage) // how much of its memory the peer grants is its own affair
		if p.sends.credit > p.sends.maxCredit {
			p.sends.maxCredit, p.sends.eagerQueries = p.sends.credit, 0
		}
		p.sendBacklog()
	case wire.EnvelopeWithdraw:
		p.withdrawn(env.ID)
	case wire.EnvelopeWithdrawn:
		r := p.sends.pending[env.ID]
		if r == nil || r.cleared {
			return p.unknownMessage("gives back", env)
		}
		r.got.Cancelled = true
		p.sendDone(r)
	case wire.EnvelopeGoodbye:
		p.goodbyeReceived()
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeConfirm})
	case wire.EnvelopeConfirm:
		p.parting.byPeer = true
		p.confirm()
	case wire.EnvelopeCopying: // comes through shared memory only
		return p.unknownMessage("copies", env)
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
	return nil
}

func (p *peer) unknownMessage(does string, env wire.Envelope) error {
	return fmt.Errorf("%w: the peer %s message %d, of %d bytes, which is none", wire.ErrMalformed, does, env.ID, env.Length)
}

// eager handles the envelope of an eager message. mu is held.
func (p *peer) eager(env wire.Envelope) error {
	in, n := &p.in, env.Length
	p.stats.MessagesReceived++
	p.stats.BytesReceived += n
	in.size, in.left = n, n
	cost := int(n) + messageCost
	if env.ID != 0 || env.Flags != 0 {
		if err := p.arrivals.checkNewID(env.ID); err != nil {
			return err
		}
	}
	c, err := p.arrivalContext(env.Context)
	if err != nil {
		return err
	}
	switch m := c.table.Arrive(int32(p.rank), int32(env.Tag)); {
	case p.e.unwanted(env.Context):
		p.owe(cost)
		if env.Flags&wire.EnvelopeSynchronous != 0 {
			p.decline(env.ID, false)
		}
	case m != nil:
		p.matched(m.Owner, env)
		in.request, in.into = m.Owner, m.Owner.room()
		if env.Flags&wire.EnvelopeSynchronous != 0 {
			p.queueControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: env.ID})
		}
		p.owe(cost)
	default:
		if err := p.arrivals.charge(cost); err != nil {
			return err
		}
		in.msg = p.message(env)
		in.msg.data, in.msg.paid = make([]byte, n), cost
		in.into = in.msg.data
	}
	if n == 0 {
		return p.arrived()
	}
	return nil
}

func (p *peer) message(env wire.Envelope) *message {
	m := &message{ctxID: env.Context, source: p.rank, size: env.Length, id: env.ID}
	m.entry = match.Message[*message]{Source: int32(p.rank), Tag: int32(env.Tag), Owner: m}
	return m
}

// matched records which message a receive gets. mu is held.
func (p *peer) matched(r *Request, env wire.Envelope) {
	r.state = moving
	r.got = Result{Source: p.rank, Tag: int(env.Tag), Bytes: env.Length}
	r.err = truncated(env.Length, len(r.buf))
}

// room returns where the bytes of r's message go: nil if there are too many.
func (r *Request) room() []byte {
	if r.err != nil {
		return nil
	}
	return r.buf[:r.got.Bytes]
}

// rtsReceived handles an RTS. mu is held.
func (p *peer) rtsReceived(env wire.Envelope) error {
	p.stats.MessagesReceived++
	p.stats.BytesReceived += env.Length
	if err := p.arrivals.checkNewID(env.ID); err != nil {
		return err
	}
	c, err := p.arrivalContext(env.Context)
	if err != nil {
		return err
	}
	switch m := c.table.Arrive(int32(p.rank), int32(env.Tag)); {
	case p.e.unwanted(env.Context):
		p.decline(env.ID, true)
	case m != nil:
		p.matched(m.Owner, env)
		p.sendCTS(m.Owner, env.ID, 0, 0, p.in.zeroCopy)
	default:
		m := p.message(env)
		m.rts, m.zeroCopy = true, p.in.zeroCopy
		p.keep(m)
	}
	return nil
}

// keep stores a message until a receive matches it, and wakes probes. mu is held.
func (p *peer) keep(m *message) {
	if m.id != 0 {
		p.arrivals.kept[m.id] = m
	}
	p.e.contextOf(m.ctxID).table.Keep(&m.entry)
	p.e.wakeProbes()
}

// sendCTS asks for the rest of a matched message, of which have bytes are here; flags says
// whether the CTS is late. mu is held.
func (p *peer) sendCTS(r *Request, id uint32, have uint64, flags uint8, lent zeroCopy) *transfer {
	if r.err != nil || r.got.Bytes == 0 {
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeCTS, Flags: flags, ID: id})
		r.finish(r.err)
		return nil
	}
	if f := p.startCopy(r, id, lent); f != nil {
		return f
	}
	p.queueControl(wire.Envelope{Kind: wire.EnvelopeCTS, Flags: flags, ID: id, Length: r.got.Bytes})
	f := &transfer{id: id, r: r, left: r.got.Bytes}
	r.id = id
	p.arrivals.moving[id] = f
	p.transferred(f, have)
	return f
}

// transferred counts n more bytes of a transfer, and completes it. mu is held.
func (p *peer) transferred(f *transfer, n uint64) {
	if f.left -= n; f.left > 0 {
		return
	}
	delete(p.arrivals.moving, f.id)
	p.queueControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: f.id})
	if f.r != nil {
		f.r.finish(nil)
	}
}

// data handles the envelope of a part of a rendezvous message. mu is held.
func (p *peer) data(env wire.Envelope) error {
	in, n := &p.in, env.Length
	head := env.Flags&wire.EnvelopeHead != 0
	if n == 0 {
		return fmt.Errorf("%w: no data of message %d", wire.ErrMalformed, env.ID)
	}
	in.size, in.left = n, n
	if f := p.arrivals.moving[env.ID]; f != nil {
		if n > f.left || f.zeroCopy.valid {
			return fmt.Errorf("%w: message %d has %d bytes more than it was to have", wire.ErrMalformed, env.ID, n-f.left)
		}
		if in.transfer = f; f.r != nil {
			in.request, in.into = f.r, f.r.buf[f.r.got.Bytes-f.left:][:n]
		}
		if head {
			in.refund = int(n)
		}
		return nil
	}
	m := p.arrivals.kept[env.ID]
	switch {
	case !head:
		return p.unknownMessage("sends bytes of", env)
	case m == nil: // it was given up
		in.refund = int(n)
	case !m.rts || m.data != nil || n > m.size:
		return p.unknownMessage("sends the head of", env)
	default:
		if err := p.arrivals.charge(int(n)); err != nil {
			return err
		}
		in.msg, in.into = m, make([]byte, n)
		m.head = in.into
	}
	return nil
}

// arrived handles the last byte of a message or of a part of one. mu is held.
func (p *peer) arrived() error {
	in := &p.in
	r, f, m, n := in.request, in.transfer, in.msg, in.size
	p.owe(in.refund)
	p.countArrival(int(n), f != nil && in.refund == 0)
	in.request, in.transfer, in.msg, in.into, in.refund = nil, nil, nil, nil, 0
	if in.descriptor {
		in.descriptor = false
		return p.descriptorReceived()
	}
	switch {
	case f != nil:
		if r != nil && r.giveUp != nil {
			f.r = nil
			r.finish(r.giveUp)
		}
		p.transferred(f, n)
	case r != nil:
		r.finish(cmp.Or(r.giveUp, r.err))
	case m == nil: // dropped
	case m.note:
		p.noteArrived(m)
	case m.rts:
		p.headArrived(m)
	default: // a receive may have been posted while it came
		c := p.e.contextOf(m.ctxID)
		if to := c.table.Arrive(m.entry.Source, m.entry.Tag); to != nil {
			p.e.give(to.Owner, m)
		} else if !p.e.unwanted(m.ctxID) {
			p.keep(m)
		} else {
			p.refund(m.paid)
			if m.id != 0 {
				p.decline(m.id, false)
			}
		}
	}
	return nil
}

// headArrived stores the head of a rendezvous message, or copies it into the receive. mu is held.
func (p *peer) headArrived(m *message) {
	head := m.head
	m.head = nil
	switch f := m.transfer; {
	case f != nil: // matched meanwhile
		if f.r != nil {
			copy(f.r.buf, head)
		}
		p.refund(len(head))
		p.transferred(f, uint64(len(head)))
	case p.arrivals.kept[m.id] == m:
		m.data, m.paid = head, len(head)
	default:
		p.refund(len(head))
	}
}

// withdrawn handles a Withdraw: it drops the message, unless a receive has matched it. mu is
// held.
func (p *peer) withdrawn(id uint32) {
	m := p.arrivals.kept[id]
	if m == nil || m.taken {
		return
	}
	p.e.contextOf(m.ctxID).table.Remove(&m.entry)
	delete(p.arrivals.kept, id)
	p.refund(m.paid)
	p.queueControl(wire.Envelope{Kind: wire.EnvelopeWithdrawn, ID: id})
}
