package carrier

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// gate is a Pacer that passes as much as the test allows.
type gate struct {
	open     atomic.Bool // Take need not be called
	bytes    chan int
	asked    chan int // arguments of Take
	returned atomic.Int64
	stop     sync.Once
	stopped  chan struct{}
}

func newGate() *gate {
	return &gate{bytes: make(chan int), asked: make(chan int, 1000), stopped: make(chan struct{})}
}

func (g *gate) Paced() bool { return !g.open.Load() }

func (g *gate) Take(_, n int) int {
	g.asked <- n
	select {
	case pass := <-g.bytes:
		return min(n, pass)
	case <-g.stopped:
		return 0
	}
}

// turn waits until a flow asks for a turn, and returns for how many bytes.
func (g *gate) turn(t *testing.T) (n int) {
	t.Helper()
	select {
	case n = <-g.asked:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody asks for a turn")
	}
	return n
}

func (g *gate) Return(_, n int) { g.returned.Add(int64(n)) }

func (g *gate) Stop() { g.stop.Do(func() { close(g.stopped) }) }

// Only what may pass does, in order, and the end of the stream needs no turn.
func TestPaced(t *testing.T) {
	g := newGate()
	j := startJoin(t, context.Background(), Options{Pacer: g})
	io.WriteString(j.left, "to be or not to be")
	if n := g.turn(t); n == 0 || n > 18 {
		t.Fatalf("asked for %d bytes", n)
	}
	g.bytes <- 5
	got := make([]byte, 18)
	if _, err := io.ReadFull(j.right, got[:5]); err != nil || string(got[:5]) != "to be" {
		t.Fatalf("%q, %v", got[:5], err)
	}
	j.right.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := j.right.Read(got[5:]); err == nil {
		t.Fatalf("%d more bytes came unasked", n)
	}
	j.right.SetReadDeadline(time.Time{})
	j.left.CloseWrite()
	j.right.CloseWrite() // needs no turn
	go func() {
		for range 18 { // more turns than it can take
			select {
			case g.bytes <- 4:
			case <-g.stopped:
				return
			}
		}
	}()
	if rest, err := io.ReadAll(j.right); err != nil || string(rest) != " or not to be" {
		t.Fatalf("%q, %v", rest, err)
	}
	if r := j.wait(t); r.err != nil || r.stats.AToB != 18 {
		t.Errorf("%+v", r)
	}
	g.Stop()
}

// A join that is rate-limited for a while, and then is not, loses nothing.
func TestPacedThenNot(t *testing.T) {
	g := newGate()
	j := startJoin(t, context.Background(), Options{Pacer: g})
	var sum []byte
	copied := make(chan struct{})
	var sent sync.WaitGroup
	sent.Go(func() {
		var err error
		if sum, err = random(j.left, 3_000_001); err != nil {
			t.Error(err)
		}
		j.left.CloseWrite()
		j.right.CloseWrite()
	})
	sent.Go(func() {
		for i := range 20 {
			select {
			case <-g.asked:
				g.bytes <- 1 + 10_000*i
			case <-g.stopped:
				return
			}
		}
		g.open.Store(true)
		select { // the turn that was requested before
		case <-g.asked:
			g.bytes <- 1
		case <-copied: // there is none if it checked later
		}
	})
	h := sha256.New()
	if _, err := io.Copy(h, j.right); err != nil {
		t.Error(err)
	}
	close(copied)
	sent.Wait()
	if r := j.wait(t); r.err != nil || r.stats.AToB != 3_000_001 {
		t.Errorf("%+v", r)
	}
	if !bytes.Equal(h.Sum(nil), sum) {
		t.Error("changed on the way")
	}
}

// A join that waits for its turn ends at once when it is cut, and does not count as idle.
func TestPacedIsCut(t *testing.T) {
	g := newGate()
	ctx, cancel := context.WithCancelCause(context.Background())
	j := startJoin(t, ctx, Options{Pacer: g, Idle: 10 * time.Millisecond})
	io.WriteString(j.left, "x")
	g.turn(t)
	select {
	case r := <-j.result:
		t.Fatalf("waiting was taken for silence: %v", r.err)
	case <-time.After(100 * time.Millisecond):
	}
	cause := errors.New("told to")
	cancel(cause)
	if r := j.wait(t); !errors.Is(r.err, cause) {
		t.Error(r.err)
	}
}

// A reset stays a reset although the pacer checked the socket before it was read.
func TestPacedReset(t *testing.T) {
	g := newGate()
	j := startJoin(t, context.Background(), Options{Pacer: g})
	j.left.SetLinger(0)
	j.left.Close()
	if r := j.wait(t); r.err == nil {
		t.Error("a reset passed for a proper end")
	}
	if _, err := j.right.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the other side reads %v, want a reset", err)
	}
	g.Stop()
}

// If a side died while the other direction waits for its turn, the join ends within the time that
// direction has to deliver.
func TestPacedDeadSide(t *testing.T) {
	g := newGate()
	j := startJoin(t, context.Background(), Options{Pacer: g})
	io.WriteString(j.right, "from the right") // waits for its turn
	g.turn(t)
	j.right.SetLinger(0)
	j.right.Close()
	io.WriteString(j.left, "from the left")
	g.turn(t)
	g.bytes <- 100 // one of them; whichever it is, the join ends
	if r := j.wait(t); r.err == nil {
		t.Error("the join ended without an error")
	}
}
