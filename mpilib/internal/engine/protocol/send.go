package protocol

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
	"github.com/isthmus-grid/isthmus/wire"
)

// CanSendNow reports whether a message of n bytes in standard or buffered mode may be sent
// now, eagerly. If it is, in an EagerEnvelope, SentNow is to be called.
func (p *Peer) CanSendNow(n int) bool {
	return p.Failed == nil && !p.Gone && len(p.backlog) == 0 && n+MessageCost <= p.Credit
}

// EagerEnvelope is that of a message that is sent eagerly, not in synchronous mode.
func EagerEnvelope(context uint32, tag, n int) wire.Envelope {
	return wire.Envelope{Kind: wire.EnvelopeEager, Context: context, Tag: uint32(tag), Length: uint64(n)}
}

// SentNow counts a message of n bytes that CanSendNow permitted and that was sent.
func (p *Peer) SentNow(n int) {
	p.Credit -= n + MessageCost
	p.MessagesSent++
	p.BytesSent += uint64(n)
}

// Send sends r, a request that waits, or queues it. Messages of up to eager bytes are sent eagerly, with credit.
func (p *Peer) Send(r *Request, eager int) {
	switch {
	case p.Failed != nil:
		p.core.finish(r, p.Failed)
		return
	case p.Gone:
		p.core.finish(r, p.GoodbyeError())
		return
	}
	p.MessagesSent++
	p.BytesSent += uint64(len(r.Buf))
	if len(p.backlog) > 0 || !p.announce(r, eager) {
		p.backlog = append(p.backlog, r)
	}
}

// Backlog returns how many queued sends are not announced yet.
func (p *Peer) Backlog() int { return len(p.backlog) }

// AnnounceNext announces the first send of the backlog, if credit and limits permit that, and reports whether
// they do.
func (p *Peer) AnnounceNext(eager int) bool {
	if len(p.backlog) == 0 || !p.announce(p.backlog[0], eager) {
		return false
	}
	p.backlog[0] = nil
	if p.backlog = p.backlog[1:]; len(p.backlog) == 0 {
		p.backlog = nil
	}
	return true
}

// announce sends r's message or its RTS, and returns false if not even the RTS may be sent
// now. Messages are announced in the order of their sends.
func (p *Peer) announce(r *Request, eager int) bool {
	n := len(r.Buf)
	env := EagerEnvelope(r.Context, r.Tag, n)
	if cost := n + MessageCost; n <= eager && cost <= p.Credit && !r.ByRTS {
		p.Credit -= cost
		if r.Mode == Synchronous {
			env.Flags, env.ID = wire.EnvelopeSynchronous, p.assignID(r)
		}
		p.core.emit(Effect{Kind: Eager, Peer: p, Env: env, Request: r, N: n})
		return true
	}
	if len(p.pending) >= p.core.maxPending {
		return false
	}
	env.Kind, env.ID = wire.EnvelopeRTS, p.assignID(r)
	p.core.emit(Effect{Kind: RTS, Peer: p, Env: env, Request: r})
	return true
}

// SendHead sends up to most bytes of r, which was announced and is not exposed, before the CTS, as far
// as there is credit.
func (p *Peer) SendHead(r *Request, most int) {
	head := min(len(r.Buf), most, p.Credit)
	if head <= 0 {
		return
	}
	p.Credit -= head
	r.Offset = head
	env := wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: r.ID, Length: uint64(head)}
	p.core.emit(Effect{Kind: Head, Peer: p, Env: env, Request: r, N: head})
}

// assignID gives r an id under which it is pending.
func (p *Peer) assignID(r *Request) uint32 {
	for {
		p.nextID++
		if _, used := p.pending[p.nextID]; !used && p.nextID != 0 {
			break
		}
	}
	r.ID = p.nextID
	p.pending[r.ID] = r
	return r.ID
}

// Written is called after bytes of r were copied or written; whole says that these were all of an eager
// message. It returns an error if r was abandoned meanwhile and is to be withdrawn now, with
// that error.
func (p *Peer) Written(r *Request, whole bool) error {
	c := p.core
	switch {
	case p.Failed != nil:
		c.finish(r, p.Failed)
	case whole && r.Mode != Synchronous:
		c.finish(r, r.GiveUp)
	case r.ended:
		c.emit(Effect{Kind: Recall, Peer: p, Request: r})
		c.finish(r, r.GiveUp)
	default:
		if r.State == Moving {
			r.State = Waiting
		}
		if r.State == Waiting && r.GiveUp != nil {
			return r.GiveUp
		}
		p.streamRemaining(r)
	}
	return nil
}

// streamRemaining emits Stream for a send if its CTS has arrived and its head is not being written any more.
func (p *Peer) streamRemaining(r *Request) {
	if r.HasCTS && r.State == Waiting && r.Offset < len(r.Buf) {
		p.core.emit(Effect{Kind: Stream, Peer: p, Request: r})
	}
}

// CTSReceived handles a CTS: the peer has matched an announced message, and asks for all or nothing of it. If that is
// nothing SendDone is to be called with the request.
func (p *Peer) CTSReceived(env wire.Envelope) (done *Request, err error) {
	r := p.pending[env.ID]
	if r == nil || r.HasCTS || env.Length != 0 && env.Length != r.Got.Bytes {
		return nil, unknownMessage("asks for", env)
	}
	if env.Flags&wire.EnvelopeLate != 0 { // the receive was posted after the RTS had come
		p.head = 0
	} else {
		p.head = min(4*max(p.head, EagerShort), MaxHead)
	}
	if env.Length == 0 {
		return r, nil
	}
	r.HasCTS = true
	p.streamRemaining(r)
	return nil, nil
}

// TakenReceived handles Taken: the peer has received a message. SendDone is to be called with the request.
func (p *Peer) TakenReceived(env wire.Envelope) (*Request, error) {
	r := p.pending[env.ID]
	if r == nil || r.HasCTS && r.Offset < len(r.Buf) {
		return nil, unknownMessage("has taken", env)
	}
	return r, nil
}

// CreditReceived handles credit that the peer returns or grants. AnnounceNext is to be called.
func (p *Peer) CreditReceived(env wire.Envelope) {
	p.Credit = min(p.Credit+int(env.Length), wire.MaxMessage) // how much of its memory the peer grants is its own affair
	if p.Credit > p.maxCredit {
		p.maxCredit, p.eagerQueries = p.Credit, 0
	}
}

// WithdrawnReceived handles Withdrawn: the peer has dropped a message as requested. SendDone is to be called with the
// request.
func (p *Peer) WithdrawnReceived(env wire.Envelope) (*Request, error) {
	r := p.pending[env.ID]
	if r == nil || r.HasCTS {
		return nil, unknownMessage("gives back", env)
	}
	r.Got.Cancelled = true
	return r, nil
}

// SendDone completes r: the peer has all that it needs of the message. AnnounceNext is to be called.
func (p *Peer) SendDone(r *Request) {
	c := p.core
	delete(p.pending, r.ID)
	c.emit(Effect{Kind: Release, Peer: p, Request: r})
	if c.closed != nil {
		c.emit(Effect{Kind: Probe}) // Finalize may wait for this
	}
	if r.State == Moving {
		r.ended = true
		return
	}
	c.emit(Effect{Kind: Recall, Peer: p, Request: r})
	if r.GiveUp == nil && c.IsRevoked(r.Context) { // the peer has dropped the message
		r.GiveUp = ErrRevoked
	}
	c.finish(r, r.GiveUp)
}

// IsEnded reports whether the peer needs no more of a send, which is Moving.
func (r *Request) IsEnded() bool { return r.ended }

// PendingSend returns the send that waits for the peer under an id, or nil.
func (p *Peer) PendingSend(id uint32) *Request { return p.pending[id] }

// Unfinished returns how many sends are in the backlog, or wait for the peer.
func (p *Peer) Unfinished() int { return len(p.pending) + len(p.backlog) }

// PendingSends calls yield with each send that is in the backlog, or waits for the peer.
func (p *Peer) PendingSends(yield func(*Request)) {
	for _, r := range p.backlog {
		yield(r)
	}
	for _, r := range p.pending {
		yield(r)
	}
}

// Unmatched reports whether r, a send, is in the backlog or no receive is known to have matched it.
func (p *Peer) Unmatched(r *Request) bool {
	return r.ID != 0 && p.pending[r.ID] == r && !r.HasCTS || slices.Contains(p.backlog, r)
}

// CancelSend withdraws a message that was announced or is in the backlog (MPI-4.1, section 3.8.4).
func (p *Peer) CancelSend(r *Request) {
	if p.removeBacklog(r) {
		r.Got.Cancelled = true
		p.core.finish(r, nil)
		return
	}
	if p.pending[r.ID] == r && !r.HasCTS && r.ID != 0 {
		p.emitControl(wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: r.ID})
		p.core.emit(Effect{Kind: Dispatch, Peer: p})
	}
}

func (p *Peer) removeBacklog(r *Request) bool {
	i := slices.Index(p.backlog, r)
	if i >= 0 {
		p.backlog = slices.Delete(p.backlog, i, i+1)
	}
	return i >= 0
}

// Abandon completes r, a send that waits, with err if it was not announced to the peer. Otherwise it
// returns false, and Replace is to be called.
func (p *Peer) Abandon(r *Request, err error) bool {
	switch {
	case p.removeBacklog(r):
	case r.ID == 0: // to be written as eager
		p.core.emit(Effect{Kind: Recall, Peer: p, Request: r})
		p.Credit += len(r.Buf) + MessageCost
	default:
		return false
	}
	p.core.finish(r, err)
	return true
}

// Replace replaces r by own, which waits and has a copy of r's buffer. r is not complete yet.
func (p *Peer) Replace(r, own *Request) {
	own.IsSend, own.Mode, own.Got, own.ID, own.Offset, own.HasCTS = true, r.Mode, r.Got, r.ID, r.Offset, r.HasCTS
	if p.pending[r.ID] == r {
		p.pending[r.ID] = own
		if !r.HasCTS {
			p.emitControl(wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: r.ID})
		}
	}
}

// Replaced is called after Replace, when own is where r was queued.
func (p *Peer) Replaced(own *Request) {
	p.streamRemaining(own)
	p.core.emit(Effect{Kind: Dispatch, Peer: p})
}

// SendSelf sends r, a request that waits, to this process. An unexpected message is copied if it is small and
// there is room; otherwise the send waits for its receive.
func (c *Core) SendSelf(r *Request) {
	x := c.contextOf(r.Context)
	m := &Message{Context: r.Context, Source: c.cfg.Rank, Data: r.Buf, Size: uint64(len(r.Buf)), Sender: r}
	m.entry = match.Message[*Message]{Source: int32(c.cfg.Rank), Tag: int32(r.Tag), Owner: m}
	if to := x.table.Arrive(m.entry.Source, m.entry.Tag); to != nil {
		c.MatchUnexpected(to.Owner, m)
		return
	}
	if cost := len(r.Buf) + MessageCost; r.Mode != Synchronous && len(r.Buf) < maxSelf && c.selfHeld+cost <= c.cfg.Unexpected {
		m.Data, m.Sender, m.credit = slices.Clone(r.Buf), nil, cost
		c.selfHeld += cost
		c.finish(r, nil)
	}
	r.self = m
	x.table.Keep(&m.entry)
	c.emit(Effect{Kind: Probe})
}

// CancelSelf cancels a send to self, unless a receive or a matched probe has it.
func (c *Core) CancelSelf(r *Request) {
	if r.State == Waiting && c.withdrawSelf(r) {
		r.Got.Cancelled = true
		c.finish(r, nil)
	}
}

func (c *Core) withdrawSelf(r *Request) (found bool) {
	return c.contextOf(r.Context).table.Remove(&r.self.entry)
}

// AbandonSelf completes a send to self with err, which returns its buffer to the owner; a matched
// probe that has the message gets a copy.
func (c *Core) AbandonSelf(r *Request, err error) {
	if m := r.self; !c.withdrawSelf(r) {
		m.Data, m.Sender = slices.Clone(m.Data), nil
	}
	c.finish(r, err)
}
