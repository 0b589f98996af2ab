package stream

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/isthmus-grid/isthmus/link/resume"
	"github.com/isthmus-grid/isthmus/wire"
)

// ackEvery is how many bytes may be taken before they are acknowledged in a frame of their own,
// when no outgoing data carries the acknowledgement.
const ackEvery = 1 << 20

// ack returns the current acknowledgement: everything that Read has taken.
func (s *Stream) ack() uint64 {
	if s.took < s.recv.Next() {
		return s.took
	}
	return s.recv.Ack()
}

// waiting returns how many bytes are ready for Read.
func (s *Stream) waiting() int { return int(s.recv.Next() - s.took) }

// Read implements net.Conn, but for Released, after which it may return 0 bytes without an error.
func (s *Stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	s.readers++
	s.readAt = s.ticks.Load()
	defer func() {
		s.readers--
		if s.closing && !s.over {
			s.readOn() // Close could not: this Read was reading; the peer's end is still to come
		}
	}()
	for {
		if s.closing {
			return 0, fmt.Errorf("link to %s: read: %w", s.o.Peer, net.ErrClosed)
		}
		if s.waiting() > 0 {
			n := s.take(p)
			s.afterRead()
			s.tellWritable()
			return n, nil
		}
		switch {
		case s.wrote.returns:
			s.wrote.returns = false
			return 0, nil
		case s.recv.Ended():
			return 0, io.EOF
		case s.over:
			return 0, s.ended("read")
		case s.readBy.passed:
			return 0, s.deadlineError("read")
		}
		c := s.lead
		if c != nil && s.spread {
			c.readOn()
		}
		if c == nil || c.reading {
			s.readable.Wait()
			continue
		}
		if n := c.readFor(p); n > 0 {
			s.afterRead()
			s.tellWritable()
			return n, nil
		}
	}
}

// take moves ready bytes to p.
func (s *Stream) take(p []byte) (n int) {
	for n < len(p) && s.waiting() > 0 {
		k := copy(p[n:], s.in.get(s.took, s.waiting()))
		n += k
		s.took += uint64(k)
	}
	s.in.free(s.took)
	return n
}

// afterRead queues an acknowledgement if one is due.
func (s *Stream) afterRead() {
	s.wrote.read = true
	ack := s.ack()
	if ack-s.ackSent >= ackEvery || s.waiting() == 0 && (s.soon || s.recv.Ended()) && ack != s.ackSent {
		s.soon = false
		if s.lead != nil {
			s.lead.answer()
		}
	}
}

// readOn starts a reader of the lead if no Read is pending.
func (s *Stream) readOn() {
	if s.lead != nil && s.readers == 0 {
		s.lead.readOn()
	}
}

// wakeReader makes a pending Read check the state.
func (s *Stream) wakeReader() {
	s.readable.Broadcast()
	for _, c := range s.carriers {
		if c.reading && s.readers > 0 {
			c.interrupt()
		}
	}
}

// readFor reads data for p, or returns 0 when something else happened.
func (c *Carrier) readFor(p []byte) int {
	s := c.s
	c.reading, c.byRead = true, true
	n := c.step(p)
	c.reading, c.byRead = false, false
	switch {
	case (c != s.lead || s.spread) && !c.dead:
		c.readOn()
	case s.readers > 1:
		s.readable.Broadcast() // another Read may read the carrier now
	}
	return n
}

// readOn starts a goroutine that reads the carrier, unless there is a reader. The goroutine ends
// when the carrier dies, or when the carrier is the lead, a Read is pending and data is not spread.
func (c *Carrier) readOn() {
	if c.reading || c.dead {
		return
	}
	c.reading = true
	c.s.work.Add(1)
	go c.alone()
}

// readAlone is the body of that goroutine.
func (c *Carrier) readAlone() {
	s := c.s
	defer s.work.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !c.dead && (s.spread || s.lead != c || s.readers == 0) {
		c.step(nil)
	}
	c.reading = false
	s.readable.Broadcast()
}

func (c *Carrier) buffered() bool { return c.begin < c.end }

// step reads something and acts on it. Data that is next in order goes to p as far as it fits and
// to the inbox otherwise; step returns how much p got. mu is held, and released while waiting for
// the socket.
func (c *Carrier) step(p []byte) int {
	if c.left > 0 {
		return c.stepData(p)
	}
	for !c.headed() {
		if n, more := c.fill(p); n > 0 || !more || c.left > 0 { // the next bytes are data of which p got none
			return n
		}
	}
	if !c.header() || c.left == 0 {
		return 0
	}
	return c.stepData(p)
}

// headed reports whether a whole header is buffered, including its padding.
func (c *Carrier) headed() bool {
	n := c.end - c.begin
	return n >= headerLen && (n >= wire.PaddedLen || !wire.IsPadded(c.buf[c.begin:]))
}

// fill reads the next header and what follows it: right into p if p is large, in the expectation
// that it is data in order. It returns how much p got, and whether something arrived.
func (c *Carrier) fill(p []byte) (n int, ok bool) {
	s := c.s
	if c.begin < c.end || len(p) < directFrom || s.waiting() > 0 {
		c.end = copy(c.buf, c.buf[c.begin:c.end])
		c.begin = 0
		c.vec[0] = c.buf[c.end:]
		n, ok := c.receive(1)
		c.end += n
		return 0, ok
	}
	const lead = wire.PaddedLen
	p = p[:min(len(p), directMost)]
	c.vec[0], c.vec[1], c.vec[2] = c.buf[:lead], p, c.buf[lead:lead+ahead]
	c.begin, c.end = 0, 0
	got, ok := c.receive(3)
	if got <= lead {
		c.end = got
		return 0, ok
	}
	inP := min(got-lead, len(p))
	behind := got - lead - inP
	if h, err := wire.ParseLinkHeader(c.buf); err == nil && h.Size() == lead && int(h.Length) >= inP && h.Offset == s.recv.Next() && s.waiting() == 0 {
		c.end = lead
		if !c.header() || c.left == 0 {
			return 0, false
		}
		c.begin, c.end = lead, lead+behind
		return c.copyData(p, p[:inP]), true
	}
	copy(c.buf[lead+inP:], c.buf[lead:lead+behind])
	copy(c.buf[lead:], p[:inP])
	c.end = got
	return 0, true
}

// stepData reads bytes of the current data frame.
func (c *Carrier) stepData(p []byte) int {
	s := c.s
	if c.buffered() {
		data := c.buf[c.begin:min(c.end, c.begin+c.left)]
		if p != nil && len(p) < len(data) {
			data = data[:len(p)]
		}
		c.begin += len(data)
		return c.copyData(p, data)
	}
	if p == nil || len(p) < directFrom && len(p) < c.left || c.off != s.recv.Next() || s.waiting() > 0 {
		c.begin, c.end = 0, 0
		c.vec[0] = c.buf
		n, ok := c.receive(1)
		if c.end = n; !ok {
			return 0
		}
		return c.stepData(p)
	}
	k := 1
	if len(p) >= c.left {
		p = p[:c.left]
		c.vec[1] = c.buf[:ahead]
		k = 2
	}
	c.vec[0], c.begin, c.end = p, 0, 0
	n, ok := c.receive(k)
	if !ok {
		return 0
	}
	c.end = max(n-len(p), 0)
	return c.copyData(p, p[:min(n, len(p))])
}

// copyData accounts for bytes that were read, which may be in p already. It returns how many of
// them p has.
func (c *Carrier) copyData(p, data []byte) (n int) {
	s := c.s
	off := c.off
	c.off += uint64(len(data))
	c.left -= len(data)
	c.data += uint64(len(data))
	c.served = c.heard
	before := s.waiting()
	v, err := s.recv.Data(off, len(data))
	if err != nil {
		c.broken(err)
		return 0
	}
	fresh := data[v.Skip:]
	off += uint64(v.Skip)
	switch {
	case s.closing:
		fresh = nil
	case v.Deliver > 0:
		fresh = fresh[:v.Deliver]
		if p != nil && before == 0 {
			if n = min(len(p), len(fresh)); &p[0] != &fresh[0] {
				copy(p, fresh)
			}
			s.took += uint64(n)
			s.in.free(s.took)
		}
		fresh = fresh[n:]
	default:
		fresh = fresh[:v.Store]
	}
	s.in.put(off+uint64(n), fresh)
	for {
		if _, _, ok := s.recv.Advance(); !ok {
			break
		}
	}
	if s.closing {
		s.took = s.recv.Next()
		s.in.free(s.took)
	}
	if v.Deliver > 0 {
		s.delivered(c)
	}
	s.checkDone()
	return n
}

// delivered records that data arrived on a carrier, and wakes the readers.
func (s *Stream) delivered(c *Carrier) {
	if s.waiting() > 0 {
		s.readable.Broadcast()
	}
	if lead := s.lead; c != lead {
		s.lead = c
		if s.spreads(lead) {
			return
		}
		if lead != nil && lead.reading && s.readers > 0 {
			lead.interrupt() // its reader may be a Read
		}
		if lead != nil {
			lead.readOn()
		}
	}
}

// broken handles a fault of the peer in what arrived on a carrier.
func (c *Carrier) broken(err error) {
	if errors.Is(err, resume.ErrFragmented) {
		c.s.failed(c, err)
		return
	}
	c.s.finish(fmt.Errorf("link to %s: %w", c.s.o.Peer, err))
}
