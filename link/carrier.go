package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/link/resume"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A carrier is one connection under a link, authenticated. The stream's mu
// guards it, but for the parts of who reads and who writes.
type carrier struct {
	id     resume.Carrier
	stream *stream
	conn   net.Conn
	path   overlay.Path
	fault  func() error // what the helper knows of it; may be nil
	dead   bool

	// Writing. Whoever sets writing owns iov and head until it clears it.
	writing  bool
	from, to uint64 // of the stream's bytes that are being written
	kick     chan struct{}
	saying   saying
	last     bool   // the last word is composed
	pong     uint64 // to be answered, with sayPong
	ping     uint64 // the latest question
	iov      net.Buffers
	head     [4 * wire.LinkHeaderLen]byte

	// Reading. Whoever sets reading owns the rest.
	reading bool
	giveWay bool // the goroutine that reads is to stop
	buf     []byte
	begin   int // of what is buffered
	end     int
	left    int    // of the current data that has not been read
	off     uint64 // of the next byte of it

	heard atomic.Int64 // tick at which something came in last
	asked int64        // tick of the latest ping that has no answer; 0: none
	rtt   time.Duration

	doubted bool // another way is being looked for, because this one is silent
}

// saying is a set of short things to say.
type saying uint8

const (
	sayAck saying = 1 << iota
	sayPing
	sayPong
	sayBye // the last word of a closed link
)

// readBuffer gathers small frames into one system call.
const readBuffer = 64 << 10

func newCarrier(conn net.Conn, path overlay.Path, fault func() error) *carrier {
	return &carrier{conn: conn, path: path, fault: fault, kick: make(chan struct{}, 1)}
}

// say has something short said, by the carrier's goroutine or along with data.
func (c *carrier) say(what saying) {
	c.saying |= what
	c.wakeWriter()
}

func (c *carrier) wakeWriter() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// writeLoop writes what nobody else does, until the carrier dies.
func (c *carrier) writeLoop() {
	for range c.kick {
		c.stream.mu.Lock()
		if c.dead {
			c.stream.mu.Unlock()
			return
		}
		if !c.writing {
			c.write()
		}
		c.stream.mu.Unlock()
	}
}

// write writes all there is. mu is held, and given up while the kernel works.
func (c *carrier) write() {
	s := c.stream
	c.writing = true
	for !c.dead && c.compose() {
		s.mu.Unlock()
		err := c.flush()
		s.mu.Lock()
		c.from, c.to = 0, 0
		s.release()
		s.writable.Broadcast()
		switch {
		case err != nil:
			s.failed(c, err)
		case c.last:
			s.finish(net.ErrClosed)
		}
	}
	c.writing = false
	s.done()
}

// flush writes iov.
func (c *carrier) flush() error {
	if w, ok := c.conn.(interface {
		WriteBuffers(net.Buffers) (int64, error)
	}); ok {
		_, err := w.WriteBuffers(c.iov)
		return err
	}
	iov := c.iov // WriteTo consumes it
	_, err := iov.WriteTo(c.conn)
	return err
}

// compose puts together what to write next, and reports whether there is
// anything.
func (c *carrier) compose() bool {
	s := c.stream
	iov, head := c.iov[:0], c.head[:0]
	ack := s.ack()
	header := func(h wire.LinkHeader) {
		h.Ack = ack
		at := len(head)
		head = head[:at+wire.LinkHeaderLen]
		h.Put(head[at:])
		iov = append(iov, head[at:])
	}
	say := c.saying
	c.saying = 0
	if say&sayPong != 0 {
		header(wire.LinkHeader{Kind: wire.LinkPong, Offset: c.pong})
	}
	if say&sayPing != 0 {
		c.ping++
		header(wire.LinkHeader{Kind: wire.LinkPing, Offset: c.ping})
	}
	switch f, ok := s.send.Next(c.id, wire.MaxLinkData); {
	case ok:
		if f.N > 0 {
			header(wire.LinkHeader{Kind: wire.LinkData, Length: uint32(f.N), Offset: f.Off})
			iov = s.out.gather(iov, f.Off, f.N)
			c.from, c.to = f.Off, f.Off+uint64(f.N)
		}
		if f.Fin {
			header(wire.LinkHeader{Kind: wire.LinkFin, Offset: f.Off + uint64(f.N)})
		}
	case say&sayBye != 0:
		header(wire.LinkHeader{Kind: wire.LinkAbort})
		c.last = true
	case say&sayAck != 0 && len(iov) == 0:
		header(wire.LinkHeader{Kind: wire.LinkAck})
	}
	c.iov = iov
	if len(iov) == 0 {
		return false
	}
	s.told = ack
	return true
}

// interrupt wakes whoever reads the carrier.
func (c *carrier) interrupt() {
	c.giveWay = true
	c.conn.SetReadDeadline(time.Unix(1, 0))
}

// readByItself starts a goroutine that reads the carrier until Read wants to do
// so, or it dies. mu is held.
func (c *carrier) readByItself() {
	s := c.stream
	c.reading, c.giveWay = true, false
	s.work.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for !c.dead && !c.giveWay {
			if s.in.size >= window {
				break // nobody reads; what more comes waits in the kernel
			}
			c.step(nil)
		}
		c.reading = false
		if !c.dead && c.giveWay && s.lead != c {
			c.readByItself() // it was woken for nothing
			return
		}
		c.giveWay = false
		c.conn.SetReadDeadline(time.Time{})
		s.readable.Broadcast()
	})
}

// read reads data for p, or returns 0 when something else happened. mu is held.
func (c *carrier) read(p []byte) int {
	c.reading = true
	n := c.step(p)
	c.reading = false
	if c.giveWay && !c.dead {
		c.giveWay = false
		c.conn.SetReadDeadline(time.Time{})
	}
	return n
}

// step reads something and acts on it. Data that is next in order goes to p as
// far as it fits, and into the inbox without p; step returns how much p got.
// mu is held, and given up while it waits for the socket.
func (c *carrier) step(p []byte) int {
	if c.left > 0 {
		return c.stepData(p)
	}
	for c.end-c.begin < wire.LinkHeaderLen {
		most := readBuffer
		if len(p) >= readBuffer/4 {
			most = wire.LinkHeaderLen - (c.end - c.begin) // the data goes straight to p
		}
		if !c.fill(most) {
			return 0
		}
	}
	h, err := wire.ParseLinkHeader(c.buf[c.begin:c.end])
	if err != nil {
		c.stream.finish(fmt.Errorf("link to %s: %w", c.stream.name, err))
		return 0
	}
	c.begin += wire.LinkHeaderLen
	if err := c.handle(h); err != nil {
		c.stream.finish(fmt.Errorf("link to %s: %w", c.stream.name, err))
		return 0
	}
	if c.left > 0 {
		return c.stepData(p)
	}
	return 0
}

// handle acts on a header.
func (c *carrier) handle(h wire.LinkHeader) error {
	s := c.stream
	if err := s.acked(h.Ack); err != nil {
		return err
	}
	switch h.Kind {
	case wire.LinkData:
		if _, err := s.recv.Look(h.Offset, int(h.Length)); errors.Is(err, resume.ErrFragmented) {
			s.failed(c, err)
			return nil
		} else if err != nil {
			return err
		}
		c.left, c.off = int(h.Length), h.Offset
		if h.Flags&wire.AckSoon != 0 {
			c.saying |= sayAck // along with an answer, or when the data is read
		}
	case wire.LinkPing:
		c.pong = h.Offset
		c.say(sayPong)
	case wire.LinkPong:
		c.asked, c.doubted = 0, false
	case wire.LinkFin:
		if err := s.recv.Fin(h.Offset); err != nil {
			return err
		}
		s.readable.Broadcast()
		c.say(sayAck)
	case wire.LinkAbort:
		text := make([]byte, h.Length)
		for i := range text {
			for c.begin == c.end {
				if !c.fill(readBuffer) {
					return nil
				}
			}
			text[i] = c.buf[c.begin]
			c.begin++
		}
		if len(text) == 0 && s.send.Finished() || s.recv.Ended() {
			s.finish(net.ErrClosed)
			return nil
		}
		return fmt.Errorf("%w: the peer gave it up: %s", overlay.ErrRefused, text)
	}
	s.done()
	return nil
}

// stepData reads bytes of the current data.
func (c *carrier) stepData(p []byte) int {
	s := c.stream
	if c.begin < c.end { // what is buffered comes first
		n := min(c.left, c.end-c.begin)
		data := c.buf[c.begin : c.begin+n]
		if p != nil && len(p) < n {
			n = len(p)
			data = data[:n]
		}
		c.begin += n
		return c.took(p, data)
	}
	if p == nil || len(p) < readBuffer/4 && len(p) < c.left || s.in.size > 0 {
		if !c.fill(readBuffer) {
			return 0
		}
		return c.stepData(p)
	}
	if len(p) > c.left {
		p = p[:c.left]
	}
	n, ok := c.receive(p)
	if !ok {
		return 0
	}
	return c.took(p, p[:n])
}

// took enters bytes that were read, which may lie in p already. It returns how
// many of them p has.
func (c *carrier) took(p, data []byte) int {
	s := c.stream
	off := c.off
	c.off += uint64(len(data))
	c.left -= len(data)
	v, err := s.recv.Data(off, len(data))
	if err != nil {
		if errors.Is(err, resume.ErrFragmented) {
			s.failed(c, err)
		} else {
			s.finish(fmt.Errorf("link to %s: %w", s.name, err))
		}
		return 0
	}
	n := 0
	switch fresh := data[v.Skip:]; {
	case v.Deliver > 0 && p != nil && s.in.size == 0:
		n = copy(p, fresh[:v.Deliver])
		if n < v.Deliver {
			s.in.deliver(fresh[n:v.Deliver])
		}
	case v.Deliver > 0:
		s.in.deliver(fresh[:v.Deliver])
	case v.Store > 0:
		s.in.keep(off+uint64(v.Skip), fresh[:v.Store])
	}
	for {
		at, k, ok := s.recv.Advance()
		if !ok {
			break
		}
		s.in.release(at, k)
	}
	if len(s.in.early) > 0 {
		s.in.prune(s.recv.Next())
	}
	if c.left == 0 && c.saying&sayAck != 0 {
		c.wakeWriter()
	}
	if s.in.size > 0 && s.reads > 0 && c != s.lead {
		s.readable.Broadcast()
		s.interruptLead()
	}
	s.done()
	return n
}

// fill reads at most so many bytes into the buffer. It returns false when that
// failed.
func (c *carrier) fill(most int) bool {
	if c.buf == nil {
		c.buf = make([]byte, readBuffer)
	}
	if c.begin == c.end {
		c.begin, c.end = 0, 0
	} else if c.begin > 0 && c.end == len(c.buf) {
		copy(c.buf, c.buf[c.begin:c.end])
		c.begin, c.end = 0, c.end-c.begin
	}
	n, ok := c.receive(c.buf[c.end:min(c.end+most, len(c.buf))])
	c.end += n
	return ok
}

// receive reads from the socket, without mu.
func (c *carrier) receive(b []byte) (int, bool) {
	s := c.stream
	if c.giveWay {
		return 0, false
	}
	s.mu.Unlock()
	n, err := c.conn.Read(b)
	s.mu.Lock()
	if n > 0 {
		c.heard.Store(s.ticks.Load())
		return n, true
	}
	if c.dead || errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, false
	}
	if err == io.EOF {
		err = errors.New("the connection was closed")
	}
	s.failed(c, err)
	return 0, false
}
