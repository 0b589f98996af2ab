package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/ipc/spin"
)

// miser is a connection that takes without blocking as much as take says, and counts how it was
// given bytes.
type miser struct {
	net.Conn
	take          func(n int) int
	tried, waited int
}

func (m *miser) TryWrite(p []byte) (int, error) {
	m.tried++
	n := m.take(len(p))
	if n == 0 {
		return 0, nil
	}
	return m.Conn.Write(p[:n])
}

func (m *miser) Write(p []byte) (int, error) {
	m.waited++
	return m.Conn.Write(p)
}

// miserly returns a pair whose first end writes to a miser.
func miserly(t testing.TB, take func(n int) int) (a, b *Conn, m *miser) {
	x, y := dial(t)
	m = &miser{Conn: x, take: take}
	a, b = sealedOver(t, m, y)
	m.waited = 0
	return a, b, m
}

func nothing(int) int      { return 0 }
func everything(n int) int { return n }

// TestTryWriteOverAMiser: however much the carrier takes at a time, every byte that was taken or
// written again arrives once and in order, across changes of keys too.
func TestTryWriteOverAMiser(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			a, b, m := miserly(t, func(n int) int {
				switch rng.IntN(4) {
				case 0:
					return 0
				case 1:
					return min(n, rng.IntN(4))
				case 2:
					return rng.IntN(n + 1)
				}
				return n
			})
			a.w.renew = 50
			data := random(seed, 200<<10)
			read := make(chan []byte)
			go func() { // ends with a's close_notify
				got, err := io.ReadAll(b)
				if err != nil {
					t.Error(err)
				}
				read <- got
			}()
			tried, kept, retried := 0, 0, 0
			for rest := data; len(rest) > 0; {
				p := rest[:min(len(rest), 1+rng.IntN(1000))]
				if again := a.w.kept.data; len(again) > 0 {
					if retried++; rng.IntN(2) == 0 {
						p = rest[:min(len(rest), max(1, len(again)+rng.IntN(100)-50))]
					}
				}
				n, err := 0, error(nil)
				if rng.IntN(4) > 0 {
					n, err = a.TryWriteVec(p[:len(p)/3], p[len(p)/3:])
				} else if at := rng.IntN(len(p)); true {
					n, err = a.WriteVec(p[:at], p[at:])
				}
				if err != nil || n > len(p) {
					t.Fatalf("%d, %v", n, err)
				}
				if n == 0 {
					kept++
				}
				tried++
				rest = rest[n:]
			}
			if err := a.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := <-read; !bytes.Equal(got, data) {
				t.Errorf("%d bytes arrived of %d, or others", len(got), len(data))
			}
			if kept == 0 || retried == 0 || m.tried == 0 {
				t.Errorf("of %d writes %d took nothing, and %d came behind one of those", tried, kept, retried)
			}
		})
	}
}

// TestTryWriteTakesAllOrNothing: also for a socket that has room for all of it.
func TestTryWriteTakesAllOrNothing(t *testing.T) {
	take := everything
	a, b, m := miserly(t, func(n int) int { return take(n) })
	word := []byte("word")
	step := func(what string, n int, want int, err error) {
		t.Helper()
		if n != want || err != nil {
			t.Fatalf("%s: %d, %v; want %d", what, n, err, want)
		}
	}
	heard := func(want string) {
		t.Helper()
		p := make([]byte, len(want))
		if _, err := io.ReadFull(b, p); string(p) != want {
			t.Fatalf("%q, %v; want %q", p, err, want)
		}
	}
	n, err := a.TryWriteVec(word)
	step("room for all", n, 4, err)
	heard("word")
	take = nothing
	n, err = a.TryWriteVec(word)
	step("room for nothing", n, 0, err)
	take = func(n int) int { return 10 }
	n, err = a.TryWriteVec(word)
	step("room for part of the record", n, 0, err)
	take = everything
	n, err = a.TryWriteVec(word[:3])
	step("room for the rest, and less written", n, 3, err)
	n, err = a.Write([]byte("d, and more"))
	step("the rest, and more", n, 11, err)
	heard("word, and more")
	n, err = a.TryWriteVec(make([]byte, maxTry+1))
	step("too much", n, 0, err)
	a.w.asked.Store(true)
	n, err = a.TryWriteVec(word)
	step("with keys to be changed", n, 0, err)
	if m.tried != 4 || m.waited != 1 {
		t.Errorf("%d tries and %d writes", m.tried, m.waited)
	}
}

// TestTryWriteWantsItsRest: after a TryWrite that took nothing, nothing else can be written.
func TestTryWriteWantsItsRest(t *testing.T) {
	for name, write := range map[string]func(*Conn) (int, error){
		"try":   func(c *Conn) (int, error) { return c.TryWriteVec([]byte("worse")) },
		"write": func(c *Conn) (int, error) { return c.WriteVec([]byte("w"), []byte("orse")) },
	} {
		t.Run(name, func(t *testing.T) {
			a, _, _ := miserly(t, nothing)
			if n, err := a.TryWriteVec([]byte("word")); n != 0 || err != nil {
				t.Fatal(n, err)
			}
			for range 2 {
				if n, err := write(a); n != 0 || !errors.Is(err, errOther) {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
	}
}

// TestGoodbyeBehindTheRest: the rest of a record goes before the close_notify, or the peer could
// not decode that.
func TestGoodbyeBehindTheRest(t *testing.T) {
	for name, end := range map[string]func(*Conn) error{"close": (*Conn).Close, "half": (*Conn).CloseWrite} {
		t.Run(name, func(t *testing.T) {
			few := 5
			a, b, _ := miserly(t, func(n int) int { n = min(n, few); few = 1 << 20; return n })
			if n, err := a.TryWriteVec([]byte("word")); n != 0 || err != nil {
				t.Fatal(n, err)
			}
			if err := end(a); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(b); string(got) != "word" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestCloseDoesNotWait: Close does not wait for a carrier with TryWrite: it only tries to send
// close_notify.
func TestCloseDoesNotWait(t *testing.T) {
	a, b, m := miserly(t, nothing)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if m.tried != 1 || m.waited != 0 {
		t.Errorf("%d tries and %d writes", m.tried, m.waited)
	}
	if _, err := io.ReadAll(b); !errors.Is(err, ErrTruncated) {
		t.Errorf("%v", err)
	}
}

// TestTryWriteOnASocket: a socket that is not read takes nothing in the end, and what it took
// arrives.
func TestTryWriteOnASocket(t *testing.T) {
	x, y := dial(t)
	s, err := spin.New(x, spin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := sealedOver(t, s, y)
	data := random(1, 64<<20)
	sent := 0
	for {
		n, err := a.TryWriteVec(data[sent : sent+1000])
		if err != nil {
			t.Fatal(err)
		}
		if sent += n; n == 0 {
			break
		}
	}
	t.Logf("it took %d bytes", sent)
	done := make(chan error, 1)
	go func() { // ends with the write
		_, err := a.Write(data[sent:])
		done <- errors.Join(err, a.Close())
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%v, or what arrived differs", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestTryWriteDoesNotAllocate: nothing is allocated where the carrier takes everything.
func TestTryWriteDoesNotAllocate(t *testing.T) {
	x, y := dial(t)
	s, err := spin.New(x, spin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := sealedOver(t, s, y)
	p := make([]byte, 24)
	if n := testing.AllocsPerRun(100, func() {
		n, err := a.TryWriteVec(p)
		if n < len(p) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if _, err := io.ReadFull(b, p); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
