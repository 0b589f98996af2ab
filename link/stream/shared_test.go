package stream

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// sink is a connection that accepts everything, at once or once it is released, and brings nothing.
type sink struct {
	net.Conn
	mu     sync.Mutex
	took   int
	closed chan struct{}
	once   sync.Once

	held chan struct{} // data waits until it is closed; nil: it does not
	has  atomic.Bool   // data has waited
}

func newSink() *sink { return &sink{closed: make(chan struct{})} }

func (c *sink) WriteVec(bufs ...[]byte) (n int, err error) {
	for _, b := range bufs {
		n += len(b)
	}
	if c.held != nil && n > piece {
		c.has.Store(true)
		<-c.held
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took += n
	return n, nil
}

func (c *sink) ReadVec(...[]byte) (int, error) { <-c.closed; return 0, io.EOF }

func (c *sink) Close() error { c.once.Do(func() { close(c.closed) }); return nil }

func (c *sink) bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.took
}

func lonely(t *testing.T) *Stream {
	s := New(Options{Peer: "nobody", Lost: func(*Carrier, error, int) error { return nil }, Silent: func(bool) {}, Ended: func() {}})
	t.Cleanup(func() { s.Fail(net.ErrClosed); s.Wait() })
	return s
}

// TestHeld: a stream is held up when nearly a window is in flight, although the carrier has
// accepted it all.
func TestHeld(t *testing.T) {
	s := lonely(t)
	if _, err := s.Attach(newSink(), nil, 0, 0); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for range Window / len(buf) / 2 {
		if _, err := s.Write(buf); err != nil {
			t.Fatal(err)
		}
	}
	s.Watch()
	if l := s.Load(); l.Ticks != 1 || l.Held != 0 {
		t.Errorf("with half a window under way: %+v", l)
	}
	for range Window / len(buf) / 2 {
		if _, err := s.Write(buf); err != nil {
			t.Fatal(err)
		}
	}
	s.Watch()
	if l := s.Load(); l.Ticks != 2 || l.Held != 1 {
		t.Errorf("with a window under way: %+v", l)
	}
}

// TestBandwidth: only what was acknowledged between two ticks that both found waiting bytes counts
// as the carriers' rate.
func TestBandwidth(t *testing.T) {
	var l load
	now := time.Unix(1, 0)
	for _, tick := range []struct {
		held  bool
		acked uint64
	}{{false, 0}, {true, 900}, {true, 1000}, {true, 1300}, {false, 5000}, {true, 6000}, {true, 6000}} {
		wasHeld := l.held
		l.held = tick.held
		now = now.Add(Tick)
		l.measure(wasHeld, tick.acked, now)
	}
	if l.ticks.HeldBytes != 400 || l.ticks.HeldFor != 2*Tick {
		t.Errorf("%+v, want 400 bytes in two ticks", l.ticks)
	}
}

// TestFreeCarriersShare: of carriers that accept everything, each with a weight gets some of it, and a
// standby nothing. They hold the first data until each has some: any of their goroutines may run first.
func TestFreeCarriersShare(t *testing.T) {
	s := lonely(t)
	var sinks []*sink
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	for _, weight := range []uint32{100, 300, 0, 600} {
		c := newSink()
		c.held = held
		sinks = append(sinks, c)
		a, err := s.Attach(c, nil, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.Use(a, weight)
	}
	const n = Window / 2
	written := make(chan error, 1)
	go func() {
		_, err := s.Write(make([]byte, n))
		written <- err
	}()
	testkit.Until(t, "each carrier with a weight to have data", func() bool { return sinks[0].has.Load() && sinks[1].has.Load() && sinks[3].has.Load() })
	release()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "all bytes to be written", func() bool {
		sum := 0
		for _, c := range sinks {
			sum += c.bytes()
		}
		return sum >= n
	})
	for i, weighs := range []bool{true, true, false, true} {
		if got := sinks[i].bytes(); weighs != (got > piece) {
			t.Errorf("carrier %d took %d of %d bytes", i, got, n)
		}
	}
}

// TestSocketOf: the socket is found under any wrappers.
func TestSocketOf(t *testing.T) {
	near, _ := tcpPair(t)
	if got := SocketOf(wrapped{wrapped{near}}); got != near {
		t.Errorf("%v under two layers, want %v", got, near)
	}
	if got := SocketOf(ConnOf(wrapped{near})); got != near {
		t.Errorf("%v under a connection without vectored I/O, want %v", got, near)
	}
	if got := SocketOf(newSink()); got != nil {
		t.Errorf("%v under a connection without a socket", got)
	}
}

type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

func tcpPair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp4", ln.Addr().String())
	b, err2 := ln.Accept()
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}
