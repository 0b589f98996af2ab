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

// SentNow notes that it was sent.
func (p *Peer) SentNow(n int) {
	p.Credit -= n + MessageCost
	p.MessagesSent++
	p.BytesSent += uint64(n)
}

// Send sends r, a request that waits, or queues it. Up to eager bytes go eagerly.
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

// Backlog returns how many sends are not announced yet.
func (p *Peer) Backlog() int { return len(p.backlog) }

// AnnounceNext announces the first of them, if credit and limits allow that, and reports whether
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

// Head sends up to most bytes of r, which was announced and is not lent, before the CTS, as far
// as there is credit.
func (p *Peer) Head(r *Request, most int) {
	head := min(len(r.Buf), most, p.Credit)
	if head <= 0 {
		return
	}
	p.Credit -= head
	r.At = head
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

// Written notes that bytes of r were copied or written; whole says that these were all of an eager
// message. It returns an error if r was given up meanwhile and is to be withdrawn now, with
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
		p.streamRest(r)
	}
	return nil
}

// streamRest has the rest of a send written if the CTS is here and its head is
// not being written any more.
func (p *Peer) streamRest(r *Request) {
	if r.Cleared && r.State == Waiting && r.At < len(r.Buf) {
		p.core.emit(Effect{Kind: Stream, Peer: p, Request: r})
	}
}

// CTS is the peer's: it has matched an announced message, and wants all or nothing of it.
func (p *Peer) CTS(env wire.Envelope) error {
	r := p.pending[env.ID]
	if r == nil || r.Cleared || env.Length != 0 && env.Length != r.Got.Bytes {
		return unknownMessage("asks for", env)
	}
	if env.Flags&wire.EnvelopeLate != 0 { // the receive was posted after the RTS had come
		p.head = 0
	} else {
		p.head = min(4*max(p.head, EagerShort), MaxHead)
	}
	if env.Length == 0 {
		p.SendDone(r)
		return nil
	}
	r.Cleared = true
	p.streamRest(r)
	return nil
}

// Taken is the peer's: it has a message. SendDone is to follow for the request.
func (p *Peer) Taken(env wire.Envelope) (*Request, error) {
	r := p.pending[env.ID]
	if r == nil || r.Cleared && r.At < len(r.Buf) {
		return nil, unknownMessage("has taken", env)
	}
	return r, nil
}

// MoreCredit is the peer's. AnnounceNext is to follow.
func (p *Peer) MoreCredit(env wire.Envelope) {
	p.Credit = min(p.Credit+int(env.Length), wire.MaxMessage) // how much of its memory the peer grants is its own affair
	if p.Credit > p.maxCredit {
		p.maxCredit, p.eagerQueries = p.Credit, 0
	}
}

// Withdrawn is the peer's: it has dropped a message as it was asked to. AnnounceNext is to follow.
func (p *Peer) Withdrawn(env wire.Envelope) error {
	r := p.pending[env.ID]
	if r == nil || r.Cleared {
		return unknownMessage("gives back", env)
	}
	r.Got.Cancelled = true
	p.SendDone(r)
	return nil
}

// SendDone completes r: the peer has what it wants of the message. AnnounceNext is to follow.
func (p *Peer) SendDone(r *Request) {
	c := p.core
	delete(p.pending, r.ID)
	c.emit(Effect{Kind: Release, Peer: p, Request: r})
	if c.closed != nil {
		c.emit(Effect{Kind: Probe}) // whoever drains may wait for this
	}
	if r.State == Moving {
		r.ended = true
		return
	}
	c.emit(Effect{Kind: Recall, Peer: p, Request: r})
	if r.GiveUp == nil && c.Revoked(r.Context) { // the peer has dropped the message
		r.GiveUp = ErrRevoked
	}
	c.finish(r, r.GiveUp)
}

// Ended reports whether the peer needs no more of a send, which is Moving.
func (r *Request) Ended() bool { return r.ended }

// Pending returns the send that waits for the peer under an id, or nil.
func (p *Peer) Pending(id uint32) *Request { return p.pending[id] }

// Unfinished returns how many sends are to be announced, or wait for the peer.
func (p *Peer) Unfinished() int { return len(p.pending) + len(p.backlog) }

// Sends calls yield with each send that is to be announced, or waits for the peer.
func (p *Peer) Sends(yield func(*Request)) {
	for _, r := range p.backlog {
		yield(r)
	}
	for _, r := range p.pending {
		yield(r)
	}
}

// Unmatched reports whether r waits to be announced, or for a receive.
func (p *Peer) Unmatched(r *Request) bool {
	return r.ID != 0 && p.pending[r.ID] == r && !r.Cleared || slices.Contains(p.backlog, r)
}

// Cancel withdraws a message that was announced or is queued.
func (p *Peer) Cancel(r *Request) {
	if p.removeBacklog(r) {
		r.Got.Cancelled = true
		p.core.finish(r, nil)
		return
	}
	if p.pending[r.ID] == r && !r.Cleared && r.ID != 0 {
		p.control(wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: r.ID})
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

// Abandon completes r, a send that waits, with err if the peer does not know of it. Otherwise it
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

// Replace puts own, which waits and has a copy of r's buffer, in r's place. r is not complete yet.
func (p *Peer) Replace(r, own *Request) {
	own.IsSend, own.Mode, own.Got, own.ID, own.At, own.Cleared = true, r.Mode, r.Got, r.ID, r.At, r.Cleared
	if p.pending[r.ID] == r {
		p.pending[r.ID] = own
		if !r.Cleared {
			p.control(wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: r.ID})
		}
	}
}

// Replaced completes r, in whose place own is, with err.
func (p *Peer) Replaced(r, own *Request, err error) {
	p.core.finish(r, err)
	p.streamRest(own)
	p.core.emit(Effect{Kind: Dispatch, Peer: p})
}

// SendSelf sends r, a request that waits, to this process, and matches it at once. A message that
// nobody waits for is copied while it is small and there is room; otherwise the send waits for
// its receive.
func (c *Core) SendSelf(r *Request) {
	x := c.contextOf(r.Context)
	m := &Message{Context: r.Context, Source: c.cfg.Rank, Data: r.Buf, Size: uint64(len(r.Buf)), Sender: r}
	m.entry = match.Message[*Message]{Source: int32(c.cfg.Rank), Tag: int32(r.Tag), Owner: m}
	if to := x.table.Arrive(m.entry.Source, m.entry.Tag); to != nil {
		c.Give(to.Owner, m)
		return
	}
	if cost := len(r.Buf) + MessageCost; r.Mode != Synchronous && len(r.Buf) < maxSelf && c.selfHeld+cost <= c.cfg.Unexpected {
		m.Data, m.Sender, m.paid = slices.Clone(r.Buf), nil, cost
		c.selfHeld += cost
		c.finish(r, nil)
	}
	r.self = m
	x.table.Keep(&m.entry)
	c.emit(Effect{Kind: Probe})
}

// CancelSelf takes a send to self back, unless a matched probe has it.
func (c *Core) CancelSelf(r *Request) {
	if r.State == Waiting && c.withdrawSelf(r) {
		r.Got.Cancelled = true
		c.finish(r, nil)
	}
}

func (c *Core) withdrawSelf(r *Request) (found bool) {
	return c.contextOf(r.Context).table.Remove(&r.self.entry)
}

// AbandonSelf gives the buffer of a send to self back to its owner, who waits no
// longer; a matched probe that has the message gets a copy.
func (c *Core) AbandonSelf(r *Request, err error) {
	if m := r.self; !c.withdrawSelf(r) {
		m.Data, m.Sender = slices.Clone(m.Data), nil
	}
	c.finish(r, err)
}
