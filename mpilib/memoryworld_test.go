package mpilib

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// memoryWorld is TestWorld for tests about time, which call it in a bubble of synctest. The ranks are connected
// by memory, with connections that change may wrap, as if they were on different nodes.
func memoryWorld(t TB, n int, f func(ctx context.Context, c *Comm) error, change func(net.Conn) net.Conn, opts ...Option) {
	t.Helper()
	m := &memoryNetwork{change: change, joined: make(chan struct{}), members: map[overlay.ProcessName]*memoryMember{}}
	testWorld(t, n, m.join, f, opts...)
}

// A memoryNetwork connects the ranks of one world.
type memoryNetwork struct {
	change func(net.Conn) net.Conn // may be nil

	mu      sync.Mutex
	members map[overlay.ProcessName]*memoryMember
	joined  chan struct{} // closed and replaced when a member joins
}

// A memoryMember is a rank's connector.
type memoryMember struct {
	self     overlay.ProcessName
	network  *memoryNetwork
	incoming chan overlay.Carrier
	closed   chan struct{}
}

var _ overlay.Connector = (*memoryMember)(nil)

func (m *memoryNetwork) join(self overlay.ProcessName) (overlay.Connector, error) {
	r := &memoryMember{self, m, make(chan overlay.Carrier), make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[self] = r
	close(m.joined)
	m.joined = make(chan struct{})
	return r, nil
}

func (m *memoryNetwork) carrier(c net.Conn) overlay.Carrier {
	if m.change != nil {
		c = m.change(c)
	}
	return overlay.Carrier{Conn: c, Path: overlay.Path{Technique: overlay.Direct, Reason: "a test's"}}
}

// Dial implements overlay.Connector.
func (r *memoryMember) Dial(ctx context.Context, peer overlay.ProcessName, _ overlay.Ways) (overlay.Carrier, error) {
	for {
		r.network.mu.Lock()
		other, joined := r.network.members[peer], r.network.joined
		r.network.mu.Unlock()
		if other == nil {
			select {
			case <-joined:
				continue
			case <-ctx.Done():
				return overlay.Carrier{}, ctx.Err()
			}
		}
		near, far := memoryPipe()
		select {
		case other.incoming <- r.network.carrier(far):
			return r.network.carrier(near), nil
		case <-other.closed: // as one that has not started
		case <-ctx.Done():
			return overlay.Carrier{}, ctx.Err()
		}
	}
}

// Accept implements overlay.Connector.
func (r *memoryMember) Accept(ctx context.Context) (overlay.Carrier, error) {
	select {
	case c := <-r.incoming:
		return c, nil
	case <-r.closed:
		return overlay.Carrier{}, net.ErrClosed
	case <-ctx.Done():
		return overlay.Carrier{}, ctx.Err()
	}
}

// Close implements overlay.Connector.
func (r *memoryMember) Close() error {
	r.network.mu.Lock()
	defer r.network.mu.Unlock()
	delete(r.network.members, r.self)
	close(r.closed)
	return nil
}

// A memoryConn is one end of a connection that buffers what is written, as a socket does and net.Pipe
// does not: both ends of a link write first.
type memoryConn struct{ in, out *memoryStream }

// memoryPipe returns the two ends of a connection.
func memoryPipe() (a, b net.Conn) {
	x, y := newMemoryStream(), newMemoryStream()
	return memoryConn{x, y}, memoryConn{y, x}
}

func (c memoryConn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c memoryConn) Write(b []byte) (int, error) { return c.out.write(b) }
func (c memoryConn) CloseWrite() error           { c.out.change(func() { c.out.ended = true }); return nil }
func (c memoryConn) LocalAddr() net.Addr         { return &net.UnixAddr{Name: "memory", Net: "unix"} }
func (c memoryConn) RemoteAddr() net.Addr        { return c.LocalAddr() }

func (c memoryConn) Close() error {
	c.in.change(func() { c.in.unread = true })
	return c.CloseWrite()
}

func (c memoryConn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c memoryConn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.readBy = t })
	return nil
}

func (c memoryConn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.writeBy = t })
	return nil
}

// maxStreamed is how many bytes a memoryStream holds.
const maxStreamed = 64 << 10

// A memoryStream is one direction of a connection.
type memoryStream struct {
	mu              sync.Mutex
	bytes           []byte
	ended, unread   bool // by its writer; its reader is gone
	readBy, writeBy time.Time
	changed         chan struct{} // closed and replaced at each change
}

func newMemoryStream() *memoryStream { return &memoryStream{changed: make(chan struct{})} }

func (s *memoryStream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.notify()
}

// notify wakes who waits for a change. mu is held.
func (s *memoryStream) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait releases mu until the next change or the deadline, which has passed when it returns false.
func (s *memoryStream) wait(deadline time.Time) bool {
	changed := s.changed
	var expired <-chan time.Time
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		clock := time.NewTimer(left)
		defer clock.Stop()
		expired = clock.C
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
	case <-expired:
	}
	return true
}

func (s *memoryStream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.unread:
			return 0, net.ErrClosed
		case len(s.bytes) > 0 || len(b) == 0:
			n := copy(b, s.bytes)
			s.bytes = slices.Delete(s.bytes, 0, n)
			s.notify()
			return n, nil
		case s.ended:
			return 0, io.EOF
		case !s.wait(s.readBy):
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func (s *memoryStream) write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(b) {
		room := min(maxStreamed-len(s.bytes), len(b)-n)
		switch {
		case s.ended || s.unread:
			return n, net.ErrClosed
		case room > 0:
			s.bytes = append(s.bytes, b[n:n+room]...)
			n += room
			s.notify()
		case !s.wait(s.writeBy):
			return n, os.ErrDeadlineExceeded
		}
	}
	return n, nil
}
