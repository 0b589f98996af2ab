package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/link/resume"
)

// window bounds what may be under way in each direction of a link, in bytes:
// 1 Gb/s at 60 ms and as much again.
const window = 16 << 20

// A stream is the two streams of a link over the carriers that it has at the
// moment. It is a net.Conn whose carriers come and go unseen.
//
// mu guards everything but the carriers' sockets. A carrier is written by
// whoever has set writing, and read by whoever has set its reading: the caller
// of Read for the lead, so that a small message costs no goroutine, and a
// goroutine for the others and while nobody is in Read, so that a peer's
// questions are always answered.
type stream struct {
	name string // of the peer, for errors

	mu   sync.Mutex
	send *resume.Sender
	recv *resume.Receiver
	out  outbox
	in   inbox
	told uint64 // the latest acknowledgement said to the peer

	carriers []*carrier // alive, the oldest first
	lead     *carrier   // that which Read reads itself; nil: none is alive
	ids      resume.Carrier
	reads    int // calls of Read under way, 0 or 1

	readable, writable sync.Cond
	readBy, writeBy    deadline

	closing  bool  // this end has closed
	farewell bool  // and tells the peer
	err      error // why the link is over, apart from a proper end

	lost  func(*carrier, error) // told of each carrier's end; called with mu held, must not wait
	doubt func()                // told that a carrier is silent; the same
	ended func()                // called once when the link is over, with mu held
	over  bool
	ticks atomic.Int64 // the clock of the watch; see watch.go
	work  sync.WaitGroup
}

func newStream(name string, lost func(*carrier, error), ended func()) *stream {
	s := &stream{
		name: name, send: resume.NewSender(window), recv: resume.NewReceiver(window), lost: lost, doubt: func() {}, ended: ended,
	}
	s.readable.L, s.writable.L = &s.mu, &s.mu
	s.readBy.wake = func() { s.readable.Broadcast(); s.interruptLead() }
	s.writeBy.wake = s.writable.Broadcast
	return s
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

// Write implements net.Conn. It returns when p is in the kernel's hands, and
// copies what the peer has not acknowledged by then.
func (s *stream) Write(p []byte) (int, error) {
	one := [1][]byte{p}
	n, err := s.WriteBuffers(one[:])
	return int(n), err
}

// WriteBuffers writes several buffers as one, in as few system calls as the
// kernel takes. It does not change bufs or what they hold, and keeps neither.
func (s *stream) WriteBuffers(bufs [][]byte) (n int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.out.end
	lent := false
	for _, b := range bufs {
		for len(b) > 0 {
			room, err := s.room()
			if err != nil {
				s.takeBack(first)
				return n, err
			}
			part := b[:min(len(b), room)]
			s.send.Push(len(part))
			if len(part) >= lendFrom {
				s.out.lend(part)
				lent = true
			} else {
				s.out.add(part)
			}
			n += int64(len(part))
			if b = b[len(part):]; len(b) > 0 {
				s.flush()
			}
		}
	}
	s.flush()
	if lent {
		s.takeBack(first)
	}
	return n, nil
}

// room waits until something may be written.
func (s *stream) room() (int, error) {
	for {
		switch room := s.send.Room(); {
		case s.err != nil:
			return 0, s.err
		case s.closing:
			return 0, fmt.Errorf("link to %s: %w", s.name, net.ErrClosed)
		case s.writeBy.passed:
			return 0, fmt.Errorf("link to %s: write: %w", s.name, os.ErrDeadlineExceeded)
		case room > 0:
			return room, nil
		}
		s.flush()
		if s.send.Room() == 0 {
			s.writable.Wait()
		}
	}
}

// takeBack copies what the stream still holds of lent bytes from off on, once no
// carrier is writing them.
func (s *stream) takeBack(from uint64) {
	to := s.out.end
	for s.writingLent(from, to) {
		s.writable.Wait()
	}
	s.out.own(from, to)
}

// writingLent reports whether a carrier is writing bytes between from and to.
func (s *stream) writingLent(from, to uint64) bool {
	for _, c := range s.carriers {
		if c.writing && c.from < to && c.to > from {
			return true
		}
	}
	return false
}

// flush has what there is to write written: here and now if one carrier alone
// is to write it and is free, else by the carriers' goroutines.
func (s *stream) flush() {
	var only *carrier
	for _, c := range s.carriers {
		if !s.send.Uses(c.id) {
			continue
		}
		if only != nil {
			only = nil
			break
		}
		only = c
	}
	if only != nil && !only.writing {
		only.write()
		return
	}
	s.kickAll()
}

func (s *stream) kickAll() {
	for _, c := range s.carriers {
		c.wakeWriter()
	}
}

// acked takes an acknowledgement from the peer.
func (s *stream) acked(off uint64) error {
	if off <= s.send.Acked() {
		return nil
	}
	if _, err := s.send.Ack(off); err != nil {
		return err
	}
	s.release()
	s.writable.Broadcast()
	return nil
}

// release lets go of what is acknowledged, but for what is just being written.
func (s *stream) release() {
	free := min(s.send.Acked(), s.send.End())
	for _, c := range s.carriers {
		if c.writing && c.from < c.to {
			free = min(free, c.from)
		}
	}
	s.out.free(free)
}

// ack returns what to acknowledge: everything that a Read has taken.
func (s *stream) ack() uint64 {
	if s.in.size > 0 {
		return s.recv.Next() - uint64(s.in.size)
	}
	return s.recv.Ack()
}

// ackEvery is how many bytes may come in before they are acknowledged though
// nothing is sent that could take the acknowledgement along.
const ackEvery = 256 << 10

// Read implements net.Conn. At most one may be under way.
func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	s.reads++
	defer func() { s.reads-- }()
	for {
		if s.closing {
			s.readOn()
			return 0, fmt.Errorf("link to %s: %w", s.name, net.ErrClosed)
		}
		if s.in.size > 0 {
			n := s.in.take(p)
			s.afterRead()
			return n, nil
		}
		switch {
		case s.recv.Ended():
			s.readOn()
			return 0, io.EOF
		case s.err != nil:
			return 0, s.err
		case s.readBy.passed:
			return 0, fmt.Errorf("link to %s: read: %w", s.name, os.ErrDeadlineExceeded)
		}
		c := s.lead
		if c == nil {
			s.readable.Wait()
			continue
		}
		if c.reading { // by a goroutine: it is to give way
			c.interrupt()
			s.readable.Wait()
			continue
		}
		if n := c.read(p); n > 0 {
			s.afterRead()
			return n, nil
		}
	}
}

// readOn has the lead read though nobody is in Read.
func (s *stream) readOn() {
	if c := s.lead; c != nil && !c.reading && !s.over {
		c.readByItself()
	}
}

// afterRead has an acknowledgement sent where it is due.
func (s *stream) afterRead() {
	if due := s.ack() - s.told; due >= ackEvery {
		s.wantAck()
	}
}

// wantAck has the lead tell what was received.
func (s *stream) wantAck() {
	if s.lead != nil {
		s.lead.say(sayAck)
	}
}

func (s *stream) interruptLead() {
	if s.lead != nil {
		s.lead.interrupt()
	}
}

// attach adds an authenticated carrier. peerHas is what the peer said it has
// received.
func (s *stream) attach(c *carrier, weight uint32, peerHas uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return fmt.Errorf("link to %s: %w", s.name, net.ErrClosed)
	}
	s.ids++
	c.id, c.stream = s.ids, s
	if _, err := s.send.Up(c.id, weight, peerHas); err != nil {
		return err
	}
	s.release()
	c.heard.Store(s.ticks.Load())
	s.carriers = append(s.carriers, c)
	if s.lead == nil {
		s.lead = c
	} else {
		c.readByItself()
	}
	s.work.Go(c.writeLoop)
	c.wakeWriter()
	s.readable.Broadcast()
	s.writable.Broadcast()
	return nil
}

// failed takes a carrier out. What it leaves unacknowledged goes to others.
func (s *stream) failed(c *carrier, err error) {
	if c.dead {
		return
	}
	c.dead = true
	c.conn.Close()
	c.wakeWriter()
	s.send.Down(c.id)
	s.told = 0 // what was said on it may not have come through
	for i, other := range s.carriers {
		if other == c {
			s.carriers = append(s.carriers[:i:i], s.carriers[i+1:]...)
			break
		}
	}
	if s.lead == c {
		s.lead = nil
		if len(s.carriers) > 0 {
			s.lead = s.carriers[len(s.carriers)-1]
		}
	}
	if s.lead != nil {
		s.lead.say(sayAck)
	}
	s.kickAll()
	s.readable.Broadcast()
	s.writable.Broadcast()
	if !s.over {
		s.lost(c, err)
	}
}

// CloseWrite ends this end's stream: the peer reads what was written, then
// io.EOF.
func (s *stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.send.Fin()
	s.flush()
	return nil
}

// Close ends the link. What was written before still goes to the peer, for
// lingering at most; Close does not wait for that.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return fmt.Errorf("link to %s: %w", s.name, net.ErrClosed)
	}
	s.closing, s.in = true, inbox{early: s.in.early, closed: true}
	s.send.Fin()
	s.kickAll()
	s.interruptLead()
	s.readable.Broadcast()
	s.writable.Broadcast()
	s.readOn() // for the peer's acknowledgement
	if len(s.carriers) == 0 {
		s.finish(net.ErrClosed)
	} else {
		time.AfterFunc(lingering, func() { s.abandon(net.ErrClosed) })
	}
	return nil
}

// lingering is how long a closed link's carriers stay, for the peer to get what
// was written.
const lingering = 3 * time.Second

// done ends the link if both ends are through with it.
func (s *stream) done() {
	switch {
	case !s.send.Finished() || s.over:
	case s.recv.Ended() && s.told == s.ack():
		s.finish(net.ErrClosed)
	case s.closing && s.lead != nil && !s.farewell:
		s.farewell = true
		s.lead.say(sayBye) // and then it is over
	}
}

// finish is the end of everything. err is what later calls return.
func (s *stream) finish(err error) {
	if s.over {
		return
	}
	s.over = true
	if s.err == nil {
		s.err = err
	}
	for _, c := range append([]*carrier(nil), s.carriers...) {
		s.failed(c, s.err)
	}
	if !s.recv.Ended() {
		s.in = inbox{}
	}
	s.out = outbox{end: s.out.end} // a carrier may still be reading it, so its chunks are not used again
	s.readable.Broadcast()
	s.writable.Broadcast()
	s.ended()
}

// abandon ends the link with an error.
func (s *stream) abandon(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(err)
}

// LocalAddr returns that of the lead carrier.
func (s *stream) LocalAddr() net.Addr { return s.addr(net.Conn.LocalAddr) }

// RemoteAddr returns that of the lead carrier.
func (s *stream) RemoteAddr() net.Addr { return s.addr(net.Conn.RemoteAddr) }

func (s *stream) addr(of func(net.Conn) net.Addr) net.Addr {
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
func (s *stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline bounds Read; see net.Conn.
func (s *stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBy.set(&s.mu, t)
	return nil
}

// SetWriteDeadline bounds waiting in Write; see net.Conn.
func (s *stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeBy.set(&s.mu, t)
	return nil
}
