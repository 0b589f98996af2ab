package protocol

import (
	"cmp"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
	"github.com/isthmus-grid/isthmus/wire"
)

// Receive has r, a request that waits, take a message that is here or was announced; otherwise it posts r,
// unless no message can come: then r fails. It reports whether r is posted.
func (c *Core) Receive(r *Request) (posted bool) {
	r.post.Source, r.post.Tag, r.post.Owner = int32(r.Peer), int32(r.Tag), r
	x := c.contextOf(r.Context)
	if m := x.table.Take(r.post.Source, r.post.Tag); m != nil {
		c.Give(r, m.Owner)
		return false
	}
	if err := c.SourceError(r.Peer); err != nil {
		c.finish(r, err)
		return false
	}
	x.table.Post(&r.post)
	return true
}

// Withdraw takes r back if it is posted, and reports whether it was. r goes on to wait.
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

// Find returns the message that a receive would take, or nil; with take only Give receives it.
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

// Give has a receive take a message that is here, or was announced.
func (c *Core) Give(r *Request, m *Message) {
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
			c.arrivals.wait(r, m)
			return
		}
		r.arrival, a.request, a.message = a, r, nil
	}
	if r.Err == nil {
		if len(m.Data) > c.maxCopied {
			c.emit(Effect{Kind: Copy, Request: r, Message: m})
			return
		}
		copy(r.Buf, m.Data)
	}
	c.Given(r, m)
}

// Given goes on when what is here of a message was copied.
func (c *Core) Given(r *Request, m *Message) {
	if m.from == nil {
		c.selfHeld -= m.paid
		if m.Sender != nil {
			c.finish(m.Sender, nil)
		}
		c.finish(r, r.Err)
		return
	}
	p := m.from
	p.refund(m.paid)
	if m.id != 0 {
		delete(p.kept, m.id)
	}
	c.emit(Effect{Kind: Dispatch, Peer: p})
	switch {
	case m.rts && p.Failed != nil:
		c.finish(r, p.Failed)
	case m.rts:
		m.transfer = p.transfer(r, m.id, uint64(len(m.Data)), wire.EnvelopeLate, m.lent)
	default:
		if m.id != 0 {
			p.control(wire.Envelope{Kind: wire.EnvelopeTaken, ID: m.id})
		}
		c.finish(r, r.Err)
	}
}

// drop forgets a message that is in no table any more.
func (c *Core) drop(m *Message) {
	if m.from == nil {
		c.selfHeld -= m.paid
		if m.Sender != nil {
			c.finish(m.Sender, c.closed)
		}
		return
	}
	p := m.from
	p.refund(m.paid)
	c.arrivals.drop(m.arrival)
	if p.kept[m.id] != m {
		return
	}
	delete(p.kept, m.id)
	p.decline(m.id, m.rts)
	c.emit(Effect{Kind: Dispatch, Peer: p})
}

// decline tells the peer that nobody will want a message that it announced, or that
// is synchronous.
func (p *Peer) decline(id uint32, rts bool) {
	if rts {
		p.control(wire.Envelope{Kind: wire.EnvelopeCTS, ID: id})
		return
	}
	p.control(wire.Envelope{Kind: wire.EnvelopeTaken, ID: id})
}

func unknownMessage(does string, env wire.Envelope) error {
	return fmt.Errorf("%w: the peer %s message %d, of %d bytes, which is none", wire.ErrMalformed, does, env.ID, env.Length)
}

// UnknownMessage is the error of an envelope that refers to a message that is not there.
func UnknownMessage(does string, env wire.Envelope) error { return unknownMessage(does, env) }

// checkNewID says what is wrong with the id of a message that the peer announces, or wants to be
// told of, or returns nil.
func (p *Peer) checkNewID(id uint32) error {
	switch {
	case id == 0:
		return fmt.Errorf("%w: message 0 is announced", wire.ErrMalformed)
	case p.kept[id] != nil || p.moving[id] != nil:
		return fmt.Errorf("%w: message %d is announced twice", wire.ErrMalformed, id)
	case len(p.kept) >= 2*MaxPendingSends:
		return fmt.Errorf("%w: %d messages announced at a time", wire.ErrMalformed, len(p.kept))
	}
	return nil
}

// Eager is the envelope of an eager message. If no bytes follow it Arrived is to be called at once.
func (p *Peer) Eager(env wire.Envelope) error {
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
		return s.eager(p, x, env)
	}
	switch m := x.table.Arrive(int32(p.Rank), int32(env.Tag)); {
	case p.core.Unwanted(env.Context):
		p.owe(cost)
		if env.Flags&wire.EnvelopeSynchronous != 0 {
			p.decline(env.ID, false)
		}
	case m != nil:
		p.matched(m.Owner, env)
		in.Request, in.Into = m.Owner, m.Owner.room()
		if env.Flags&wire.EnvelopeSynchronous != 0 {
			p.control(wire.Envelope{Kind: wire.EnvelopeTaken, ID: env.ID})
		}
		p.owe(cost)
	default:
		if err := p.charge(cost); err != nil {
			return err
		}
		in.message = p.message(env)
		in.message.Data, in.message.paid = make([]byte, n), cost
		in.Into = in.message.Data
	}
	return nil
}

// Direct notes that an eager message of n bytes was received though its receive was not posted.
func (p *Peer) Direct(n int) {
	p.MessagesReceived++
	p.BytesReceived += uint64(n)
	p.owe(n + MessageCost)
}

func (p *Peer) message(env wire.Envelope) *Message {
	m := &Message{Context: env.Context, Source: p.Rank, from: p, Size: env.Length, id: env.ID}
	m.entry = match.Message[*Message]{Source: int32(p.Rank), Tag: int32(env.Tag), Owner: m}
	return m
}

// matched records which message a receive gets.
func (p *Peer) matched(r *Request, env wire.Envelope) {
	r.State, r.From = Moving, p
	r.Got = Result{Source: p.Rank, Tag: int(env.Tag), Bytes: env.Length}
	r.Err = truncated(env.Length, len(r.Buf))
	if r.Point != 0 {
		p.core.emit(Effect{Kind: Matched, Request: r})
	}
}

// RTS is the peer's, of a message whose buffer may be lent.
func (p *Peer) RTS(env wire.Envelope, lent Lent) error {
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
		s.rts(p, x, env)
		return nil
	}
	switch m := x.table.Arrive(int32(p.Rank), int32(env.Tag)); {
	case p.core.Unwanted(env.Context):
		p.decline(env.ID, true)
	case m != nil:
		p.matched(m.Owner, env)
		p.transfer(m.Owner, env.ID, 0, 0, lent)
	default:
		m := p.message(env)
		m.rts, m.lent = true, lent
		p.keep(m)
	}
	return nil
}

// keep stores a message until a receive matches it, and wakes probes.
func (p *Peer) keep(m *Message) {
	if m.id != 0 {
		p.kept[m.id] = m
	}
	p.core.contextOf(m.Context).table.Keep(&m.entry)
	p.core.emit(Effect{Kind: Probe})
}

// Kept returns the message that is kept under an id, or nil.
func (p *Peer) Kept(id uint32) *Message { return p.kept[id] }

// Moving returns the transfer of a matched message with an id, or nil.
func (p *Peer) Moving(id uint32) *Transfer { return p.moving[id] }

// transfer asks for the rest of a matched message, of which have bytes are here; late is the
// flags of the CTS.
func (p *Peer) transfer(r *Request, id uint32, have uint64, late uint8, lent Lent) *Transfer {
	if r.Err != nil || r.Got.Bytes == 0 {
		p.core.arrivals.received(r)
		p.control(wire.Envelope{Kind: wire.EnvelopeCTS, Flags: late, ID: id})
		p.core.finish(r, r.Err)
		return nil
	}
	f := &Transfer{ID: id, Request: r, left: r.Got.Bytes, have: have, late: late, Lent: lent}
	r.ID = id
	p.moving[id] = f
	if lent.Valid && p.Failed == nil {
		f.Fetching = true
		p.core.emit(Effect{Kind: Fetch, Peer: p, Transfer: f})
		return f
	}
	p.Clear(f)
	return f
}

// Clear asks for the bytes of a transfer to be sent.
func (p *Peer) Clear(f *Transfer) {
	f.Fetching = false
	p.control(wire.Envelope{Kind: wire.EnvelopeCTS, Flags: f.late, ID: f.ID, Length: f.Request.Got.Bytes})
	p.transferred(f, f.have)
}

// Fetched completes a transfer whose bytes were fetched.
func (p *Peer) Fetched(f *Transfer) {
	delete(p.moving, f.ID)
	p.control(wire.Envelope{Kind: wire.EnvelopeTaken, ID: f.ID})
	p.core.finish(f.Request, f.Request.GiveUp)
}

// transferred counts n more bytes of a transfer, and completes it.
func (p *Peer) transferred(f *Transfer, n uint64) {
	if f.left -= n; f.left > 0 {
		return
	}
	delete(p.moving, f.ID)
	p.control(wire.Envelope{Kind: wire.EnvelopeTaken, ID: f.ID})
	if f.Request != nil {
		p.core.arrivals.received(f.Request)
		p.core.finish(f.Request, nil)
	}
}

// Data is the envelope of a part of a rendezvous message.
func (p *Peer) Data(env wire.Envelope) error {
	in, n := &p.In, env.Length
	head := env.Flags&wire.EnvelopeHead != 0
	if n == 0 {
		return fmt.Errorf("%w: no data of message %d", wire.ErrMalformed, env.ID)
	}
	in.Size, in.Left = n, n
	if f := p.moving[env.ID]; f != nil {
		if n > f.left || f.Fetching {
			return fmt.Errorf("%w: message %d has %d bytes more than it was to have", wire.ErrMalformed, env.ID, n-f.left)
		}
		if in.transfer = f; f.Request != nil {
			in.Request, in.Into = f.Request, f.Request.Buf[f.Request.Got.Bytes-f.left:][:n]
		}
		if head {
			in.refund = int(n)
		}
		return nil
	}
	m := p.kept[env.ID]
	switch {
	case !head:
		return unknownMessage("sends bytes of", env)
	case m == nil: // it was given up
		in.refund = int(n)
	case !m.rts || m.Data != nil || n > m.Size:
		return unknownMessage("sends the head of", env)
	default:
		if err := p.charge(int(n)); err != nil {
			return err
		}
		in.message, in.Into = m, make([]byte, n)
		m.head = in.Into
	}
	return nil
}

// Arrived notes the last byte of a message or of a part of one. It returns the receive that is
// complete with it, mostly, or nil; others are among the effects.
func (p *Peer) Arrived() (done *Request) {
	in := &p.In
	r, f, m, a, n := in.Request, in.transfer, in.message, in.arrival, in.Size
	p.owe(in.refund)
	p.countArrival(int(n), f != nil && in.refund == 0)
	in.Request, in.transfer, in.message, in.Into, in.refund, in.arrival = nil, nil, nil, nil, 0, nil
	switch {
	case f != nil:
		if r != nil && r.GiveUp != nil {
			f.Request = nil
			p.core.arrivals.drop(r.arrival)
			p.core.finish(r, r.GiveUp)
		}
		p.transferred(f, n)
	case r != nil:
		p.core.arrivals.received(r)
		if r.Complete(cmp.Or(r.GiveUp, r.Err)) {
			return r
		}
	case m == nil: // dropped
	case m.rts:
		p.headArrived(m)
	case a != nil && p.core.arrivals.whole(p, a, m):
	default: // a receive may have been posted while it came
		x := p.core.contextOf(m.Context)
		if to := x.table.Arrive(m.entry.Source, m.entry.Tag); to != nil {
			p.core.Give(to.Owner, m)
		} else if !p.core.Unwanted(m.Context) {
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

// headArrived stores the head of a rendezvous message, or copies it into the receive.
func (p *Peer) headArrived(m *Message) {
	head := m.head
	m.head = nil
	switch f := m.transfer; {
	case f != nil: // matched meanwhile
		if f.Request != nil {
			copy(f.Request.Buf, head)
		}
		p.refund(len(head))
		p.transferred(f, uint64(len(head)))
	case p.kept[m.id] == m:
		m.Data, m.paid = head, len(head)
	default:
		p.refund(len(head))
	}
}

// Withdrawal is the peer's: it drops the message, unless a receive has matched it.
func (p *Peer) Withdrawal(id uint32) {
	m := p.kept[id]
	if m == nil || m.Taken {
		return
	}
	p.core.contextOf(m.Context).table.Remove(&m.entry)
	delete(p.kept, id)
	p.refund(m.paid)
	p.control(wire.Envelope{Kind: wire.EnvelopeWithdrawn, ID: id})
}

// StopReceive ends a receive that was given up while its bytes come, and reports whether it is
// complete: not if it is being copied or fetched, and complete soon.
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
	if f := p.moving[r.ID]; f != nil && f.Request == r && !f.Fetching {
		f.Request = nil
		p.core.arrivals.drop(r.arrival)
		p.core.finish(r, r.GiveUp)
		return true
	}
	return false
}
