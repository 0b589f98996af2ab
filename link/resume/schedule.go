package resume

// usedScale makes carrier.used precise enough for the largest weight: one part in 4096 at worst. At
// usedLimit all counts are reduced, long before the sum of it and the largest charge
// (MaxWindow*usedScale = 2^58) overflows.
const (
	usedScale = 1 << 28
	usedLimit = 1 << 62
)

// Next returns what to write next on a carrier: the lowest lost bytes, or else new ones, or the
// fin; at most max bytes. From then on they count as carried by it, even if writing them fails:
// call Down then. Next returns false when there is nothing to write or the carrier is not given
// data.
//
// A max below Granule is meant for the remainder of a buffer that already holds frames; lost bytes
// cut shorter than a Granule cost an entry each that the memory bound does not count.
func (s *Sender) Next(id Carrier, max int) (Frame, bool) {
	c := s.find(id)
	if c == nil || !c.usable || max < 1 {
		return Frame{}, false
	}
	var f Frame
	var size uint64 // of the frame in offsets, including the fin
	if s.lost > 0 {
		f, size = s.resend(id, uint64(max))
	} else if f, size = s.sendNew(id, uint64(max)); size == 0 {
		return Frame{}, false
	}
	c.inFlight += size
	if s.usable > 1 {
		s.charge(c, size)
	}
	return f, true
}

// sendNew puts new bytes on the carrier; the fin goes with the last of them.
func (s *Sender) sendNew(id Carrier, max uint64) (Frame, uint64) {
	off, limit := s.q.to, s.limit()
	if off == limit || s.crowded(id) {
		return Frame{}, 0
	}
	n := min(max, s.end-off)
	size := n
	if off+n == s.end {
		size = limit - off
	}
	s.q.append(id, size)
	return Frame{Off: off, N: int(n), Fin: size > n}, size
}

// crowded reports whether new bytes on this carrier would need an entry beyond the limit. The state
// ends when an acknowledgement arrives or a carrier dies, and all bytes that it waits for are on
// living carriers, so there is no deadlock.
func (s *Sender) crowded(id Carrier) bool {
	return s.q.len() >= s.entries && s.q.last() != id
}

// resend puts the lowest lost bytes on the carrier.
func (s *Sender) resend(id Carrier, max uint64) (Frame, uint64) {
	i, start, end := s.q.lost()
	n := min(end, s.end) - start // without the fin
	size := end - start
	if n > max {
		n = max
		if aligned := (start + max) / s.granule * s.granule; aligned > start {
			n = aligned - start
		}
		size = n
	}
	s.q.take(i, id, size)
	s.lost -= size
	s.resent += size
	return Frame{Off: start, N: int(n), Fin: size > n}, size
}

// Pick chooses which of the ready carriers writes next, so that the bytes given to them match their
// weights. It returns false when there is nothing to write or none of the ready carriers is given
// data; otherwise Next with the returned carrier yields a frame. A single carrier needs no Pick.
//
// Pick counts each carrier's bytes divided by its weight, and chooses the lowest count (start-time
// fair queueing). So no carrier that is always ready gets ahead of its share by more than one
// frame. One that was not ready for a while catches up, by at most one window. Not using Pick is
// not an error: then each carrier takes what it can write.
func (s *Sender) Pick(ready []Carrier) (Carrier, bool) {
	if !s.Sendable() {
		return None, false
	}
	onlyNew := s.lost == 0
	var best *carrier
	for _, id := range ready {
		c := s.find(id)
		if c == nil || !c.usable || onlyNew && s.crowded(id) {
			continue
		}
		if owed := s.window * c.unit; s.clock > owed {
			c.used = max(c.used, s.clock-owed)
		}
		if best == nil || c.used < best.used {
			best = c
		}
	}
	if best == nil {
		return None, false
	}
	return best.id, true
}

// charge counts bytes that a carrier was given.
func (s *Sender) charge(c *carrier, size uint64) {
	s.clock = max(s.clock, c.used)
	c.used += size * c.unit
	if c.used < usedLimit {
		return
	}
	const back = usedLimit / 2 // more than a carrier can be owed
	s.clock = max(s.clock, back) - back
	for i := range s.carriers {
		c := &s.carriers[i]
		c.used = max(c.used, back) - back
	}
}
