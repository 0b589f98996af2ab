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

// arrivals is the messages of ranks with replicas that are not delivered.
type arrivals struct {
	core     *Core
	process  *replica.Process
	stranded map[*arrival]bool // whose sender is lost
}

// An arrival is such a message, from when it begins to arrive.
type arrival struct {
	of      *replica.Arrival
	rank    int // it comes from
	context uint32
	tag     int
	request *Request // which it has matched; else
	message *Message // the one that is kept for it; both nil: its bytes are still to come, or nobody wants it
	dropped bool     // nobody wants it
}

// begin takes the envelope of a message. The arrival is nil if it is to be dropped.
func (s *arrivals) begin(p *Peer, env wire.Envelope) *arrival {
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

// delivered says that all bytes of a message are in b, or that nobody wants them: then known is false.
func (s *arrivals) delivered(a *arrival, b []byte, known bool) {
	digest := uint64(0)
	if known {
		digest = replica.Digest(b)
	}
	s.process.Delivered(a.rank, a.context, a.tag, a.of, digest)
}

// received says that r is complete with the message of its arrival, if it has one.
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

// drop says that nobody wants a message, if there is one.
func (s *arrivals) drop(a *arrival) {
	if a != nil && !a.dropped {
		a.dropped, a.request, a.message = true, nil, nil
		delete(s.stranded, a)
		s.delivered(a, nil, false)
	}
}

// eager is Peer.Eager.
func (s *arrivals) eager(p *Peer, x *msgContext, env wire.Envelope) error {
	if env.Flags != 0 {
		return fmt.Errorf("%w: an eager synchronous message of a rank with replicas", wire.ErrMalformed)
	}
	in, cost := &p.In, int(env.Length)+MessageCost
	a := s.begin(p, env)
	if a == nil {
		p.owe(cost)
		return nil
	}
	if a.request == nil && a.message == nil {
		if s.core.Unwanted(env.Context) {
			s.drop(a)
			p.owe(cost)
			return nil
		}
		if m := x.table.Arrive(int32(p.Rank), int32(env.Tag)); m != nil {
			p.matched(m.Owner, env)
			m.Owner.arrival, a.request = a, m.Owner
		}
	}
	in.arrival = a
	if r := a.request; r != nil {
		r.From, in.Request, in.Into = p, r, r.room()
		p.owe(cost)
		return nil
	}
	if err := p.charge(cost); err != nil {
		return err
	}
	in.message = p.message(env)
	in.message.Data, in.message.paid = make([]byte, env.Length), cost
	in.Into = in.message.Data
	return nil
}

// rts is Peer.RTS.
func (s *arrivals) rts(p *Peer, x *msgContext, env wire.Envelope) {
	a := s.begin(p, env)
	if a == nil {
		p.decline(env.ID, true)
		return
	}
	switch r, m := a.request, a.message; {
	case r != nil:
		r.From = p
		p.transfer(r, env.ID, 0, 0, Lent{})
	case m != nil:
		m.from, m.id, m.lost = p, env.ID, false
		p.kept[m.id] = m
		s.core.emit(Effect{Kind: Probe})
	case s.core.Unwanted(env.Context):
		s.drop(a)
		p.decline(env.ID, true)
	default:
		if m := x.table.Arrive(int32(p.Rank), int32(env.Tag)); m != nil {
			p.matched(m.Owner, env)
			m.Owner.arrival, a.request = a, m.Owner
			p.transfer(m.Owner, env.ID, 0, 0, Lent{})
			return
		}
		m := p.message(env)
		m.rts, m.arrival, a.message = true, a, m
		p.keep(m)
	}
}

// whole takes an eager message that was kept while it came, and reports whether it needs no receive any more: a
// receive, or what was announced by a process that is lost, had its place already.
func (s *arrivals) whole(p *Peer, a *arrival, m *Message) bool {
	if a.dropped {
		p.refund(m.paid)
		return true
	}
	s.delivered(a, m.Data, true)
	switch r, announced := a.request, a.message; {
	case r != nil:
		r.arrival = nil
		s.core.Give(r, m)
	case announced != nil:
		announced.from, announced.Data, announced.paid = p, m.Data, m.paid
		announced.rts, announced.lost, announced.arrival = false, false, nil
		s.core.emit(Effect{Kind: Probe})
	default:
		return false
	}
	return true
}

// wait has a receive that has matched a message that is stranded wait for it.
func (s *arrivals) wait(r *Request, m *Message) {
	if err := s.core.SourceError(m.Source); err != nil {
		s.core.finish(r, err)
		return
	}
	a := m.arrival
	r.From, r.arrival, a.request, a.message = nil, a, r, nil
	s.stranded[a] = true
}

// lost strands what a process has begun to send, which is lost or ends.
func (s *arrivals) lost(p *Peer) {
	in := &p.In
	if a := in.arrival; a != nil {
		s.strand(a)
		if m := in.message; m != nil && !m.rts {
			p.refund(m.paid)
		}
	}
	for id, f := range p.moving {
		delete(p.moving, id)
		if f.Request != nil {
			s.strand(f.Request.arrival)
		}
	}
	for id, m := range p.kept {
		delete(p.kept, id)
		p.refund(m.paid)
		m.lost, m.id, m.paid, m.Data = true, 0, 0, nil
	}
	*in = Incoming{Size: in.Size, Left: in.Left}
	if err := s.core.SourceError(p.Rank); err != nil {
		s.fail(func(a *arrival) error {
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

// fail fails the receives that wait for a stranded message for which why returns an error.
func (s *arrivals) fail(why func(*arrival) error) {
	for a := range s.stranded {
		if err := why(a); err != nil {
			delete(s.stranded, a)
			s.core.finish(a.request, err)
			a.request, a.dropped = nil, true
		}
	}
}

// stop ends a receive that was given up while it waits for a stranded message.
func (s *arrivals) stop(r *Request) {
	a := r.arrival
	if a == nil || !s.stranded[a] {
		return
	}
	s.core.finish(r, r.GiveUp)
	s.drop(a)
}

// GiveUpStranded completes r, a receive that was given up, if the process that was sending its message is lost.
func (c *Core) GiveUpStranded(r *Request) {
	if c.arrivals != nil {
		c.arrivals.stop(r)
	}
}
