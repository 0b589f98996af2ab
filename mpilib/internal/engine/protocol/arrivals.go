package protocol

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/wire"
)

// This file is what is different for messages of ranks that have replicas. Package replica says which
// process of a rank a message is taken from. When that process fails another one sends the message
// again: so a message that has begun to arrive and is not whole is stranded until then, with the receive that it has
// matched.

// arrivals holds the messages of ranks with replicas that are not delivered.
type arrivals struct {
	core     *Core
	process  *replica.Process
	stranded map[*arrival]bool // their sender is lost
}

// An arrival is a message of a rank with replicas, from its envelope until it is delivered.
type arrival struct {
	of      *replica.Arrival
	rank    int // it comes from
	context uint32
	tag     int
	request *Request // which it has matched; else
	message *Message // the one that is kept for it; both nil: its bytes have not arrived, or it is dropped
	dropped bool     // it will not be received
}

// envelopeReceived takes the envelope of a message. The arrival is nil if the message is to be dropped.
func (s *arrivals) envelopeReceived(p *Peer, env wire.Envelope) *arrival {
	of, verdict := s.process.Arrive(p.Process, env.Context, int(env.Tag), int(env.Length))
	switch verdict {
	case replica.Fresh:
		a := &arrival{of: of, rank: p.Rank, context: env.Context, tag: int(env.Tag)}
		of.Owner = a
		return a
	case replica.Resumed:
		a := of.Owner.(*arrival)
		delete(s.stranded, a)
		return a
	}
	return nil
}

// delivered notes that all bytes of a message are in b; without hasBytes, that they will not be received.
func (s *arrivals) delivered(a *arrival, b []byte, hasBytes bool) {
	digest := uint64(0)
	if hasBytes {
		digest = replica.Digest(b)
	}
	s.process.Delivered(a.rank, a.context, a.tag, a.of, digest)
}

// received notes that r is complete with the message of its arrival, if it has one.
func (s *arrivals) received(r *Request) {
	a := r.arrival
	switch {
	case a == nil:
		return
	case r.Err != nil || r.GiveUp != nil: // not all of it is there
		s.drop(a)
	default:
		s.delivered(a, r.Buf[:r.Got.Bytes], true)
	}
	r.arrival, a.request = nil, nil
}

// drop notes that a message, if there is one, will not be received.
func (s *arrivals) drop(a *arrival) {
	if a != nil && !a.dropped {
		a.dropped, a.request, a.message = true, nil, nil
		delete(s.stranded, a)
		s.delivered(a, nil, false)
	}
}

// eagerReceived is Peer.EagerReceived.
func (s *arrivals) eagerReceived(p *Peer, x *msgContext, env wire.Envelope) error {
	if env.Flags != 0 || env.ID != 0 {
		return fmt.Errorf("%w: an eager synchronous message of a rank with replicas", wire.ErrMalformed)
	}
	in, cost := &p.In, int(env.Length)+MessageCost
	a := s.envelopeReceived(p, env)
	if a == nil {
		p.oweCredit(cost)
		return nil
	}
	if a.request == nil && a.message == nil {
		if s.core.Discards(env.Context) {
			s.drop(a)
			p.oweCredit(cost)
			return nil
		}
		if m := x.table.Arrive(int32(p.Rank), int32(env.Tag)); m != nil {
			p.recordMatch(m.Owner, env)
			m.Owner.arrival, a.request = a, m.Owner
		}
	}
	in.arrival = a
	if r := a.request; r != nil {
		r.From, in.Request, in.Into = p, r, r.destination()
		p.oweCredit(cost)
		return nil
	}
	if err := p.chargeCredit(cost); err != nil {
		return err
	}
	in.message = p.newMessage(env)
	in.message.Data, in.message.credit = make([]byte, env.Length), cost
	in.Into = in.message.Data
	return nil
}

// rtsReceived is Peer.RTSReceived.
func (s *arrivals) rtsReceived(p *Peer, x *msgContext, env wire.Envelope) {
	a := s.envelopeReceived(p, env)
	if a == nil {
		p.decline(env.ID, true)
		return
	}
	switch r, m := a.request, a.message; {
	case r != nil:
		r.From = p
		p.startTransfer(r, env.ID, 0, 0, ExposedBuffer{})
	case m != nil:
		m.from, m.id, m.lost = p, env.ID, false
		p.unexpected[m.id] = m
		s.core.emit(Effect{Kind: Probe})
	case s.core.Discards(env.Context):
		s.drop(a)
		p.decline(env.ID, true)
	default:
		if m := x.table.Arrive(int32(p.Rank), int32(env.Tag)); m != nil {
			p.recordMatch(m.Owner, env)
			m.Owner.arrival, a.request = a, m.Owner
			p.startTransfer(m.Owner, env.ID, 0, 0, ExposedBuffer{})
			return
		}
		m := p.newMessage(env)
		m.rts, m.arrival, a.message = true, a, m
		p.queueUnexpected(m)
	}
}

// bodyArrived takes the bytes of an eager message, which arrived unexpectedly, and reports whether that is all: a
// receive, or the announcement of a process that is lost, had matched it already.
func (s *arrivals) bodyArrived(p *Peer, a *arrival, m *Message) bool {
	if a.dropped {
		p.refundCredit(m.credit)
		return true
	}
	s.delivered(a, m.Data, true)
	switch r, announced := a.request, a.message; {
	case r != nil:
		r.arrival = nil
		s.core.MatchUnexpected(r, m)
	case announced != nil:
		announced.from, announced.Data, announced.credit = p, m.Data, m.credit
		announced.rts, announced.lost, announced.arrival = false, false, nil
		s.core.emit(Effect{Kind: Probe})
	default:
		return false
	}
	return true
}

// awaitResend makes a receive that has matched a stranded message wait until another process sends it again.
func (s *arrivals) awaitResend(r *Request, m *Message) {
	if err := s.core.SourceError(m.Source); err != nil {
		s.core.finish(r, err)
		return
	}
	a := m.arrival
	r.From, r.arrival, a.request, a.message = nil, a, r, nil
	s.stranded[a] = true
}

// peerLost strands the messages that a process, which has failed or left, had begun to send.
func (s *arrivals) peerLost(p *Peer) {
	in := &p.In
	if a := in.arrival; a != nil {
		s.strand(a)
		if m := in.message; m != nil && !m.rts {
			p.refundCredit(m.credit)
		}
	}
	for id, f := range p.transfers {
		delete(p.transfers, id)
		if f.Request != nil {
			s.strand(f.Request.arrival)
		}
	}
	for id, m := range p.unexpected {
		delete(p.unexpected, id)
		p.refundCredit(m.credit)
		m.lost, m.id, m.credit, m.Data = true, 0, 0, nil
	}
	*in = Incoming{Size: in.Size, Left: in.Left}
	if err := s.core.SourceError(p.Rank); err != nil {
		s.failStranded(func(a *arrival) error {
			if a.rank == p.Rank {
				return err
			}
			return nil
		})
	}
}

func (s *arrivals) strand(a *arrival) {
	if a.request != nil {
		a.request.From = nil
		s.stranded[a] = true
	}
}

// failStranded fails the receives that wait for a stranded message for which why returns an error.
func (s *arrivals) failStranded(why func(*arrival) error) {
	for a := range s.stranded {
		if err := why(a); err != nil {
			delete(s.stranded, a)
			s.core.finish(a.request, err)
			a.request, a.dropped = nil, true
		}
	}
}

// abandonStranded completes a receive that was abandoned while it waits for a stranded message.
func (s *arrivals) abandonStranded(r *Request) {
	a := r.arrival
	if a == nil || !s.stranded[a] {
		return
	}
	s.core.finish(r, r.GiveUp)
	s.drop(a)
}

// GiveUpStranded completes r, a receive that was abandoned, if the process that was sending its message is lost.
func (c *Core) GiveUpStranded(r *Request) {
	if c.arrivals != nil {
		c.arrivals.abandonStranded(r)
	}
}
