package stream

// This file is for owners whose next bytes replace the last as long as those wait here: the less was
// handed over before there was room for it on the path, the newer is what the peer gets.

// BoundUnsent makes the kernel hold no more than about bytes of what it cannot send yet, on each
// carrier of s that is a TCP connection, from now on.
func BoundUnsent(s *Stream, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows.unsent = bytes
	for _, c := range s.carriers {
		c.boundUnsent()
	}
}

// AwaitSent waits until the kernel has all that was written. It returns an error when the write
// deadline passes or the stream is over.
func AwaitSent(s *Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for holdsUnsent(s) {
		switch {
		case s.over:
			return s.ended("write")
		case s.writeBy.passed:
			return s.deadlineError("write")
		}
		s.writable.Wait()
	}
	return nil
}

// holdsUnsent reports whether there are written bytes that the kernel has not taken, here or in a
// carrier's write.
func holdsUnsent(s *Stream) bool {
	if s.send.Sent() < s.send.End() || s.send.Lost() > 0 {
		return true
	}
	for _, c := range s.carriers {
		if c.pending || c.from < c.to {
			return true
		}
	}
	return false
}

// boundUnsent sets what the kernel accepts for the carrier beyond what the path has room for now: the
// least that the stream's owner, or the sharing with other carriers, asks for.
func (c *Carrier) boundUnsent() {
	most := c.s.windows.unsent
	if c.brief && (most == 0 || most > unsent) {
		most = unsent
	}
	boundUnsent(c.conn, most)
}
