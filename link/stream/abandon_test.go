package stream

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// TestLeftCarrierHoldsNothingBack: what a carrier has not delivered soon after the stream moved to
// another is sent again on that one, at both ends and although the first lives; duplicates are
// delivered once. Time passes in ticks until then: on a busy machine real time would pass before
// the peer has moved too, and the silence of the first carrier would end it.
func TestLeftCarrierHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slow := w.with("middle")
		const n = 8 << 20 // more than sockets hold
		slow.mute()       // what it accepts meanwhile makes it as slow as can be
		fast := w.with("tcp")
		done := make(chan error, 4)
		for i, e := range w.ends {
			data := make([]byte, n)
			want(data, i, 0)
			go func() { _, err := e.Write(data); done <- err }()
			got := make([]byte, n)
			peer := w.ends[1-i]
			go func() {
				_, err := io.ReadFull(peer, got)
				if bad := wrong(got, i, 0); err == nil && bad != "" {
					t.Error(bad)
				}
				done <- err
			}()
		}
		state := func(i int, r *road) (s State, lives bool) {
			for _, s := range w.ends[i].Carriers() {
				if s.Carrier == r.carriers[i] {
					return s, true
				}
			}
			return State{}, false
		}
		both := func(what string, is func(i int) bool) {
			t.Helper()
			testkit.Until(t, what, func() bool { return is(0) && is(1) })
		}
		both("data on the slow carrier", func(i int) bool { s, _ := state(i, slow); return s.InFlight > 0 })
		w.ends[0].Use(fast.carriers[0], 1)
		both("the move to the fast carrier", func(i int) bool { s, _ := state(i, fast); return s.Used })
		w.pass(int(abandonAfter / Tick))
		for i := range w.ends {
			if s, lives := state(i, slow); s.InFlight > 0 || s.Asked > 0 || !lives {
				t.Errorf("end %d: the slow carrier lives: %v, carries %d bytes, and was asked for %v; it was to be left in peace", i, lives, s.InFlight, s.Asked)
			}
		}
		w.watch()
		for range 4 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// clogged is a connection that takes nothing from some time on, without an error, until it is
// closed.
type clogged struct {
	net.Conn
	full   atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (c *clogged) Write(p []byte) (int, error) {
	if c.full.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *clogged) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestStuckFrameHoldsNothingBack: a carrier that was left and does not take the frame that it was
// given is dropped once another has delivered the same bytes, which cannot be freed before that.
func TestStuckFrameHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.road("tcp")
		clog := &clogged{Conn: r.ends[0], closed: make(chan struct{})}
		r.ends[0] = clog
		if !w.attach(r) {
			t.Fatal("the streams take no carrier")
		}
		e := w.ends[0]
		clog.full.Store(true)
		const n = 4 << 20
		data, got := make([]byte, n), make([]byte, n)
		want(data, 0, 0)
		done := make(chan error, 2)
		go func() { _, err := e.Write(data); done <- err }()
		testkit.Until(t, "the frame that is stuck", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.carriers[0].from < e.carriers[0].to
		})
		fast := w.with("tcp")
		e.Use(fast.carriers[0], 1)
		e.Use(r.carriers[0], 0)
		go func() { _, err := io.ReadFull(w.ends[1], got); done <- err }()
		w.watch()
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if bad := wrong(got, 0, 0); bad != "" {
			t.Error(bad)
		}
		testkit.Until(t, "the acknowledgement", e.Idle)
		e.lostMu.Lock()
		defer e.lostMu.Unlock()
		if len(e.lost) != 1 || !errors.Is(e.lost[0], errStuck) {
			t.Errorf("lost %v", e.lost)
		}
	})
}
