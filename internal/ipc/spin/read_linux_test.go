package spin

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// twoProcessors lets waits of this test spin. Tests of a package that share the count of spinning
// waits do not run in parallel.
func twoProcessors(t *testing.T) {
	old := runtime.GOMAXPROCS(2)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(old)
		if n := spinners.Load(); n != 0 {
			t.Errorf("%d places of spinning waits were not given back", n)
		}
	})
}

// Data that arrives during Idle is found before the read spins or parks.
func TestDataWhileIdle(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		twoProcessors(t)
		var peer net.Conn
		calls := 0
		c, peer := wrapped(t, network, Options{Budget: maxBudget, Idle: func() { calls++; peer.Write([]byte("now")) }})
		buf := make([]byte, 8)
		for i := range 10 {
			n, err := c.Read(buf)
			if string(buf[:n]) != "now" || err != nil {
				t.Fatalf("%q, %v", buf[:n], err)
			}
			if calls != i+1 {
				t.Fatalf("idle %d times in %d reads", calls, i+1)
			}
			if c.reader.phase == parked {
				t.Error("the read parked, though data was there")
			}
		}
	})
}

// Data that arrives while a read spins is found by a poll, and pays.
func TestDataDuringSpin(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		twoProcessors(t)
		write := make(chan struct{})
		c, peer := wrapped(t, network, Options{Budget: maxBudget, Idle: func() { write <- struct{}{} }})
		written := make(chan struct{})
		go func() { // ends when write is closed
			defer close(written)
			for range write {
				peer.Write([]byte{1})
			}
		}()
		defer func() { <-written }()
		defer close(write)
		buf := make([]byte, 1)
		for range 10_000 { // on a busy machine the byte may arrive before the spin, or late
			c.reader.gauge.credit = 1
			if _, err := c.Read(buf); err != nil {
				t.Fatal(err)
			}
			if c.reader.phase == spinning && c.reader.gauge.credit > gain*maxBudget {
				return
			}
		}
		t.Error("of 10000 spins none found what came, or none was paid for")
	})
}

// A read that finds data at once does not call Idle.
func TestReadyDataIsNotIdle(t *testing.T) {
	c, peer := wrapped(t, "unix", Options{Idle: func() { t.Error("idle") }})
	peer.Write([]byte("ready"))
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
}

// A deadline that passes during a spin ends the read when the budget is spent.
func TestDeadlineDuringSpin(t *testing.T) {
	twoProcessors(t)
	var c *Conn
	c, _ = wrapped(t, "tcp4", Options{Budget: maxBudget, Idle: func() { c.SetReadDeadline(time.Now().Add(-time.Second)) }})
	_, err := c.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if c.reader.gauge.credit >= most*maxBudget {
		t.Error("the read did not spin")
	}
}

func TestCloseDuringSpin(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		twoProcessors(t)
		closed := make(chan error, 1)
		var c *Conn
		c, _ = wrapped(t, network, Options{Budget: maxBudget, Idle: func() {
			go func() { closed <- c.Close() }() // ends when the read has ended
			for {
				if _, err := c.TryWrite([]byte{1}); err != nil { // the close has begun
					return
				}
				runtime.Gosched()
			}
		}})
		_, err := c.Read(make([]byte, 1))
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestPeerClosesDuringSpin(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		twoProcessors(t)
		var peer net.Conn
		c, peer := wrapped(t, network, Options{Budget: maxBudget, Idle: func() { peer.Close() }})
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%v", err)
		}
		if c.reader.phase == parked {
			t.Error("the read parked, though the end was there")
		}
	})
}

// An unsuccessful wait parks, and data then wakes it.
func TestParkedReadWakes(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		twoProcessors(t)
		c, peer := wrapped(t, network, Options{})
		got := make(chan error, 1)
		go func() { // ends with the byte below, or by its deadline
			_, err := c.Read(make([]byte, 1))
			got <- err
		}()
		for !someReadParked() {
			if len(got) > 0 {
				t.Fatal(<-got)
			}
			runtime.Gosched()
		}
		if _, err := peer.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		if c.reader.phase != parked {
			t.Error("the read did not park")
		}
	})
}

// A calm connection parks at once.
func TestCalmReadParksAtOnce(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		twoProcessors(t)
		c, peer := wrapped(t, network, Options{})
		c.Calm()
		got := make(chan error, 1)
		go func() { // ends with the byte below, or by its deadline
			_, err := c.Read(make([]byte, 1))
			got <- err
		}()
		for !someReadParked() {
			if len(got) > 0 {
				t.Fatal(<-got)
			}
			runtime.Gosched()
		}
		if _, err := peer.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		if c.reader.waits > 0 {
			t.Errorf("%d waits polled", c.reader.waits)
		}
	})
}

// someReadParked reports whether a goroutine waits in Read.
func someReadParked() bool {
	stacks := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "[IO wait") && strings.Contains(stack, "spin.(*Conn).Read(") {
			return true
		}
	}
	return false
}

// While the process's only place is taken, a wait parks at once and its account is not charged.
func TestNoPlaceToSpin(t *testing.T) {
	twoProcessors(t)
	spinners.Add(1)
	defer spinners.Add(-1)
	c, _ := wrapped(t, "tcp4", Options{Budget: maxBudget})
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if c.reader.phase != parked || c.reader.gauge.credit != most*maxBudget {
		t.Errorf("phase %d, credit %v", c.reader.phase, c.reader.gauge.credit)
	}
}

// A predicted wait calls Idle even if there is data, takes it, and is paid for; one that took
// everything leads to the next prediction, another one does not.
func TestForeseenWait(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	idled := 0
	c, peer := wrapped(t, "unix", Options{Budget: maxBudget, Idle: func() { idled++ }})
	r := &c.reader
	r.processors, r.waits = 1, 1
	for _, step := range []struct {
		size          int
		credit        time.Duration
		expect, waits bool
	}{
		{8, maxBudget, true, true},
		{2, maxBudget, true, true}, // leaves a byte
		{8, maxBudget, false, false},
		{8, 0, true, false},
	} {
		before := idled
		peer.Write([]byte("abc"))
		r.gauge.expect, r.gauge.credit = step.expect, step.credit
		if _, err := c.Read(make([]byte, step.size)); err != nil {
			t.Fatal(err)
		}
		if (idled > before) != step.waits {
			t.Errorf("%+v: idled %d times", step, idled-before)
		}
		if r.phase == spinning && r.gauge.credit > step.credit && r.gauge.expect != (step.size == 8) {
			t.Errorf("%+v: expects a wait next: %v", step, r.gauge.expect)
		}
		if r.phase != spinning && r.gauge.expect {
			t.Errorf("%+v: expects a wait though it had none", step)
		}
	}
	if n := spinners.Load(); n != 0 {
		t.Errorf("%d places of spinning waits were not given back", n)
	}
}

// A negative budget never spins.
func TestNeverSpins(t *testing.T) {
	twoProcessors(t)
	c, _ := wrapped(t, "tcp4", Options{Budget: -1})
	c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if c.reader.waits != 0 {
		t.Error("took a place to spin")
	}
}

// No buffer that a caller passed is retained.
func TestBuffersAreForgotten(t *testing.T) {
	c, peer := wrapped(t, "unix", Options{})
	peer.Write([]byte("abc"))
	if _, err := c.ReadVec(make([]byte, 1), make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteVec([]byte("a"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]*vector{"reader": &c.reader.vec, "writer": &c.writer.vec} {
		if v.hdr.Iov != nil || v.iov[0].Base != nil || v.iov[1].Base != nil {
			t.Errorf("the %s keeps buffers", what)
		}
	}
	if c.reader.buf != nil {
		t.Error("the reader keeps a buffer")
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, kind := range []string{"plain", "spin"} {
		b.Run(kind, func(b *testing.B) {
			x, y := pair(b, "tcp4")
			if kind == "spin" {
				var err error
				if x, err = New(x, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			go func() { io.Copy(struct{ io.Writer }{y}, struct{ io.Reader }{y}) }() // ends when x is closed
			buf := make([]byte, 1)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := x.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
			x.Close()
		})
	}
}

// On a single processor other goroutines run while a read spins, and not only once it has given up.
func TestSpinsBesideGoroutines(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c, peer := wrapped(t, "unix", Options{Budget: maxBudget})
	r := &c.reader
	r.processors, r.waits = 1, 1
	for range 1000 { // in a round that loses the processor for the whole budget the read gives up
		r.gauge.credit, r.gauge.expect = most*maxBudget, false
		go peer.Write([]byte("a"))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if r.phase == spinning {
			return
		}
	}
	t.Error("no read found while it spun what a goroutine wrote")
}
