package stream

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/link/resume"
)

// Window bounds the data in flight in each direction, in bytes, before anything is known about the
// path: 1 Gb/s at 60 ms, twice. See window.go.
const Window = 16 << 20

// Options identify a stream's peer and hold its owner's callbacks. The functions are called while
// the stream is locked: they must not block, nor call the stream.
type Options struct {
	Peer string // for errors

	// Lost is called for each carrier that has died while the stream continues; left is the number
	// of remaining carriers. An error that it returns ends the stream.
	Lost func(c *Carrier, err error, left int) error

	// Silent is called when nothing arrives on any carrier any more. Another carrier is wanted; the
	// existing ones may yet revive. unacked reports whether this end waits for an acknowledgement:
	// the other end may have nothing to wait for, and not notice. nil: these carriers end only when
	// the peer does, as within one machine, so that silence means nothing: the process may be
	// suspended.
	Silent func(unacked bool)

	// Late, if not nil, is called at each tick at which no carrier has answered in time, but not
	// all are silent for long enough to call Silent: the owner may begin dials that cost other
	// processes nothing.
	Late func()

	// AskAfter, if not nil, returns after how long a silence the peer of a carrier without load is
	// asked for a sign of life. It is called at every tick.
	AskAfter func(c *Carrier) time.Duration

	// Acked, if not nil, returns how long ago the peer's system last acknowledged anything on a
	// carrier, or false if that is unknown: the other end of its connection may be a relay's. A
	// stream asks before it drops, or doubts, a carrier whose peer does not answer in time.
	Acked func(c *Carrier) (time.Duration, bool)

	// Windows reports that the peer understands the windows in headers.
	Windows bool

	// Counts, if not nil, reports for an attached carrier whether its bytes count in Traffic.
	Counts func(about any) bool

	// Ended is called once, when the stream is over.
	Ended func()
}

// A Stream is two streams of bytes over carriers. It is a net.Conn.
type Stream struct {
	o Options

	writeMu sync.Mutex // serialises writers; locked before mu

	// mu guards everything below except the carriers' sockets. The goroutine that set a carrier's
	// writing writes it, and the one that set its reading reads it.
	mu            sync.Mutex
	send          *resume.Sender
	recv          *resume.Receiver
	out           outbox
	in            pages    // from took on
	took          uint64   // bytes that Read has returned, or that will not be read
	ackSent       uint64   // the latest acknowledgement sent
	ackSentOn     *Carrier // the carrier that it was, or is being, written on
	ackSentAtTick uint64   // value of ackSent at the last tick
	bounded       bool     // the peer has sent the end of its stream
	soon          bool     // the peer waits for an acknowledgement of what has arrived
	urged
	windows windows

	met      bool       // something has arrived from the peer
	carriers []*Carrier // alive, the oldest first
	dying    []*Carrier // dead, but the system is still reading the memory they were given to write
	lead     *Carrier   // the carrier on which data arrives, which Read reads itself; nil: none is alive
	ids      resume.Carrier
	readers  int   // pending calls of Read
	readAt   int64 // tick of the latest call of Read
	calm     bool  // see Calm
	spread   bool  // data arrives on several carriers; see spreads
	load     load
	passed   struct{ sent, received uint64 } // by carriers that count, including headers

	readable, writable sync.Cond
	readBy, writeBy    deadline
	wrote              written

	closing  bool  // this end has closed
	farewell bool  // the LinkAbort is being sent
	err      error // why the stream is over; nil after a regular end
	over     bool
	linger   *time.Timer
	ticks    atomic.Int64 // see Tick
	work     sync.WaitGroup
}

// New returns a stream without carriers.
func New(o Options) *Stream {
	s := &Stream{o: o, send: resume.NewSender(Window), recv: resume.NewReceiver(Window)}
	s.windows.in, s.windows.out = Window, Window
	s.ticks.Store(1)
	s.readable.L, s.writable.L = &s.mu, &s.mu
	s.readBy.wake = s.wakeReader
	s.writeBy.wake = s.writable.Broadcast
	return s
}

// longHandshake is the handshake round trip, which may include the peer's decision, from which the
// round trip is measured again.
const longHandshake = 50 * time.Millisecond

// Attach adds an authenticated carrier, which the stream owns from then on, also after an error.
// received is how many bytes of this end's stream the peer has, as it reported in the carrier's
// handshake. The carrier stands by if there is another; see Use.
func (s *Stream) Attach(conn net.Conn, about any, received uint64, rtt time.Duration) (*Carrier, error) {
	c := newCarrier(s, conn, about, rtt)
	c.counts = s.o.Counts != nil && s.o.Counts(about)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		conn.Close()
		return nil, s.ended("attach")
	}
	s.ids++
	c.id = s.ids
	if _, err := s.send.Up(c.id, 0, received); err != nil {
		conn.Close()
		return nil, fmt.Errorf("link to %s: %w", s.o.Peer, err)
	}
	s.acknowledged()
	s.release(nil)
	c.heard = s.ticks.Load()
	c.used = c.heard
	s.carriers = append(s.carriers, c)
	if s.calm {
		c.stopPolling()
	}
	if s.windows.unsent > 0 {
		c.boundUnsent()
	}
	if s.lead == nil {
		s.lead = c
	} else {
		c.readOn()
	}
	if s.closing {
		c.readOn()
	}
	if rtt > longHandshake {
		c.queueSignal(sayPing)
	}
	s.dismiss(true) // before c is given new data: what a silent carrier left goes first
	s.work.Go(c.writeLoop)
	c.wake()
	s.readable.Broadcast()
	s.writable.Broadcast()
	return c, nil
}

// Calm makes reads sleep at once when there is no data, instead of polling for a moment, because
// the stream's user no longer needs low latency.
func (s *Stream) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
	for _, c := range s.carriers {
		c.stopPolling()
	}
}

// Received returns how much of the peer's stream was taken, for the handshake of another carrier,
// or an error if the stream is over.
func (s *Stream) Received() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, s.ended("attach")
	}
	return s.ack(), nil
}

// Met reports whether anything has ever arrived from the peer; if so the peer has this stream for
// certain.
func (s *Stream) Met() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.met
}

// Drop closes a carrier; what it left unacknowledged goes to others.
func (s *Stream) Drop(c *Carrier, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed(c, why)
}

// failed removes a carrier.
func (s *Stream) failed(c *Carrier, err error) {
	if c.dead {
		return
	}
	c.dead = true
	switch {
	case c.writing && c.from < c.to:
		s.dying = append(s.dying, c)
	case !c.writing: // no goroutine reads what was pending
		clear(c.iov)
		c.pending, c.from, c.to = false, 0, 0
	}
	c.conn.Close()
	c.wake()
	s.send.Down(c.id)
	s.reshare()
	parting := c.writing && s.ackSentOn == c && s.isParted()
	s.ackSent = 0 // what was acknowledged on it may not have arrived
	if s.ackSentOn == c {
		s.ackSentOn = nil
	}
	for i, other := range s.carriers {
		if other == c {
			s.carriers = append(s.carriers[:i:i], s.carriers[i+1:]...)
			break
		}
	}
	if s.lead == c {
		s.lead = nil
		if n := len(s.carriers); n > 0 {
			s.lead = s.carriers[n-1]
		}
	}
	if s.lead != nil {
		s.lead.queueSignal(sayAck)
	}
	s.wakeAll()
	s.readable.Broadcast()
	s.writable.Broadcast()
	if parting && len(s.carriers) == 0 && !s.over {
		c.parting = err // wrote decides whether the stream is done
		return
	}
	s.lost(c, err)
}

// lost handles the death of a carrier.
func (s *Stream) lost(c *Carrier, err error) {
	if s.over {
		return
	}
	last := len(s.carriers) == 0 && s.send.Finished()
	if last && s.closing {
		s.finish(net.ErrClosed) // the peer has all of it, and knows where it ends
		return
	}
	if last && s.recv.Ended() && s.waiting() == 0 && s.linger == nil {
		// The peer may still wait for the acknowledgement of its last data, and look for a carrier
		// to ask on. If the peer itself ended the carrier, it will not.
		s.linger = time.AfterFunc(lingering, func() { s.Fail(net.ErrClosed) })
	}
	if end := s.o.Lost(c, err, len(s.carriers)); end != nil {
		s.finish(end)
	}
}

// wakeAll makes every carrier's goroutine check for something to write.
func (s *Stream) wakeAll() {
	for _, c := range s.carriers {
		c.wake()
	}
}

// Fail ends the stream with an error. Received bytes can still be read.
func (s *Stream) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(err)
}

// finish ends the stream. Later calls return err.
func (s *Stream) finish(err error) {
	if s.over {
		return
	}
	s.over = true
	if s.err == nil {
		s.err = noDeadline(err)
	}
	if s.linger != nil {
		s.linger.Stop()
	}
	for _, c := range append([]*Carrier(nil), s.carriers...) {
		s.failed(c, s.err)
	}
	s.out = outbox{end: s.out.end} // a carrier may still be reading it, so its pages are not reused
	s.narrow()
	s.readable.Broadcast()
	s.writable.Broadcast()
	s.o.Ended()
}

// noDeadline returns err wrapped so that it does not match os.ErrDeadlineExceeded: from a stream
// that error means that the owner's own deadline has passed, and the owner would retry again and
// again on a stream that is over, for example because a handshake stalled.
func noDeadline(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return lostError{err}
	}
	return err
}

// lostError is an error that matches what its cause matches, except os.ErrDeadlineExceeded.
type lostError struct{ cause error }

func (e lostError) Error() string { return e.cause.Error() }
func (e lostError) Is(target error) bool {
	return target != os.ErrDeadlineExceeded && errors.Is(e.cause, target)
}
func (e lostError) As(target any) bool { return errors.As(e.cause, target) }

// Wait returns when every goroutine of the stream has ended, which is soon after it is over.
func (s *Stream) Wait() { s.work.Wait() }

// ended returns the error of a call on a stream that is over.
func (s *Stream) ended(op string) error {
	switch {
	case s.closing:
		return fmt.Errorf("link to %s: %s: %w", s.o.Peer, op, net.ErrClosed)
	case s.err != nil:
		return s.err
	}
	return nil
}

// LocalAddr returns the local address of the carrier on which data arrives.
func (s *Stream) LocalAddr() net.Addr { return s.addr(net.Conn.LocalAddr) }

// RemoteAddr returns the remote address of the carrier on which data arrives.
func (s *Stream) RemoteAddr() net.Addr { return s.addr(net.Conn.RemoteAddr) }

func (s *Stream) addr(of func(net.Conn) net.Addr) net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lead == nil {
		return noAddr{}
	}
	return of(s.lead.conn)
}

type noAddr struct{}

func (noAddr) Network() string { return "link" }
func (noAddr) String() string  { return "no carrier" }

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline bounds Read; see net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBy.set(&s.mu, t)
	return nil
}

// SetWriteDeadline bounds the wait for room in Write, not what the system does with bytes that it
// has accepted; see net.Conn.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeBy.set(&s.mu, t)
	return nil
}

// A deadline ends a wait. It is guarded by the stream's mu.
type deadline struct {
	timer  *time.Timer
	passed bool
	wake   func() // called with mu held
}

func (d *deadline) set(mu *sync.Mutex, t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.passed = !t.IsZero() && !time.Now().Before(t)
	if d.passed {
		d.wake()
	} else if !t.IsZero() {
		var timer *time.Timer
		timer = time.AfterFunc(time.Until(t), func() {
			mu.Lock()
			defer mu.Unlock()
			if d.timer == timer {
				d.passed = true
				d.wake()
			}
		})
		d.timer = timer
	}
}

func (s *Stream) deadlineError(op string) error {
	return fmt.Errorf("link to %s: %s: %w", s.o.Peer, op, os.ErrDeadlineExceeded)
}
