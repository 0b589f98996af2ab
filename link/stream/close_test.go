package stream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// What an end may do. Each sends a number of bytes and returns what it read.
var habits = []struct {
	name   string
	sends  int
	reads  bool
	closes bool
	ends   bool // ends its stream before it reads
}{
	{"closes", 0, false, true, false},
	{"sends, closes", 2 << 20, false, true, false},
	{"reads, closes", 0, true, true, false},
	{"sends, ends, reads, closes", 2 << 20, true, true, true},
	{"does nothing", 0, false, false, false},
}

// TestClose: whatever the two ends do, with a carrier that survives or one that is cut at the worst
// time, both streams end; a reader gets all that was sent and then io.EOF, and an end that closed
// gets net.ErrClosed.
func TestClose(t *testing.T) {
	for i, x := range habits {
		for j, y := range habits[i:] {
			if x.reads && y.reads && !x.ends && !y.ends || !y.closes && (x.reads || !x.closes) {
				continue // each waits for the other for ever, as it should
			}
			for _, cut := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s; %s; cut=%v", x.name, habits[i+j].name, cut), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						w.watch()
						road := w.with("tcp")
						w.busy.Go(func() { w.mend() })
						var both sync.WaitGroup
						for k, h := range []int{i, i + j} {
							both.Go(func() { w.act(k, h, habits[[]int{i + j, i}[k]].sends) })
						}
						if cut {
							road.cut()
						}
						both.Wait()
						for _, e := range w.ends {
							<-e.over
						}
					})
				})
			}
		}
	}
}

// mend gives the streams another carrier whenever they request one.
func (w *world) mend() {
	for {
		select {
		case <-w.ends[0].want:
		case <-w.ends[1].want:
		case <-w.stop:
			return
		}
		if !w.attach(w.road("unix")) { // one is over, which the handshake reports to the other
			for _, e := range w.ends {
				e.Fail(fmt.Errorf("the peer knows it no more: %w", net.ErrClosed))
			}
			return
		}
	}
}

// act carries out a habit at one end, where the other sends a number of bytes.
func (w *world) act(k, habit, others int) {
	h, s, t := habits[habit], w.ends[k].Stream, w.t
	buf := make([]byte, 1<<20)
	for off := 0; off < h.sends; off += len(buf) {
		want(buf, k, uint64(off))
		if _, err := s.Write(buf); err != nil {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("end %d: %v", k, err)
			}
			break
		}
	}
	if h.ends {
		if err := s.CloseWrite(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("end %d: %v", k, err)
		}
	}
	if h.reads {
		if n, err := receive(s, 1-k, -1, random(2)); err != nil || n != others {
			t.Errorf("end %d got %d of %d bytes: %v", k, n, others, err)
		}
		if _, err := s.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("end %d, reading behind the end: %v", k, err)
		}
	}
	if !h.closes {
		return
	}
	if err := s.Close(); err != nil {
		t.Errorf("end %d: closing: %v", k, err)
	}
	_, read := s.Read(make([]byte, 1))
	_, write := s.Write(make([]byte, 1))
	for what, err := range map[string]error{"reading": read, "writing": write, "closing again": s.Close(), "ending": s.CloseWrite()} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("end %d, closed, %s: %v", k, what, err)
		}
	}
}

// TestCloseWithoutACarrier: what was written without a carrier arrives when there is one again,
// although the stream was closed meanwhile.
func TestCloseWithoutACarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.watch()
		w.with("tcp").cut()
		a, b := w.ends[0], w.ends[1]
		<-a.want
		<-b.want
		if err := send(a.Stream, 0, 0, random(1)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<20)
		want(buf, 0, 0)
		if _, err := a.Write(buf); err != nil {
			t.Fatal(err)
		}
		a.Close()
		w.with("tcp")
		w.busy.Go(func() { w.mend() }) // a machine that stalls loses even this one
		if n, err := receive(b.Stream, 0, -1, random(2)); n != len(buf) || err != nil {
			t.Errorf("%d of %d bytes came: %v", n, len(buf), err)
		}
	})
}

// TestCloseWithoutAPath: a stream that has no carrier when it is closed, and gets none, ends
// nevertheless.
func TestCloseWithoutAPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.watch()
		a := w.ends[0]
		if _, err := a.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		a.Close()
		<-a.over
	})
}

// TestCloseOnAStuckCarrier: a carrier that accepts nothing any more does not keep a closed stream
// alive, even if it is stuck in the LinkAbort.
func TestCloseOnAStuckCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		defer all.Wait()
		for _, sent := range []int{0, 1, 5 << 20} {
			w := newWorld(t) // no watch
			w.lasts()
			r := w.road("unix")
			c := &stuck{Conn: r.ends[0], closed: make(chan struct{})}
			r.ends[0] = c
			w.attach(r)
			a := w.ends[0]
			if sent > 0 {
				all.Go(func() { a.Write(make([]byte, sent)) })
				testkit.Until(t, "the writer to be stuck", func() bool {
					a.mu.Lock()
					defer a.mu.Unlock()
					return a.send.Sent() > 0
				})
			}
			a.Close()
			all.Go(func() { <-a.over })
		}
	})
}

// stuck is a connection that accepts nothing until it is closed.
type stuck struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *stuck) Write([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}

func (c *stuck) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestLeave: the peer receives the reason, and both are over at once.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.with("tcp")
		a, b := w.ends[0], w.ends[1]
		var reading sync.WaitGroup
		reading.Go(func() {
			if _, err := b.Read(make([]byte, 1)); err == nil || !containsAll(err.Error(), "end 0", "the roof is on fire") {
				t.Errorf("the peer was told %v", err)
			}
		})
		a.Leave("the roof is on fire")
		<-a.over
		<-b.over
		reading.Wait()
		if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("writing after having left: %v", err)
		}
	})
}

// TestLastAcknowledgementIsWritten: the last acknowledgement is written before a stream ends, even
// if the socket took only a part of it at once.
func TestLastAcknowledgementIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.watch()
		a, b := w.pair("tcp")
		w.attach(&road{ends: [2]net.Conn{stingy{ConnOf(a)}, stingy{ConnOf(b)}}, cut: func() { reset(a); reset(b) }})
		x, y := w.ends[0], w.ends[1]
		const n = 64 << 10
		if err := x.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := y.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
		if err := send(y.Stream, 1, n, random(1)); err != nil {
			t.Fatal(err)
		}
		if err := y.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for all := false; !all; time.Sleep(time.Millisecond) { // x only has to read, and to acknowledge
			x.mu.Lock()
			all = x.send.Finished() && x.recv.Ended()
			x.mu.Unlock()
		}
		if _, err := receive(x.Stream, 1, n, random(2)); err != nil {
			t.Fatal(err)
		}
		for _, e := range w.ends {
			<-e.over
			e.lostMu.Lock()
			if len(e.lost) > 0 {
				t.Errorf("lost %v", e.lost)
			}
			e.lostMu.Unlock()
		}
	})
}

// stingy is a connection that takes one byte without blocking.
type stingy struct{ Conn }

func (s stingy) TryWriteVec(bufs ...[]byte) (int, error) {
	return s.Conn.(tryWriter).TryWriteVec(bufs[0][:1])
}

// TestPeerIsFasterThanTheLastWrite: the peer has received the last acknowledgement and is gone
// before the call that writes it returns here, with success or not, and the end is read before that or after.
func TestPeerIsFasterThanTheLastWrite(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error // error of the call
		read bool  // the end, before the call returns
		lost int   // carriers that this end reports as lost
	}{{"written", nil, true, 0}, {"who knows", net.ErrClosed, true, 1}, {"not read", net.ErrClosed, false, 1}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.watch()
				a, b := w.pair("tcp")
				slow := &tardy{Conn: ConnOf(b), err: tc.err, read: tc.read, over: make(chan struct{})}
				w.attach(&road{ends: [2]net.Conn{a, slow}, cut: func() { reset(a); reset(b) }})
				x, y := w.ends[0], w.ends[1]
				if err := y.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if _, err := x.Read(make([]byte, 1)); err != io.EOF {
					t.Fatal(err)
				}
				for heard := false; !heard; time.Sleep(time.Millisecond) {
					y.mu.Lock()
					heard = y.send.Finished()
					y.mu.Unlock()
				}
				slow.late.Store(true)
				if err := x.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if _, err := y.Read(make([]byte, 1)); err != io.EOF {
					t.Fatal(err)
				}
				for i, e := range w.ends {
					<-e.over
					e.lostMu.Lock()
					if want := tc.lost * i; len(e.lost) != want {
						t.Errorf("end %d lost %v, and %d were to be lost", i, e.lost, want)
					}
					e.lostMu.Unlock()
				}
			})
		})
	}
}

// tardy is a connection whose writes, once they are late, return only after reading has ended and
// the reader has had time to check the state; or long before reading ends.
type tardy struct {
	Conn
	late atomic.Bool
	err  error
	read bool // what ends first is reading
	once sync.Once
	over chan struct{} // closed when reading ends
}

func (c *tardy) ReadVec(bufs ...[]byte) (int, error) {
	n, err := c.Conn.ReadVec(bufs...)
	if err == io.EOF {
		if !c.read {
			time.Sleep(time.Second)
		}
		c.once.Do(func() { close(c.over) })
	}
	return n, err
}

func (c *tardy) WriteVec(bufs ...[]byte) (int, error) {
	late := c.late.Load()
	n, err := c.Conn.WriteVec(bufs...)
	if late && err == nil {
		if c.read {
			<-c.over
			time.Sleep(10 * time.Millisecond)
		}
		err = c.err
	}
	return n, err
}

// TestCloseDuringReads: a Close that interrupts a pending Read leaves the carrier a reader, so that
// both streams end by the peer's frames alone. No tick of the watch is made.
func TestCloseDuringReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.with("tcp")
		var reads sync.WaitGroup
		for _, e := range w.ends {
			reads.Go(func() {
				if _, err := e.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a Read during Close: %v", err)
				}
			})
		}
		for _, e := range w.ends {
			for !e.isReading() {
				runtime.Gosched()
			}
		}
		for _, e := range w.ends {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		reads.Wait()
		for i, e := range w.ends {
			<-e.over
			e.mu.Lock()
			if e.farewell {
				t.Errorf("end %d lingered until its time was over", i)
			}
			e.mu.Unlock()
		}
	})
}

// isReading reports whether a Read waits at a carrier.
func (e *end) isReading() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lead != nil && e.lead.byRead
}
