package protocol

import (
	"cmp"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
	"github.com/isthmus-grid/isthmus/wire"
)

// Receive matches r, a request that waits, with the oldest fitting unexpected message. Without one it posts r,
// or fails it if no message can arrive (MPI-4.1, section 3.5). It reports whether r is posted.
func (c *Core) Receive(r *Request) (posted bool) {
	r.post.Source, r.post.Tag, r.post.Owner = int32(r.Peer), int32(r.Tag), r
	x := c.contextOf(r.Context)
	if m := x.table.Take(r.post.Source, r.post.Tag); m != nil {
		c.MatchUnexpected(r, m.Owner)
		return false
	}
	if err := c.SourceError(r.Peer); err != nil {
		c.finish(r, err)
		return false
	}
	x.table.Post(&r.post)
	return true
}

// Withdraw removes r from the posted receives, and reports whether it was there. r is not completed.
func (c *Core) Withdraw(r *Request) bool {
	return c.contextOf(r.Context).table.Withdraw(&r.post)
}

// CancelReceive completes r as if it had never been posted, unless a message has matched it.
func (c *Core) CancelReceive(r *Request) {
	if r.State == Waiting && c.Withdraw(r) {
		r.Got.Cancelled = true
		c.finish(r, nil)
	}
}

// Find returns the unexpected message that a receive would match, or nil. With take it removes the message from
// the unexpected queue, and only MatchUnexpected receives it (MPI-4.1, section 3.8.2, matched probes).
func (c *Core) Find(context uint32, source, tag int, take bool) *Message {
	t := &c.contextOf(context).table
	m := t.Peek(int32(source), int32(tag))
	if m == nil {
		return nil
	}
	if take {
		t.Remove(m)
		m.Owner.Taken = true
	}
	return m.Owner
}

// MatchUnexpected matches a receive with an unexpected message, which is in no queue any more.
func (c *Core) MatchUnexpected(r *Request, m *Message) {
	r.State, r.From, m.Taken = Moving, m.from, true
	r.Got = Result{Source: m.Source, Tag: m.Tag(), Bytes: m.Size}
	r.Err = truncated(m.Size, len(r.Buf))
	if r.Point != 0 {
		c.emit(Effect{Kind: Matched, Request: r})
	}
	if m.Sender != nil {
		m.Sender.State = Moving
	}
	if a := m.arrival; a != nil {
		if m.lost {
			c.arrivals.awaitResend(r, m)
			return
		}
		r.arrival, a.request, a.message = a, r, nil
	}
	if r.Err == nil {
		// A message that another process may send again is copied under the lock: if its sender were lost
		// meanwhile, both would write to the buffer.
		if len(m.Data) > c.maxCopied && m.arrival == nil {
			c.emit(Effect{Kind: Copy, Request: r, Message: m})
			return
		}
		copy(r.Buf, m.Data)
	}
	c.UnexpectedCopied(r, m)
}

// UnexpectedCopied completes a receive, or asks for the remaining bytes of its message, once the bytes that had
// arrived before the match are copied.
func (c *Core) UnexpectedCopied(r *Request, m *Message) {
	if m.from == nil {
		c.selfHeld -= m.credit
		if m.Sender != nil {
			c.finish(m.Sender, nil)
		}
		c.finish(r, r.Err)
		return
	}
	p := m.from
	p.refundCredit(m.credit)
	if m.id != 0 {
		delete(p.unexpected, m.id)
	}
	c.emit(Effect{Kind: Dispatch, Peer: p})
	switch {
	case m.rts && p.Failed != nil:
		c.finish(r, p.Failed)
	case m.rts:
		if m.transfer = p.startTransfer(r, m.id, uint64(len(m.Data)), wire.EnvelopeLate, m.exposed); r.GiveUp != nil { // while it was copied
			p.StopReceive(r)
		}
	default:
		if m.id != 0 {
			p.emitControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: m.id})
		}
		c.finish(r, r.Err)
	}
}

// drop discards an unexpected message that is in no queue any more, and declines it if it was announced.
func (c *Core) drop(m *Message) {
	if m.from == nil {
		c.selfHeld -= m.credit
		if m.Sender != nil {
			c.finish(m.Sender, c.closed)
		}
		return
	}
	p := m.from
	p.refundCredit(m.credit)
	c.arrivals.drop(m.arrival)
	if p.unexpected[m.id] != m {
		return
	}
	delete(p.unexpected, m.id)
	p.decline(m.id, m.rts)
	c.emit(Effect{Kind: Dispatch, Peer: p})
}

// decline completes a message at its sender that will not be received: one announced by an RTS, or a
// synchronous one.
func (p *Peer) decline(id uint32, rts bool) {
	if rts {
		p.emitControl(wire.Envelope{Kind: wire.EnvelopeCTS, ID: id})
		return
	}
	p.emitControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: id})
}

func unknownMessage(does string, env wire.Envelope) error {
	return fmt.Errorf("%w: the peer %s message %d, of %d bytes, which is none", wire.ErrMalformed, does, env.ID, env.Length)
}

// UnknownMessage returns the error of an envelope that refers to an unknown message.
func UnknownMessage(does string, env wire.Envelope) error { return unknownMessage(does, env) }

// checkNewID returns what is wrong with the id of a message that the peer announces by an RTS or sends in
// synchronous mode, or nil.
func (p *Peer) checkNewID(id uint32) error {
	switch {
	case id == 0:
		return fmt.Errorf("%w: message 0 is announced", wire.ErrMalformed)
	case p.unexpected[id] != nil || p.transfers[id] != nil:
		return fmt.Errorf("%w: message %d is announced twice", wire.ErrMalformed, id)
	case len(p.unexpected) >= 2*MaxPendingSends:
		return fmt.Errorf("%w: %d messages announced at a time", wire.ErrMalformed, len(p.unexpected))
	}
	return nil
}

// EagerReceived handles the envelope of an eager message. If no bytes follow it Arrived is to be called at once.
func (p *Peer) EagerReceived(env wire.Envelope) error {
	in, n := &p.In, env.Length
	p.MessagesReceived++
	p.BytesReceived += n
	in.Size, in.Left = n, n
	cost := int(n) + MessageCost
	if env.ID != 0 || env.Flags != 0 {
		if err := p.checkNewID(env.ID); err != nil {
			return err
		}
	}
	x, err := p.arrivalContext(env.Context)
	if err != nil {
		return err
	}
	if s := p.core.arrivals; s != nil {
		return s.eagerReceived(p, x, env)
	}
	switch m := x.table.Arrive(int32(p.Rank), int32(env.Tag)); {
	case p.core.Discards(env.Context):
		p.oweCredit(cost)
		if env.Flags&wire.EnvelopeSynchronous != 0 {
			p.decline(env.ID, false)
		}
	case m != nil:
		p.recordMatch(m.Owner, env)
		in.Request, in.Into = m.Owner, m.Owner.destination()
		if env.Flags&wire.EnvelopeSynchronous != 0 {
			p.emitControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: env.ID})
		}
		p.oweCredit(cost)
	default:
		if err := p.chargeCredit(cost); err != nil {
			return err
		}
		in.message = p.newMessage(env)
		in.message.Data, in.message.credit = make([]byte, n), cost
		in.Into = in.message.Data
	}
	return nil
}

// CountDirect counts an eager message of n bytes that was copied from the ring without posting its receive.
func (p *Peer) CountDirect(n int) {
	p.MessagesReceived++
	p.BytesReceived += uint64(n)
	p.oweCredit(n + MessageCost)
}

func (p *Peer) newMessage(env wire.Envelope) *Message {
	m := &Message{Context: env.Context, Source: p.Rank, from: p, Size: env.Length, id: env.ID}
	m.entry = match.Message[*Message]{Source: int32(p.Rank), Tag: int32(env.Tag), Owner: m}
	return m
}

// recordMatch records which message r has matched.
func (p *Peer) recordMatch(r *Request, env wire.Envelope) {
	r.State, r.From = Moving, p
	r.Got = Result{Source: p.Rank, Tag: int(env.Tag), Bytes: env.Length}
	r.Err = truncated(env.Length, len(r.Buf))
	if r.Point != 0 {
		p.core.emit(Effect{Kind: Matched, Request: r})
	}
}

// RTSReceived handles a request to send (RTS): the announcement of a rendezvous message, whose buffer the sender
// may have exposed.
func (p *Peer) RTSReceived(env wire.Envelope, exposed ExposedBuffer) error {
	p.MessagesReceived++
	p.BytesReceived += env.Length
	if err := p.checkNewID(env.ID); err != nil {
		return err
	}
	x, err := p.arrivalContext(env.Context)
	if err != nil {
		return err
	}
	if s := p.core.arrivals; s != nil {
		s.rtsReceived(p, x, env)
		return nil
	}
	switch m := x.table.Arrive(int32(p.Rank), int32(env.Tag)); {
	case p.core.Discards(env.Context):
		p.decline(env.ID, true)
	case m != nil:
		p.recordMatch(m.Owner, env)
		p.startTransfer(m.Owner, env.ID, 0, 0, exposed)
	default:
		m := p.newMessage(env)
		m.rts, m.exposed = true, exposed
		p.queueUnexpected(m)
	}
	return nil
}

// queueUnexpected appends a message to the unexpected queue, and wakes probes.
func (p *Peer) queueUnexpected(m *Message) {
	if m.id != 0 {
		p.unexpected[m.id] = m
	}
	p.core.contextOf(m.Context).table.Keep(&m.entry)
	p.core.emit(Effect{Kind: Probe})
}

// Unexpected returns the unexpected message with an id, or nil.
func (p *Peer) Unexpected(id uint32) *Message { return p.unexpected[id] }

// Transfer returns the transfer of a matched message with an id, or nil.
func (p *Peer) Transfer(id uint32) *Transfer { return p.transfers[id] }

// startTransfer asks for the remaining bytes of a matched message by a clear to send (CTS) with flags late, or
// fetches them; have bytes have arrived already.
func (p *Peer) startTransfer(r *Request, id uint32, have uint64, late uint8, exposed ExposedBuffer) *Transfer {
	if r.Err != nil || r.Got.Bytes == 0 {
		p.core.arrivals.received(r)
		p.emitControl(wire.Envelope{Kind: wire.EnvelopeCTS, Flags: late, ID: id})
		p.core.finish(r, r.Err)
		return nil
	}
	f := &Transfer{ID: id, Request: r, remaining: r.Got.Bytes, early: have, ctsFlags: late, Exposed: exposed}
	r.ID = id
	p.transfers[id] = f
	if exposed.Valid && p.Failed == nil {
		f.Fetching = true
		p.core.emit(Effect{Kind: Fetch, Peer: p, Transfer: f})
		return f
	}
	p.SendCTS(f)
	return f
}

// SendCTS asks the sender for the bytes of a transfer.
func (p *Peer) SendCTS(f *Transfer) {
	f.Fetching = false
	p.emitControl(wire.Envelope{Kind: wire.EnvelopeCTS, Flags: f.ctsFlags, ID: f.ID, Length: f.Request.Got.Bytes})
	p.countTransferred(f, f.early)
}

// FetchDone completes a transfer whose bytes were fetched from the sender's buffer.
func (p *Peer) FetchDone(f *Transfer) {
	delete(p.transfers, f.ID)
	p.emitControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: f.ID})
	p.core.finish(f.Request, f.Request.GiveUp)
}

// countTransferred counts n more bytes of a transfer, and completes it.
func (p *Peer) countTransferred(f *Transfer, n uint64) {
	if f.remaining -= n; f.remaining > 0 {
		return
	}
	delete(p.transfers, f.ID)
	p.emitControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: f.ID})
	if f.Request != nil {
		p.core.arrivals.received(f.Request)
		p.core.finish(f.Request, nil)
	}
}

// DataReceived handles the envelope of a part of a rendezvous message.
func (p *Peer) DataReceived(env wire.Envelope) error {
	in, n := &p.In, env.Length
	head := env.Flags&wire.EnvelopeHead != 0
	if n == 0 {
		return fmt.Errorf("%w: no data of message %d", wire.ErrMalformed, env.ID)
	}
	in.Size, in.Left = n, n
	if f := p.transfers[env.ID]; f != nil {
		if n > f.remaining || f.Fetching {
			return fmt.Errorf("%w: message %d has %d bytes more than it was to have", wire.ErrMalformed, env.ID, n-f.remaining)
		}
		if in.transfer = f; f.Request != nil {
			in.Request, in.Into = f.Request, f.Request.Buf[f.Request.Got.Bytes-f.remaining:][:n]
		}
		if head {
			in.refund = int(n)
		}
		return nil
	}
	m := p.unexpected[env.ID]
	switch {
	case !head:
		return unknownMessage("sends bytes of", env)
	case m == nil: // the sender has withdrawn it
		in.refund = int(n)
	case !m.rts || m.Data != nil || n > m.Size:
		return unknownMessage("sends the head of", env)
	default:
		if err := p.chargeCredit(int(n)); err != nil {
			return err
		}
		in.message, in.Into = m, make([]byte, n)
		m.head = in.Into
	}
	return nil
}

// Arrived is called after the last byte of a message or of a part of one. It returns the receive that this
// completes, mostly, or nil: then it is completed by an effect.
func (p *Peer) Arrived() (done *Request) {
	in := &p.In
	r, f, m, a, n := in.Request, in.transfer, in.message, in.arrival, in.Size
	p.oweCredit(in.refund)
	p.countArrival(int(n), f != nil && in.refund == 0)
	in.Request, in.transfer, in.message, in.Into, in.refund, in.arrival = nil, nil, nil, nil, 0, nil
	switch {
	case f != nil:
		if r != nil && r.GiveUp != nil {
			f.Request = nil
			p.core.arrivals.drop(r.arrival)
			p.core.finish(r, r.GiveUp)
		}
		p.countTransferred(f, n)
		if r != nil && p.Failed != nil { // lost while this part was read: no other comes
			p.core.finish(r, p.Failed)
		}
	case r != nil:
		p.core.arrivals.received(r)
		if r.Complete(cmp.Or(r.GiveUp, r.Err)) {
			return r
		}
	case m == nil: // dropped
	case m.rts:
		p.headArrived(m)
	case a != nil && p.core.arrivals.bodyArrived(p, a, m):
	default: // a receive may have been posted while the bytes arrived
		x := p.core.contextOf(m.Context)
		if to := x.table.Arrive(m.entry.Source, m.entry.Tag); to != nil {
			p.core.MatchUnexpected(to.Owner, m)
		} else if !p.core.Discards(m.Context) {
			p.queueUnexpected(m)
		} else {
			p.refundCredit(m.credit)
			if m.id != 0 {
				p.decline(m.id, false)
			}
		}
	}
	return nil
}

// headArrived stores the head of a rendezvous message, or copies it into the receive.
func (p *Peer) headArrived(m *Message) {
	head := m.head
	m.head = nil
	switch f := m.transfer; {
	case f != nil: // matched meanwhile
		if f.Request != nil {
			copy(f.Request.Buf, head)
		}
		p.refundCredit(len(head))
		p.countTransferred(f, uint64(len(head)))
	case p.unexpected[m.id] == m:
		m.Data, m.credit = head, len(head)
	default:
		p.refundCredit(len(head))
	}
}

// WithdrawReceived handles the withdrawal of a message by its sender: it drops the message, unless a receive has
// matched it (MPI-4.1, section 3.8.4).
func (p *Peer) WithdrawReceived(id uint32) {
	m := p.unexpected[id]
	if m == nil || m.Taken {
		return
	}
	p.core.contextOf(m.Context).table.Remove(&m.entry)
	delete(p.unexpected, id)
	p.refundCredit(m.credit)
	p.emitControl(wire.Envelope{Kind: wire.EnvelopeWithdrawn, ID: id})
}

// StopReceive ends a receive that was abandoned while its bytes arrive, and reports whether it is
// complete. Otherwise its bytes are being copied or fetched, and it completes after that.
func (p *Peer) StopReceive(r *Request) bool {
	if in := &p.In; in.Request == r {
		in.Request, in.Into = nil, nil
		if in.transfer != nil {
			in.transfer.Request = nil
		}
		p.core.arrivals.drop(r.arrival)
		p.core.finish(r, r.GiveUp)
		return true
	}
	if f := p.transfers[r.ID]; f != nil && f.Request == r && !f.Fetching {
		f.Request = nil
		p.core.arrivals.drop(r.arrival)
		p.core.finish(r, r.GiveUp)
		return true
	}
	return false
}
