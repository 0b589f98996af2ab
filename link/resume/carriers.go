package resume

import (
	"fmt"
	"slices"
)

// carrier is what a Sender knows of one.
type carrier struct {
	id       Carrier
	weight   uint32 // 0: standby
	draining bool
	usable   bool   // is given data: follows from the states of all, see refresh
	carried  uint64 // bytes on it that are not acknowledged
	acked    uint64 // bytes on it that were
	unit     uint64 // used grows by this for each byte
	used     uint64 // bytes given, divided by the weight; see Pick
}

// Up adds a carrier with a weight (0: standby). peerHas is what the peer said
// on it, in its handshake, that it has received; that is an acknowledgement,
// and Up answers to it as Ack does. A carrier that cannot be added is an
// ErrCarrier: one that is up, None, or one too many.
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

// Down removes a carrier that has died: what it carries and is not
// acknowledged will be sent again on others. It returns how many bytes that
// is; the fin counts as one. A carrier that is not up is 0.
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

// Abandon has what a living carrier carries sent again on others, as Down does, though
// it may still come through there: for one that is left because it is slow. What comes
// twice is dropped by the receiver. It returns how many bytes that is; the fin counts
// as one. The carrier is not to be given data meanwhile; see Weight and Drain.
func (s *Sender) Abandon(id Carrier) uint64 {
	c := s.find(id)
	if c == nil || c.carried == 0 {
		return 0
	}
	left := c.carried
	s.q.abandon(id)
	s.lost += left
	c.carried = 0
	return left
}

// Drain gives a carrier no more data, for good; what it carries counts as
// under way. When Carried says 0 it can be closed and taken Down with nothing
// to send again. (A carrier that may be needed again gets Weight 0 instead.)
func (s *Sender) Drain(id Carrier) {
	if c := s.find(id); c != nil {
		c.draining = true
		s.refresh()
	}
}

// Weight sets a carrier's share: active carriers are given bytes in proportion
// to their weights, and one of weight 0 stands by. A draining carrier stays so.
func (s *Sender) Weight(id Carrier, weight uint32) {
	if c := s.find(id); c != nil {
		c.weight = min(weight, MaxWeight)
		c.unit = usedScale / uint64(max(c.weight, 1))
		s.refresh()
	}
}

// Carried returns how many bytes were written on a living carrier and are not
// acknowledged. The fin counts as one.
func (s *Sender) Carried(id Carrier) uint64 {
	if c := s.find(id); c != nil {
		return c.carried
	}
	return 0
}

// Delivered returns how many of the bytes written on a living carrier were
// acknowledged so far. The fin counts as one.
func (s *Sender) Delivered(id Carrier) uint64 {
	if c := s.find(id); c != nil {
		return c.acked
	}
	return 0
}

// Shared reports whether more than one carrier is given data now.
func (s *Sender) Shared() bool { return s.usable > 1 }

// Uses reports whether a carrier is one that is given data now.
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

// refresh settles which carriers are given data after one of them changed: all
// active ones, or else the oldest standby. One that joins starts level with
// the others; it is owed nothing for the time before.
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
