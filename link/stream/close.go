package stream

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A closed stream sends the peer its end (LinkFin) and continues until the peer has taken
// everything. It is over when both ends have the other's end and know it, when the peer has
// everything but continues to send, or after lingering; in the latter two cases it sends a
// LinkAbort without a text, which says that it no longer reads.

// lingering is how long a closed stream's carriers stay, for the peer to take what was written.
const lingering = 3 * time.Second

// Close ends the stream. What was written before still goes to the peer, for at most 3 s; Close
// does not wait for that. Unread received data is dropped.
func (s *Stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return s.ended("close")
	}
	s.closing = true
	s.took = s.recv.Next()
	s.in.clear(s.took)
	s.send.Fin()
	s.wakeReader()
	s.writable.Broadcast()
	if s.over {
		return nil
	}
	for _, c := range s.carriers {
		c.readOn() // for the peer's acknowledgement
	}
	s.linger = time.AfterFunc(lingering, s.bye)
	s.checkDone()
	s.wakeAll()
	return nil
}

// bye sends the LinkAbort of a closed stream.
func (s *Stream) bye() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.lead == nil:
		s.finish(net.ErrClosed)
	default:
		if !s.farewell {
			s.lead.queueSignal(sayBye)
		}
		s.linger = time.AfterFunc(lingering, func() { s.Fail(net.ErrClosed) }) // the carrier may be stuck
	}
}

// checkDone ends the stream if both ends are done with it.
func (s *Stream) checkDone() {
	switch {
	case s.over || !s.send.Finished():
	case s.isParted():
		if on := s.ackSentOn; on == nil || !on.writing && !on.pending { // otherwise the peer might never receive it
			s.finish(net.ErrClosed)
		}
	case s.closing && !s.recv.Ended() && s.lead != nil && !s.farewell:
		s.lead.queueSignal(sayBye)
	}
}

// isParted reports whether both ends have all of the other's stream, and this one has acknowledged
// that, or is about to.
func (s *Stream) isParted() bool {
	return s.send.Finished() && s.recv.Ended() && s.waiting() == 0 && s.ackSent == s.ack()
}

// Leave ends the stream at once for the given reason, which it sends to the peer if a carrier takes
// it within a second.
func (s *Stream) Leave(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.carriers {
		if !c.writing {
			text := reason[:min(len(reason), wire.MaxAbortText)]
			var h [headerLen]byte
			wire.LinkHeader{Kind: wire.LinkAbort, Length: uint32(len(text)), Ack: s.ack()}.Put(h[:])
			c.conn.SetWriteDeadline(time.Now().Add(time.Second))
			var first [][]byte
			if c.pending {
				first = slices.Clone(c.iov)
			}
			c.conn.WriteVec(append(first, h[:], []byte(text))...) // best effort: without it the peer notices the end later
		}
	}
	s.finish(fmt.Errorf("link to %s: %s: %w", s.o.Peer, reason, net.ErrClosed))
}

// lastWord processes a LinkAbort with a text of n bytes. It returns false.
func (c *Carrier) lastWord(n int) bool {
	s := c.s
	for c.end-c.begin < headerLen+n {
		c.end = copy(c.buf, c.buf[c.begin:c.end])
		c.begin = 0
		c.vec[0] = c.buf[c.end:]
		got, ok := c.receive(1)
		if c.end += got; !ok {
			return false
		}
	}
	text := string(c.buf[c.begin+headerLen : c.begin+headerLen+n])
	c.begin += headerLen + n
	if n > 0 {
		s.finish(fmt.Errorf("link to %s: %w: the peer gave it up: %s", s.o.Peer, overlay.ErrRefused, text))
		return false
	}
	s.finish(fmt.Errorf("link to %s: the peer has closed it: %w", s.o.Peer, net.ErrClosed))
	return false
}
