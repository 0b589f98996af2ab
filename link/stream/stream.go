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

// Window bounds what may be under way in each direction, in bytes, before anything is known of the
// path: 1 Gb/s at 60 ms and as much again. See window.go.
const Window = 16 << 20

// Options say whose stream it is and who wants to know of it. The functions are
// called while the stream is locked: they must not wait, nor call the stream.
type Options struct {
	Peer string // for errors

	// Lost is told of each carrier that has died while the stream goes on, and
	// how many are left. An error that it returns ends the stream.
	Lost func(c *Carrier, err error, left int) error

	// Silent is told that nothing comes on any carrier any more. Another is
	// wanted; those that there are may yet revive. unacked says that this end waits for
	// an acknowledgement: the other may have nothing to wait for, and not know. nil: these carriers end when the
	// peer does and not before, as within one machine, so that silence is no sign of
	// anything: the process may be suspended.
	Silent func(unacked bool)

	// Late, if any, is called at each tick at which no carrier has answered in time and
	// none is silent for so long that Silent is told: dials that cost nobody anything
	// can begin.
	Late func()

	// AskAfter, if any, returns after how long a silence the peer of a carrier
	// without load is asked for a sign of life. It is called at every tick.
	AskAfter func(c *Carrier) time.Duration

	// Windows says that the peer understands what headers say of windows.
	Windows bool

	// Counts, if any, says of what is attached whether the bytes on that carrier
	// count in Traffic.
	Counts func(about any) bool

	// Ended is called once, when the stream is over.
	Ended func()

	// Acknowledged, if any, is told when the peer's process has taken more: what
	// was lent before off is its owner's again.
	Acknowledged func(off uint64)
}

// A Stream is two streams of bytes over carriers. It is a net.Conn.
type Stream struct {
	o Options

	turn sync.Mutex // of those who write; held before mu

	// mu guards everything below but the carriers' sockets. A carrier is
	// written by whoever has set its writing, and read by whoever has set its
	// reading.
	mu      sync.Mutex
	send    *resume.Sender
	recv    *resume.Receiver
	out     outbox
	in      pages    // from taken on
	took    uint64   // bytes that Read has handed out, or that nobody will ask for
	told    uint64   // the latest acknowledgement said to the peer
	toldOn  *Carrier // where it was, or is being written
	toldAt  uint64   // what it was at the last tick
	bounded bool     // the peer has said where its stream ends
	soon    bool     // the peer waits for an acknowledgement of what is there
	urged
	windows windows

	met      bool       // something has come from the peer
	carriers []*Carrier // alive, the oldest first
	dying    []*Carrier // dead, but still reading what they were given to write
	lead     *Carrier   // that on which data comes, for Read to read itself; nil: none is alive
	ids      resume.Carrier
	readers  int   // calls of Read under way
	readAt   int64 // tick of the latest call of Read
	calm     bool  // see Calm
	spread   bool  // data comes on several carriers; see spreads
	load     load
	passed   struct{ sent, received uint64 } // by carriers that count, headers included

	readable, writable sync.Cond
	readBy, writeBy    deadline
	wrote              burst

	closing  bool  // this end has closed
	farewell bool  // and its last word is under way
	err      error // why the stream is over, apart from a proper end
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

// longHandshake is from when on the round trip of a handshake, in which the peer
// may have had to make up its mind, is measured again.
const longHandshake = 50 * time.Millisecond

// Attach adds an authenticated carrier, which the stream owns from then on, also
// after an error. received is how many bytes the peer has of this end's stream,
// as it said in the carrier's handshake. The carrier stands by if there is
// another; see Use.
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
	before := s.send.Acked()
	if _, err := s.send.Up(c.id, 0, received); err != nil {
		conn.Close()
		return nil, fmt.Errorf("link to %s: %w", s.o.Peer, err)
	}
	s.acknowledged()
	if s.send.Acked() > before && s.o.Acknowledged != nil {
		s.o.Acknowledged(received)
	}
	c.heard = s.ticks.Load()
	c.used = c.heard
	s.carriers = append(s.carriers, c)
	if s.calm {
		c.stopPolling()
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
	s.dismiss(true) // before c is given anything: what a silent one carries goes first
	s.work.Go(c.writeLoop)
	c.wake()
	s.readable.Broadcast()
	s.writable.Broadcast()
	return c, nil
}

// Calm has reads sleep at once where nothing is there, instead of polling for a moment: who
// uses the stream from now on is in no hurry.
func (s *Stream) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
	for _, c := range s.carriers {
		c.stopPolling()
	}
}

// Received returns how much of the peer's stream was taken, for the handshake
// of another carrier, or an error if the stream is over.
func (s *Stream) Received() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, s.ended("attach")
	}
	return s.ack(), nil
}

// Met reports whether anything has ever come from the peer, which then has this
// stream for certain.
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

// failed takes a carrier out.
func (s *Stream) failed(c *Carrier, err error) {
	if c.dead {
		return
	}
	c.dead = true
	switch {
	case c.writing && c.from < c.to:
		s.dying = append(s.dying, c)
	case !c.writing: // nobody reads what was pending
		clear(c.iov)
		c.pending, c.from, c.to = false, 0, 0
	}
	c.conn.Close()
	c.wake()
	s.send.Down(c.id)
	s.reshare()
	parting := c.writing && s.toldOn == c && s.isParted()
	s.told = 0 // what was said on it may not have come through
	if s.toldOn == c {
		s.toldOn = nil
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
		c.parting = err // wrote sees whether that was all
		return
	}
	s.lost(c, err)
}

// lost sees to what is left without a carrier.
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
		// The peer may still wait to hear that nothing was lost, and look for a way to
		// ask. If it was its own end that ended the carrier, it will not.
		s.linger = time.AfterFunc(lingering, func() { s.Fail(net.ErrClosed) })
	}
	if end := s.o.Lost(c, err, len(s.carriers)); end != nil {
		s.finish(end)
	}
}

// wakeAll has every carrier's goroutine look for something to write.
func (s *Stream) wakeAll() {
	for _, c := range s.carriers {
		c.wake()
	}
}

// Fail ends the stream with an error. Bytes that are here can still be read.
func (s *Stream) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(err)
}

// finish is the end of everything. err is what later calls return.
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
	s.out = outbox{end: s.out.end} // a carrier may still be reading it, so its pages are not used again
	s.narrow()
	s.readable.Broadcast()
	s.writable.Broadcast()
	s.o.Ended()
}

// noDeadline returns err such that it does not match os.ErrDeadlineExceeded: of a stream
// that error says that the owner's own deadline has passed, and a stream that is over, for
// a handshake that stalled perhaps, would be tried again and again.
func noDeadline(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return lostError{err}
	}
	return err
}

// lostError is an error that matches what it holds, but for os.ErrDeadlineExceeded.
type lostError struct{ cause error }

func (e lostError) Error() string { return e.cause.Error() }
func (e lostError) Is(target error) bool {
	return target != os.ErrDeadlineExceeded && errors.Is(e.cause, target)
}
func (e lostError) As(target any) bool { return errors.As(e.cause, target) }

// Wait returns when every goroutine of the stream has ended, which is soon after it is
// over.
func (s *Stream) Wait() { s.work.Wait() }

// ended is the error of a call that comes too late.
func (s *Stream) ended(op string) error {
	switch {
	case s.closing:
		return fmt.Errorf("link to %s: %s: %w", s.o.Peer, op, net.ErrClosed)
	case s.err != nil:
		return s.err
	}
	return nil
}

// LocalAddr returns that of the carrier on which data comes.
func (s *Stream) LocalAddr() net.Addr { return s.addr(net.Conn.LocalAddr) }

// RemoteAddr returns that of the carrier on which data comes.
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

// SetWriteDeadline bounds waiting for room in Write, not what the system does
// with bytes that it has been given; see net.Conn.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeBy.set(&s.mu, t)
	return nil
}

// A deadline ends waiting. The stream's mu guards it.
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
