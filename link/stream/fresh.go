package stream

// This file, and Fresh of Append, are for owners whose next bytes replace the last as long as those wait here: the less was
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

// boundUnsent sets what the kernel accepts for the carrier beyond what the path has room for now: the
// least that the stream's owner, or the sharing with other carriers, asks for.
func (c *Carrier) boundUnsent() {
	most := c.s.windows.unsent
	if c.brief && (most == 0 || most > unsent) {
		most = unsent
	}
	boundUnsent(c.conn, most)
}
