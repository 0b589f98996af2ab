package resume

import (
	"fmt"
	"slices"
)

// carrier is a Sender's state of one carrier.
type carrier struct {
	id       Carrier
	weight   uint32 // 0: standby
	draining bool
	usable   bool   // is given data: follows from the states of all carriers, see refresh
	inFlight uint64 // bytes written on it and not acknowledged
	acked    uint64 // bytes written on it and acknowledged
	unit     uint64 // used grows by this much per byte
	used     uint64 // bytes given to it, divided by the weight; see Pick
}

// Up adds a carrier with a weight (0: standby). peerHas is the number of bytes that the peer
// reported as received in the carrier's handshake; it is an acknowledgement, and Up returns what
// Ack does. A carrier that cannot be added is an ErrCarrier: one that is up, None, or one too many.
func (s *Sender) Up(id Carrier, weight uint32, peerHas uint64) (free uint64, err error) {
	switch {
	case id == None || s.find(id) != nil:
		return s.free(), fmt.Errorf("resume: carrier %d: not a new id: %w", id, ErrCarrier)
	case len(s.carriers) == MaxCarriers:
		return s.free(), fmt.Errorf("resume: carrier %d: %d are up already: %w", id, MaxCarriers, ErrCarrier)
	}
	if free, err = s.Ack(peerHas); err != nil {
		return free, fmt.Errorf("carrier %d: %w", id, err)
	}
	s.carriers = append(s.carriers, carrier{id: id})
	s.Weight(id, weight)
	return free, nil
}

// Down removes a carrier that has died: what was written on it and not acknowledged will be sent
// again on others. It returns how many bytes that is; the fin counts as one. For a carrier that is
// not up it returns 0.
func (s *Sender) Down(id Carrier) uint64 {
	c := s.find(id)
	if c == nil {
		return 0
	}
	left := s.Abandon(id)
	s.carriers = slices.DeleteFunc(s.carriers, func(c carrier) bool { return c.id == id })
	s.refresh()
	return left
}

// Abandon makes what was written on a living carrier and not acknowledged be sent again on others,
// as Down does, although it may still arrive: for a carrier that is left because it is slow. The
// receiver drops duplicates. It returns how many bytes that is; the fin counts as one. The carrier
// must not be given data meanwhile; see Weight and Drain.
func (s *Sender) Abandon(id Carrier) uint64 {
	c := s.find(id)
	if c == nil || c.inFlight == 0 {
		return 0
	}
	left := c.inFlight
	s.q.abandon(id)
	s.lost += left
	c.inFlight = 0
	return left
}

// Drain stops giving data to a carrier, for good; what it carries counts as in flight. When InFlight
// returns 0, the carrier can be closed and taken Down with nothing to send again. (A carrier that
// may be needed again gets Weight 0 instead.)
func (s *Sender) Drain(id Carrier) {
	if c := s.find(id); c != nil {
		c.draining = true
		s.refresh()
	}
}

// Weight sets a carrier's share: active carriers are given bytes in proportion to their weights,
// and one of weight 0 stands by. A draining carrier stays draining.
func (s *Sender) Weight(id Carrier, weight uint32) {
	if c := s.find(id); c != nil {
		c.weight = min(weight, MaxWeight)
		c.unit = usedScale / uint64(max(c.weight, 1))
		s.refresh()
	}
}

// InFlight returns how many bytes were written on a living carrier and are not
// acknowledged. The fin counts as one.
func (s *Sender) InFlight(id Carrier) uint64 {
	if c := s.find(id); c != nil {
		return c.inFlight
	}
	return 0
}

// Delivered returns how many of the bytes written on a living carrier have been acknowledged. The
// fin counts as one.
func (s *Sender) Delivered(id Carrier) uint64 {
	if c := s.find(id); c != nil {
		return c.acked
	}
	return 0
}

// Shared reports whether more than one carrier is given data now.
func (s *Sender) Shared() bool { return s.usable > 1 }

// Uses reports whether a carrier is given data now.
func (s *Sender) Uses(id Carrier) bool {
	c := s.find(id)
	return c != nil && c.usable
}

func (s *Sender) find(id Carrier) *carrier {
	for i := range s.carriers {
		if s.carriers[i].id == id {
			return &s.carriers[i]
		}
	}
	return nil
}

// refresh determines which carriers are given data after one of them changed: all active ones, or
// else the oldest standby. A carrier that joins starts level with the others, without credit for
// the time before.
func (s *Sender) refresh() {
	active, standby := false, None
	for i := range s.carriers {
		switch c := &s.carriers[i]; {
		case c.draining:
		case c.weight > 0:
			active = true
		case standby == None:
			standby = c.id
		}
	}
	s.usable = 0
	for i := range s.carriers {
		c := &s.carriers[i]
		was := c.usable
		c.usable = !c.draining && (c.weight > 0 || !active && c.id == standby)
		if c.usable {
			s.usable++
			if !was {
				c.used = s.clock
			}
		}
	}
}
