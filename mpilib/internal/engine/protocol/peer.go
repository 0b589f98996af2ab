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
// Its life: well -> Failed, or Gone after the peer's goodbye and later Failed.
type Peer struct {
	core    *Core
	Process int
	Rank    int // of the process: the source of its messages

	Failed error // why no message can be sent or received any more
	Gone   bool  // it has said goodbye: no message follows

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
	kept   map[uint32]*Message  // unmatched, of those that have an id
	moving map[uint32]*Transfer // matched RTSs
	grant  grant
	ahead  int // contexts that exist here only because of the peer's messages

	Traffic
}

// Traffic counts messages and their bytes, envelopes not included.
type Traffic struct {
	MessagesSent, BytesSent         uint64
	MessagesReceived, BytesReceived uint64
}

// Incoming is the message, or the part of one, whose bytes follow an envelope. Whoever reads them puts
// them to Into as far as there is room, counts Left down and calls Arrived at 0.
type Incoming struct {
	Size, Left uint64   // bytes in all, and not here yet
	Into       []byte   // where they go
	Request    *Request // the receive whose buffer that is

	transfer *Transfer // of a matched RTS
	message  *Message  // or the message that is kept
	arrival  *arrival  // of the message, where ranks have replicas
	refund   int       // credit to return when they have come
}

// GoodbyeError says that the peer has gone.
func (p *Peer) GoodbyeError() error {
	return fmt.Errorf("rank %d of the world: %w", p.Rank, ErrFinalized)
}

// Lost ends the peer: every operation that needs it fails with err. Requests of which the caller
// has to send something it fails itself, and so those whose State is Moving and what is read
// into: reading says that somebody reads.
func (p *Peer) Lost(err error, reading bool) {
	c := p.core
	p.Failed = err
	if c.arrivals != nil {
		c.arrivals.lost(p)
	}
	p.endBacklog(err)
	for id, r := range p.pending {
		delete(p.pending, id)
		if r.State != Moving {
			c.finish(r, err)
		}
	}
	for id, f := range p.moving {
		delete(p.moving, id)
		if f.Request != nil && f.Request != p.In.Request && !f.Busy {
			c.finish(f.Request, err)
		}
	}
	if !reading {
		p.ReadEnded()
	}
	c.extraCredit += p.grant.end()
	p.failReceives(err)
}

// ReadEnded fails the receive into whose buffer the bytes of a lost peer came.
func (p *Peer) ReadEnded() {
	if r := p.In.Request; r != nil && p.Failed != nil {
		p.In.Request, p.In.Into = nil, nil
		p.core.finish(r, p.Failed)
	}
}

// Goodbye is the peer's: it neither sends nor receives any more.
func (p *Peer) Goodbye() {
	c, err := p.core, p.GoodbyeError()
	p.Gone = true
	if c.arrivals != nil {
		c.arrivals.lost(p)
	}
	c.extraCredit += p.grant.end()
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

// Granted returns the peer's credit here, and how much of it is used by what is kept.
func (p *Peer) Granted() (total, held int) { return p.grant.total, p.grant.held }

// Ahead returns in how many contexts the peer has sent something that exist here only for that.
func (p *Peer) Ahead() int { return p.ahead }

// Resize grants the peer more or less, as what came of late calls for over a path with that round
// trip.
func (p *Peer) Resize(now time.Time, rtt time.Duration) {
	p.core.extraCredit -= p.grant.resize(now, rtt, p.core.extraCredit)
}

// ReturnCredit returns the envelope that gives the peer what it is owed, if it is owed anything;
// unless always is set, if that is worth an envelope.
func (p *Peer) ReturnCredit(always bool) (env wire.Envelope, ok bool) {
	g := &p.grant
	if g.owed <= 0 || !always && g.owed < g.step {
		return env, false
	}
	env = wire.Envelope{Kind: wire.EnvelopeCredit, Length: uint64(g.owed)}
	g.owed = 0
	return env, true
}

// owe notes that the peer is to have credit back for n bytes that it sent eagerly, and returns
// all that it is to have when that is worth an envelope.
func (p *Peer) owe(n int) {
	g := &p.grant
	if p.Gone || p.Failed != nil {
		p.core.extraCredit += g.end()
		return
	}
	if g.owed += n; g.owed >= g.step {
		p.creditDue(false)
	}
}

// countArrival notes that n bytes are here. If the peer was asked for them they use no credit, but
// tell what the path carries all the same.
func (p *Peer) countArrival(n int, asked bool) {
	g := &p.grant
	g.came += n + MessageCost
	if asked && g.came >= g.step {
		p.creditDue(true)
	}
}

// refund ends what charge began, and gives the credit back.
func (p *Peer) refund(n int) {
	p.grant.held -= n
	p.owe(n)
}
