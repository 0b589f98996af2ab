package stream

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A stream that is closed tells the peer where it ends (LinkFin) and goes on
// until everything was taken there. It is over when both ends have the other's
// end and know it, when the peer has all but goes on, or after lingering; in
// the latter two the last word (LinkAbort without a text) says that nobody
// listens any more.

// lingering is how long a closed stream's carriers stay, for the peer to take
// what was written.
const lingering = 3 * time.Second

// Close ends the stream. What was written before still goes to the peer, for
// 3 s at most; Close does not wait for that. What came in and was not read is
// dropped.
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

// bye says the last word.
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

// checkDone ends the stream if both ends are through with it.
func (s *Stream) checkDone() {
	switch {
	case s.over || !s.send.Finished():
	case s.isParted():
		if on := s.toldOn; on == nil || !on.writing && !on.pending { // or the peer might never hear it
			s.finish(net.ErrClosed)
		}
	case s.closing && !s.recv.Ended() && s.lead != nil && !s.farewell:
		s.lead.queueSignal(sayBye)
	}
}

// isParted reports whether both ends have all of the other's stream, and this one
// has said so, or is about to.
func (s *Stream) isParted() bool {
	return s.send.Finished() && s.recv.Ended() && s.waiting() == 0 && s.told == s.ack()
}

// Leave ends the stream at once and for the reason given, which the peer is told if a
// carrier takes it within a short time.
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
			c.conn.WriteVec(append(first, h[:], []byte(text))...) // the peer notices our end without it, only later
		}
	}
	s.finish(fmt.Errorf("link to %s: %s: %w", s.o.Peer, reason, net.ErrClosed))
}

// lastWord acts on a LinkAbort with a text of n bytes. It returns false.
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
