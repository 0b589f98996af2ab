package protocol

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
	"github.com/isthmus-grid/isthmus/wire"
)

// A Peer is the protocol's state of another process. It does not depend on how bytes reach the
// peer.
//
// States: connected -> Failed, or connected -> Gone, after the peer's goodbye, -> Failed.
type Peer struct {
	core    *Core
	Process int
	Rank    int // of the process: the source of its messages

	Failed error // why no message can be sent or received any more
	Gone   bool  // its goodbye has arrived: no message follows

	In Incoming

	// Of messages to the peer that are not complete.
	Credit       int                 // bytes that may be sent eagerly now
	maxCredit    int                 // the largest credit so far
	eagerSize    int                 // see EagerSize
	eagerQueries int                 // calls of PathDue
	head         int                 // how much of a large message goes eagerly; 0 if no receive was posted for the last one
	pending      map[uint32]*Request // announced by an RTS, or synchronous; until taken or withdrawn
	nextID       uint32
	backlog      []*Request // not announced yet: too many are pending

	// Of messages from the peer that are not complete.
	unexpected    map[uint32]*Message  // unmatched, of those that have an id
	transfers     map[uint32]*Transfer // matched RTSs
	grant         grant
	contextsAhead int // contexts that exist here only because of the peer's messages

	Traffic
}

// Traffic counts messages and their bytes, envelopes not included.
type Traffic struct {
	MessagesSent, BytesSent         uint64
	MessagesReceived, BytesReceived uint64
}

// Incoming is the message, or the part of one, whose bytes follow an envelope. The reader of the link or the
// ring copies them to Into as far as there is room, counts Left down and calls Arrived at 0.
type Incoming struct {
	Size, Left uint64   // bytes in all, and not here yet
	Into       []byte   // where they go
	Request    *Request // the receive whose buffer that is

	transfer *Transfer // of a matched RTS
	message  *Message  // or the message that is kept
	arrival  *arrival  // of the message, where ranks have replicas
	refund   int       // credit to return when they have arrived
}

// GoodbyeError returns the error of an operation that needs a peer that has gone.
func (p *Peer) GoodbyeError() error {
	return fmt.Errorf("rank %d of the world: %w", p.Rank, ErrFinalized)
}

// Lost ends the peer: every operation that needs it fails with err. The caller itself fails requests that are
// queued for sending, and those whose State is Moving. reading says that a goroutine is reading into the
// buffer of a receive: then ReadEnded is to be called.
func (p *Peer) Lost(err error, reading bool) {
	c := p.core
	p.Failed = err
	if c.arrivals != nil {
		c.arrivals.peerLost(p)
	}
	p.endBacklog(err)
	for id, r := range p.pending {
		delete(p.pending, id)
		if r.State != Moving {
			c.finish(r, err)
		}
	}
	for id, f := range p.transfers {
		delete(p.transfers, id)
		if f.Request != nil && f.Request != p.In.Request && !f.Busy {
			c.finish(f.Request, err)
		}
	}
	if !reading {
		p.ReadEnded()
	}
	c.extraCredit += p.grant.reclaim()
	p.failReceives(err)
}

// ReadEnded fails the receive into whose buffer bytes of a lost peer were being read.
func (p *Peer) ReadEnded() {
	if r := p.In.Request; r != nil && p.Failed != nil {
		p.In.Request, p.In.Into = nil, nil
		p.core.finish(r, p.Failed)
	}
}

// GoodbyeReceived handles the peer's goodbye: it neither sends nor receives any more.
func (p *Peer) GoodbyeReceived() {
	c, err := p.core, p.GoodbyeError()
	p.Gone = true
	if c.arrivals != nil {
		c.arrivals.peerLost(p)
	}
	c.extraCredit += p.grant.reclaim()
	p.endBacklog(err)
	for id, r := range p.pending {
		delete(p.pending, id)
		if r.State == Moving {
			r.ended = true
			if r.GiveUp == nil {
				r.GiveUp = err
			}
			continue
		}
		c.emit(Effect{Kind: Recall, Peer: p, Request: r})
		c.finish(r, err)
	}
	p.failReceives(err)
}

func (p *Peer) endBacklog(err error) {
	for _, r := range p.backlog {
		p.core.finish(r, err)
	}
	p.backlog = nil
}

// failReceives fails every posted receive that only the peer could have matched.
func (p *Peer) failReceives(err error) {
	p.core.emit(Effect{Kind: Probe})
	if p.core.SourceError(p.Rank) == nil { // another process of the rank goes on
		return
	}
	for _, x := range p.core.contexts {
		x.table.Posted(func(m *match.Receive[*Request]) bool {
			if r := m.Owner; r.Peer == p.Rank {
				x.table.Withdraw(m)
				p.core.finish(r, err)
			}
			return true
		})
	}
}

// CreditGranted returns the peer's credit here in bytes, and how many of them unexpected messages use.
func (p *Peer) CreditGranted() (total, held int) { return p.grant.total, p.grant.held }

// ContextsAhead returns how many contexts exist here only because the peer has sent in them.
func (p *Peer) ContextsAhead() int { return p.contextsAhead }

// Resize grants the peer more or less credit, depending on what arrived lately and the round-trip time of its path.
func (p *Peer) Resize(now time.Time, rtt time.Duration) {
	p.core.extraCredit -= p.grant.resize(now, rtt, p.core.extraCredit)
}

// ReturnCredit returns the envelope that gives the peer what it is owed, if it is owed anything;
// unless always is set, only if that is at least grant.step.
func (p *Peer) ReturnCredit(always bool) (env wire.Envelope, ok bool) {
	g := &p.grant
	if g.owed <= 0 || !always && g.owed < g.step {
		return env, false
	}
	env = wire.Envelope{Kind: wire.EnvelopeCredit, Length: uint64(g.owed)}
	g.owed = 0
	return env, true
}

// oweCredit notes that credit for n bytes that the peer sent eagerly is to be returned, and returns
// all that is owed once that is at least grant.step.
func (p *Peer) oweCredit(n int) {
	g := &p.grant
	if p.Gone || p.Failed != nil {
		p.core.extraCredit += g.reclaim()
		return
	}
	if g.owed += n; g.owed >= g.step {
		p.emitCredit(false)
	}
}

// countArrival counts n bytes that have arrived. If they were asked for by a CTS they use no credit, but
// still measure the rate of the path.
func (p *Peer) countArrival(n int, asked bool) {
	g := &p.grant
	g.arrived += n + MessageCost
	if asked && g.arrived >= g.step {
		p.emitCredit(true)
	}
}

// refundCredit ends what chargeCredit began, and returns the credit.
func (p *Peer) refundCredit(n int) {
	p.grant.held -= n
	p.oweCredit(n)
}
