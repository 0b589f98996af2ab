package stream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/spin"
	"github.com/isthmus-grid/isthmus/internal/rtt"
	"github.com/isthmus-grid/isthmus/link/resume"
	"github.com/isthmus-grid/isthmus/wire"
)

// A Carrier is one connection under a stream. It is guarded by the stream's mu.
type Carrier struct {
	Owner any // data of the owner

	id    resume.Carrier
	s     *Stream
	conn  Conn
	since time.Time
	dead  bool
	brief bool // the kernel buffers little beyond what is in flight
	last  bool // the stream's LinkAbort was composed for it

	parting error // why it died while the final acknowledgement was being written

	// Writing. The goroutine that set writing owns iov and head until it clears it.
	writing  bool
	from, to uint64 // of the stream's bytes that are being written
	kick     chan struct{}
	signals  signal
	use      uint32 // with sayUse
	pong     uint64 // with sayPong: the number of the question
	asked    question
	iov      [][]byte
	pending  bool // iov was composed and must still be written
	head     [5*headerLen + wire.PaddedLen + smallData]byte

	// Reading. The goroutine that set reading owns the rest.
	reading     bool
	byRead      bool   // reading is done by a call of Read
	alone       func() // readAlone, made once, because each method value allocates
	interrupted bool   // the socket's deadline has passed to make the reader check the state
	vec         [3][]byte
	buf         []byte
	begin, end  int    // of the buffered bytes
	left        int    // unread bytes of the current data frame
	off         uint64 // of its next byte

	heard  int64         // tick at which anything last arrived
	served int64         // tick at which data last arrived
	asking int64         // value of served when the last question was sent
	spoke  int64         // tick at which something was last written
	used   int64         // tick at which it was last given data
	woke   time.Duration // idle time before a write after which nothing has arrived yet; 0: none
	silent bool          // questions had no answer
	frame  int           // maximum frame size in bytes; owned by the writer
	late   bool          // an answer is overdue
	rtt    time.Duration // the latest round trip
	least  time.Duration // minimum of all that were measured
	trips  rtt.Estimate  // of answers
	in     uint64        // bytes received
	data   uint64        // of these, bytes of the stream
	outN   uint64
	counts bool // Options.Counts
}

// signal is a set of short frames to send.
type signal uint8

const (
	sayAck signal = 1 << iota
	sayUrge
	sayPing
	sayPong
	sayUse
	sayBye // the LinkAbort of a closed stream
)

const (
	headerLen = wire.LinkHeaderLen

	// Reads of at least directFrom bytes get data straight from the socket: the first directMost
	// bytes of a frame together with its header. They read ahead no further than small frames and
	// the next header, because what is read ahead is copied.
	directFrom = minZeroCopy
	directMost = 64 << 10
	ahead      = 2 << 10

	// readBuffer gathers small frames into one system call, and has room for a direct read that
	// turns out to be something else.
	readBuffer = wire.PaddedLen + directMost + ahead
)

func newCarrier(s *Stream, conn net.Conn, about any, trip time.Duration) *Carrier {
	c := &Carrier{
		Owner: about, s: s, conn: ConnOf(conn), since: time.Now(), rtt: trip, least: trip, trips: rtt.Estimate{SRTT: trip},
		kick: make(chan struct{}, 1), buf: make([]byte, readBuffer), frame: minFrame,
	}
	c.alone = c.readAlone
	return c
}

// stopPolling makes the connection stop polling, if it does.
func (c *Carrier) stopPolling() {
	if q, ok := c.conn.(interface{ Calm() }); ok {
		q.Calm()
	}
}

// sent counts bytes that the kernel has taken.
func (c *Carrier) sent(n int) {
	c.outN += uint64(n)
	if c.counts {
		c.s.passed.sent += uint64(n)
	}
}

// queueSignal queues a short frame, for the carrier's goroutine or to go along with data.
func (c *Carrier) queueSignal(what signal) {
	c.signals |= what
	c.wake()
}

// answer acknowledges what was read.
func (c *Carrier) answer() {
	c.signals |= sayAck
	c.offer(false)
}

// tryWriter is a connection that can be written without blocking: TryWriteVec returns how many
// bytes it took.
type tryWriter interface {
	TryWriteVec(bufs ...[]byte) (int, error)
}

// offer writes without the carrier's goroutine as much as the socket takes without blocking; that
// goroutine writes the rest. With leave nobody does for now, unless the connection took nothing, as one that is sealed does of much,
// Reclaim waits for it, or c is not the only one in use any more.
func (c *Carrier) offer(leave bool) {
	s := c.s
	try, ok := c.conn.(tryWriter)
	if !ok || c.writing {
		c.wake()
		return
	}
	c.writing = true
	for !c.dead && !c.pending && c.compose() {
		c.speaks(s.ticks.Load())
		s.mu.Unlock()
		n, err := try.TryWriteVec(c.iov...)
		s.mu.Lock()
		left := err == nil && c.keep(n)
		if left && !c.dead {
			c.pending = true
			c.sent(n)
			_, socket := c.conn.(*spin.Conn) // takes what fits: if nothing, it is full
			if !leave || n == 0 && !socket || s.wrote.reclaims || onlyCarrier(s) != c {
				c.wake()
			}
			break
		}
		if left {
			err = net.ErrClosed
		}
		c.frame = nextFrame(c.frame, n, 0)
		c.wrote(n, err)
		s.tellWritable()
	}
	c.writing = false
	s.checkDone()
}

// keep removes the first n bytes from iov, and reports whether any are left.
func (c *Carrier) keep(n int) bool {
	i := 0
	for i < len(c.iov) && n >= len(c.iov[i]) {
		n -= len(c.iov[i])
		i++
	}
	left := copy(c.iov, c.iov[i:])
	clear(c.iov[left:])
	c.iov = c.iov[:left]
	if n > 0 {
		c.iov[0] = c.iov[0][n:]
	}
	return left > 0
}

// wake makes the carrier's goroutine check for something to write.
func (c *Carrier) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// writeLoop writes what no caller writes, until the carrier dies.
func (c *Carrier) writeLoop() {
	for range c.kick {
		c.s.mu.Lock()
		if c.dead {
			c.s.tellWritable() // nobody writes what it had left
			c.s.mu.Unlock()
			return
		}
		if !c.writing {
			c.write()
		}
		c.s.mu.Unlock()
	}
}

// write writes all there is. mu is held, and released meanwhile.
func (c *Carrier) write() {
	for c.writeOnce() {
	}
}

// writeOnce writes once, and reports whether there may be more. mu is held, and released during the system call.
func (c *Carrier) writeOnce() (again bool) {
	s := c.s
	c.writing = true
	if !c.dead && c.compose() {
		again = true
		c.speaks(s.ticks.Load())
		large := c.to-c.from >= minFrame
		s.mu.Unlock()
		var began time.Time
		if large {
			began = time.Now()
		}
		n, err := c.conn.WriteVec(c.iov...)
		if large {
			c.frame = nextFrame(c.frame, n, time.Since(began))
		}
		s.mu.Lock()
		c.wrote(n, err)
	}
	end := s.send.End()
	s.tellWritable() // what it flushes is left to this goroutine
	c.writing = false
	s.checkDone()
	return again || s.send.End() > end
}

// Frames are as large as a carrier takes in a short time: a frame being written cannot be
// preempted, and on a slow path everything more urgent, such as data lost on another carrier, waits
// behind it. A new carrier begins with small frames.
const (
	minFrame = 64 << 10
	maxFrame = wire.MaxLinkData

	quickWrite = 50 * time.Millisecond
	slowWrite  = 200 * time.Millisecond
)

// nextFrame returns the maximum frame size after a write of n bytes that took the given time.
func nextFrame(size, n int, took time.Duration) int {
	switch {
	case took > slowWrite:
		return max(size/2, minFrame)
	case took < quickWrite && n >= size:
		return min(2*size, maxFrame)
	}
	return size
}

// wrote processes the result of a write.
func (c *Carrier) wrote(n int, err error) {
	s := c.s
	clear(c.iov)
	c.sent(n)
	c.spoke = s.ticks.Load()
	c.from, c.to = 0, 0
	if c.dead {
		s.dying = slices.DeleteFunc(s.dying, func(d *Carrier) bool { return d == c })
	}
	s.acknowledged()
	s.release(nil)
	s.writable.Broadcast()
	switch parting := c.parting; {
	case c.last && err == nil, parting != nil && err == nil:
		s.finish(net.ErrClosed)
	case parting != nil:
		c.parting = nil
		s.lost(c, parting)
	case err != nil:
		s.ackSent = 0 // no write is left that could decide whether the stream is done
		s.failed(c, c.died(fmt.Errorf("writing: %w", err)))
	}
}

// compose assembles the next write, and reports whether there is anything to write.
func (c *Carrier) compose() bool {
	s := c.s
	if s.farewell {
		return false
	}
	if c.pending {
		c.pending = false
		return true
	}
	l := letter{iov: c.iov[:0], head: c.head[:0], ack: s.ack(), window: s.advertiseWindow(s.ack())}
	say := c.signals
	c.signals = say & sayBye // the LinkAbort goes after all data
	if say&sayUrge != 0 {
		l.flags = wire.AckSoon
	}
	if s.load.held {
		l.flags |= wire.Held
	}
	if say&sayUse != 0 {
		l.header(wire.LinkHeader{Kind: wire.LinkUse, Offset: uint64(c.use)})
	}
	if say&sayPong != 0 {
		l.header(wire.LinkHeader{Kind: wire.LinkPong, Offset: c.pong})
	}
	if say&sayPing != 0 {
		c.asked.put(s.ticks.Load())
		l.header(wire.LinkHeader{Kind: wire.LinkPing, Offset: c.asked.number})
	}
	switch f, ok := s.frame(c); {
	case ok:
		if f.N > 0 {
			l.data(f.Off, f.N, &s.out)
			c.from, c.to = f.Off, f.Off+uint64(f.N)
			f = s.tail(c, f, &l)
		}
		if f.Fin {
			l.header(wire.LinkHeader{Kind: wire.LinkFin, Offset: f.Off + uint64(f.N)})
		}
	case say&sayBye != 0:
		l.header(wire.LinkHeader{Kind: wire.LinkAbort})
		s.farewell, c.last = true, true
	case say&(sayAck|sayUrge) != 0 && len(l.head) == 0:
		l.header(wire.LinkHeader{Kind: wire.LinkAck})
	}
	l.close()
	c.iov = l.iov
	if len(l.iov) == 0 {
		return false
	}
	s.ackSent, s.ackSentOn = l.ack, c
	return true
}

// tail appends the last small data after a large frame, if there is any: a message as large as a
// frame exceeds it by its envelope, and the remainder is not worth a system call and a packet. It
// returns the last frame.
func (s *Stream) tail(c *Carrier, f resume.Frame, l *letter) resume.Frame {
	left := s.send.End() - c.to
	if f.N <= smallData || f.Fin || left == 0 || left > smallData || s.send.Shared() || s.send.Lost() > 0 {
		return f
	}
	last, ok := s.send.Next(c.id, int(left))
	if !ok {
		return f
	}
	if last.N > 0 {
		l.data(last.Off, last.N, &s.out)
		c.to = last.Off + uint64(last.N)
	}
	return last
}

// A letter is the content of one write: headers and small data copied one after the other, large
// data in place.
type letter struct {
	iov   [][]byte
	head  []byte // never grows beyond its capacity
	begun int    // start of the part of head that is not in iov yet
	ack   uint64
	flags uint8

	window uint16
}

// smallData is the maximum size of data that is copied after its header, which takes less time than
// a second buffer in the system call.
const smallData = 2 << 10

func (l *letter) header(h wire.LinkHeader) {
	h.Ack, h.Window, h.Flags = l.ack, l.window, h.Flags|l.flags
	at := len(l.head)
	l.head = l.head[:at+h.Size()]
	clear(l.head[at:])
	h.Put(l.head[at:])
}

func (l *letter) data(off uint64, n int, from *outbox) {
	h := wire.LinkHeader{Kind: wire.LinkData, Length: uint32(n), Offset: off}
	if n >= minZeroCopy {
		h.Flags = wire.Padded
	}
	l.header(h)
	if n <= smallData {
		first := len(l.iov)
		l.iov = from.gather(l.iov, off, n)
		for _, b := range l.iov[first:] {
			l.head = append(l.head, b...)
		}
		l.iov = l.iov[:first]
		return
	}
	l.close()
	l.iov = from.gather(l.iov, off, n)
}

// close appends the rest of head to iov.
func (l *letter) close() {
	if l.begun < len(l.head) {
		l.iov = append(l.iov, l.head[l.begun:])
		l.begun = len(l.head)
	}
}

// interrupt wakes the reader of the carrier.
func (c *Carrier) interrupt() {
	c.interrupted = true
	c.conn.SetReadDeadline(time.Unix(1, 0))
}

// receive reads from the socket into the first k buffers of vec. It releases mu meanwhile.
func (c *Carrier) receive(k int) (n int, ok bool) {
	s := c.s
	s.tellWritable()
	s.mu.Unlock()
	n, err := c.conn.ReadVec(c.vec[:k]...)
	s.mu.Lock()
	clear(c.vec[:k])
	interrupted := c.interrupted
	if interrupted {
		c.interrupted = false
		c.conn.SetReadDeadline(time.Time{})
	}
	if n > 0 {
		c.heard, c.woke, s.met = s.ticks.Load(), 0, true
		c.in += uint64(n)
		if c.counts {
			s.passed.received += uint64(n)
		}
		return n, !c.dead
	}
	if c.dead || interrupted && errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, false
	}
	if err == io.EOF && !c.overdue() {
		err = errors.New("the peer closed it")
	} else {
		err = c.died(err)
	}
	s.failed(c, err)
	return 0, false
}

// header takes the next header from the buffer and acts on it. It returns false when that ended the
// carrier or the stream, or more input is needed.
func (c *Carrier) header() bool {
	s := c.s
	h, err := wire.ParseLinkHeader(c.buf[c.begin:c.end])
	if err == nil {
		err = s.hearAck(h.Ack, h.Window, c)
	}
	if err != nil {
		c.broken(err)
		return false
	}
	if h.Kind == wire.LinkAbort {
		return c.lastWord(int(h.Length))
	}
	c.begin += h.Size()
	if err := c.act(h); err != nil {
		c.broken(err)
		return false
	}
	s.checkDone()
	return !c.dead
}

func (c *Carrier) act(h wire.LinkHeader) error {
	s := c.s
	s.load.peerHeld = h.Flags&wire.Held != 0
	if h.Flags&wire.AckSoon != 0 {
		s.soon = true // stays set if everything was acknowledged: the data in question is still in flight
		if h.Kind != wire.LinkData && s.waiting() == 0 && s.ack() != s.ackSent {
			s.soon = false
			c.queueSignal(sayAck)
		}
	}
	switch h.Kind {
	case wire.LinkData:
		if h.Offset != s.recv.Next() || h.Length > Window || s.bounded {
			if _, err := s.recv.Look(h.Offset, int(h.Length)); err != nil {
				return err
			}
		}
		if end := h.Offset + uint64(h.Length); end > s.limit() {
			return fmt.Errorf("%w: data up to byte %d, of which it knows that %d were taken", resume.ErrProtocol, end, s.took)
		}
		c.left, c.off = int(h.Length), h.Offset
	case wire.LinkPing:
		c.pong = h.Offset
		c.queueSignal(sayPong)
	case wire.LinkPong:
		if d, ok := c.asked.answer(h.Offset); ok {
			c.rtt, c.least = d, min(c.least, d)
			c.trips = c.trips.Add(d)
		}
	case wire.LinkFin:
		if err := s.recv.Fin(h.Offset); err != nil {
			return err
		}
		s.bounded = true
		s.wakeReader()
		c.queueSignal(sayAck)
	case wire.LinkUse:
		s.send.Weight(c.id, uint32(min(h.Offset, resume.MaxWeight)))
		s.reshare()
		s.wakeAll()
	}
	return nil
}

// hearAck processes an acknowledgement and the window that came with it on a carrier.
func (s *Stream) hearAck(off uint64, window uint16, by *Carrier) error {
	if off <= s.send.Acked() {
		if s.allowed(off, window) {
			s.writable.Broadcast()
		}
		return nil
	}
	if _, err := s.send.Ack(off); err != nil {
		return err
	}
	s.allowed(off, window)
	s.acknowledged()
	s.writable.Broadcast()
	if s.send.Shared() {
		s.shareOut() // data that the bound of the bookkeeping delayed
	}
	s.release(by)
	return nil
}
