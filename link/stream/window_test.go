package stream

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// TestWindowFor: a window holds windowGain times the data of a round trip and storedGain times what
// was stored, in whole units and within the limits.
func TestWindowFor(t *testing.T) {
	const mbit = 1e6 / 8
	for _, tc := range []struct {
		rate   float64
		rtt    time.Duration
		stored uint64
		want   uint64
	}{
		{0, 0, 0, Window},
		{100 * mbit, 200 * time.Millisecond, 0, Window}, // 10 MB
		{10_000 * mbit, time.Millisecond, 0, Window},    // a fast short path needs no larger one
		{200 * mbit, 200 * time.Millisecond, 0, 306 * wire.WindowUnit},
		{1000 * mbit, 200 * time.Millisecond, 0, 1526 * wire.WindowUnit},
		{10_000 * mbit, 200 * time.Millisecond, 0, MaxWindow},
		{1e30, time.Hour, 0, MaxWindow},
		{0, 0, Window, 2 * Window}, // the window was full, and all of it waited for its first bytes
		{200 * mbit, 200 * time.Millisecond, 100 * wire.WindowUnit, 506 * wire.WindowUnit},
		{0, 0, MaxWindow, MaxWindow},
	} {
		if got := windowFor(tc.rate, tc.rtt, tc.stored); got != tc.want {
			t.Errorf("windowFor(%v, %v, %d) = %d, want %d", tc.rate, tc.rtt, tc.stored, got, tc.want)
		}
	}
}

// TestWindowOfAPromptReader: the window of a stream grows also while its process takes everything as
// it arrives and sends nothing, and by what is stored; but not while nothing arrives.
func TestWindowOfAPromptReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.ends[0], w.ends[1]
		a.Use(w.with("tcp").carriers[0], 1)
		tick := func() uint64 {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, c := range b.carriers {
				c.least, c.served = time.Second, b.ticks.Load()
			}
			b.windows.at = b.windows.at.Add(-time.Second) // a round trip has passed
			b.resize(time.Now())
			return b.windows.in
		}
		tick() // the first measurement
		if err := swap(a, b, 0, 8<<20); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.windows.took, b.windows.at = b.took-8<<20, time.Now()
		waiting, under := b.waiting(), b.send.End()-b.send.Acked()
		b.mu.Unlock()
		if waiting != 0 || under != 0 {
			t.Fatalf("%d bytes are not taken and %d not acknowledged", waiting, under)
		}
		if got, low, high := tick(), uint64(24<<20), uint64(32<<20); got < low || got > high {
			t.Errorf("the window is %d after 8 MiB in a round trip, want from %d to %d", got, low, high)
		}
		before := tick()
		b.mu.Lock()
		b.windows.stored = 48 << 20
		b.mu.Unlock()
		if got := tick(); got != before {
			t.Errorf("the window went from %d to %d while nothing arrived", before, got)
		}
		if err := swap(a, b, 8<<20, 1); err != nil {
			t.Fatal(err)
		}
		if got, want := tick(), uint64(96<<20+wire.WindowUnit); got != want { // a unit for the byte
			t.Errorf("the window is %d after 48 MiB were stored, want %d", got, want)
		}
	})
}

// TestBudget: streams get whole units, and together no more than the budget.
func TestBudget(t *testing.T) {
	b := budget{left: 5*wire.WindowUnit + 7}
	for _, tc := range []struct{ want, got uint64 }{
		{wire.WindowUnit + 1, wire.WindowUnit}, {3 * wire.WindowUnit, 3 * wire.WindowUnit}, {3 * wire.WindowUnit, wire.WindowUnit}, {wire.WindowUnit, 0},
	} {
		if got := b.take(tc.want); got != tc.got {
			t.Errorf("take(%d) = %d, want %d", tc.want, got, tc.got)
		}
	}
	if b.giveBack(2 * wire.WindowUnit); b.left != 2*wire.WindowUnit+7 {
		t.Errorf("%d bytes are left", b.left)
	}
}

// TestLargerWindow: an end that measures much over a long path advertises more than Window, and the
// other sends that much ahead; every byte arrives, over two carriers and after one has died. A peer
// without support for windows is sent none. What was taken from the budget is returned.
func TestLargerWindow(t *testing.T) {
	for _, knows := range []bool{true, false} {
		t.Run(fmt.Sprintf("peer knows windows: %v", knows), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := extra.left
				w := newWorld(t)
				a, b := w.ends[0], w.ends[1]
				b.o.Windows = knows
				first, second := w.with("tcp"), w.with("tcp")
				a.Use(first.carriers[0], 1)
				a.Use(second.carriers[0], 1)
				// b has taken 1 MiB within a tick, over a path with a round trip of a second.
				if err := swap(a, b, 0, 1<<20); err != nil {
					t.Fatal(err)
				}
				b.mu.Lock()
				for _, c := range b.carriers {
					c.least, c.served = time.Second, b.ticks.Load()
				}
				b.windows.took, b.windows.at = b.took-1<<20, time.Unix(0, 0)
				b.rightSize(time.Unix(0, 0).Add(50 * time.Millisecond)) // too soon to tell
				soon := b.windows.in
				b.rightSize(time.Unix(1, 0))
				unmoved := b.windows.in
				b.windows.took = b.took - 16<<20
				b.rightSize(time.Unix(2, 0))
				window := b.windows.in
				b.mu.Unlock()
				grown := uint64(Window)
				if knows {
					grown = 64 << 20
				}
				if soon != Window || unmoved != Window || window != grown {
					t.Fatalf("windows of %d, %d and %d, want %d, %[4]d and %d", soon, unmoved, window, Window, grown)
				}
				if err := swap(a, b, 1<<20, 2<<20); err != nil { // the acknowledgement carries the window
					t.Fatal(err)
				}
				b.mu.Lock()
				b.lead.queueSignal(sayAck)
				b.mu.Unlock()
				w.watch() // so that b receives what no Read takes
				const more = 40 << 20
				buf := make([]byte, more)
				want(buf, 0, 3<<20)
				wrote := make(chan error, 1)
				n := 0
				bound := time.Minute
				if !knows {
					bound = 3 * time.Second // after which a window is known to be full
				}
				a.SetWriteDeadline(time.Now().Add(bound))
				go func() {
					var err error
					n, err = a.Write(buf)
					wrote <- err
				}()
				err := <-wrote
				if knows && err != nil || !knows && (!isTimeout(err) || n != Window) {
					t.Fatalf("%d bytes went ahead: %v", n, err)
				}
				held := func() uint64 {
					b.mu.Lock()
					defer b.mu.Unlock()
					return b.recv.Next() - b.took
				}
				for knows && held() <= Window && !b.Over() {
					time.Sleep(delay)
				}
				first.cut()
				if _, err := receiveAt(b, 0, 3<<20, n); err != nil {
					t.Fatal(err)
				}
				for _, e := range w.ends {
					e.mu.Lock()
					e.narrow()
					e.mu.Unlock()
				}
				a.SetWriteDeadline(time.Time{})
				if err := swap(a, b, 3<<20+uint64(n), 20<<20); err != nil { // an advertised window can still be used
					t.Fatal(err)
				}
				for _, e := range w.ends {
					e.Fail(net.ErrClosed)
				}
				extra.mu.Lock()
				defer extra.mu.Unlock()
				if extra.left != before {
					t.Errorf("%d bytes of the budget are gone", before-extra.left)
				}
			})
		})
	}
}

// swap sends bytes of the first end's stream, starting at off, and receives them.
func swap(from, to *end, off uint64, n int) error {
	sent := make(chan error, 1)
	go func() {
		buf := make([]byte, n)
		want(buf, 0, off)
		_, err := from.Write(buf)
		sent <- err
	}()
	if _, err := receiveAt(to, 0, off, n); err != nil {
		return err
	}
	return <-sent
}

// receiveAt reads n bytes of an end's stream starting at off.
func receiveAt(e *end, from int, off uint64, n int) (int, error) {
	buf := make([]byte, 1<<20)
	for got := 0; got < n; {
		k, err := e.Read(buf[:min(len(buf), n-got)])
		if bad := wrong(buf[:k], from, off+uint64(got)); bad != "" {
			return got, fmt.Errorf("%s", bad)
		}
		got += k
		if err != nil {
			return got, err
		}
	}
	return n, nil
}
