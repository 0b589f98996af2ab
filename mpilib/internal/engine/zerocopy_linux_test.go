package engine

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
)

const lentSize = 3<<20 + 5

// A message that is exposed and given up before its receive comes is received as it was,
// whatever its sender does with the memory since.
func TestLentAndGivenUp(t *testing.T) {
	es, _ := together(t)
	var s, r Request
	b := numbered(make([]byte, lentSize), 1)
	want := bytes.Clone(b)
	es[1].Isend(&s, everyone{}, 0, 0, 5, b, Standard, true)
	probed(t, es[0], true, Result{Source: 1, Tag: 5, Bytes: lentSize})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if !s.exposed {
		t.Error("not exposed")
	}
	es[0].mu.Lock() // so that nobody answers the withdrawal
	es[0].peers[1].proto.Unexpected(s.ID).Taken = true
	es[0].mu.Unlock()
	if _, err := s.Wait(gone); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	clear(b)
	got := make([]byte, lentSize)
	es[0].Irecv(&r, everyone{}, 0, 1, 5, got)
	if _, err := wait(t, &r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; as it was: %v", err, bytes.Equal(got, want))
	}
}

// Both ends of zero-copy messages are given up at any moment. What is received is whole, and
// neither side's memory is touched once it has it back.
func TestLentAndGivenUpAtAnyMoment(t *testing.T) {
	es, _ := together(t)
	var given, taken int
	b, got, want, rest := make([]byte, lentSize), make([]byte, lentSize), make([]byte, lentSize), make([]byte, lentSize)
	for round := range sweep(10, 150) {
		random := rand.New(rand.NewPCG(3, uint64(round)))
		soon := func() (context.Context, context.CancelFunc) {
			if random.IntN(3) == 0 {
				return context.WithTimeout(t.Context(), 30*time.Second)
			}
			return context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
		}
		sctx, cancel := soon()
		rctx, cancel2 := soon()
		numbered(b, round)
		sent := make(chan error, 1)
		go func() {
			var s Request
			es[1].Isend(&s, everyone{}, 0, 0, round, b, Standard, true)
			_, err := s.Wait(sctx)
			clear(b)
			sent <- err
		}()
		var r Request
		es[0].Irecv(&r, everyone{}, 0, 1, round, got)
		_, err := r.Wait(rctx)
		switch {
		case err == nil:
			taken++
			if !bytes.Equal(got, numbered(want, round)) {
				t.Fatalf("round %d: damaged", round)
			}
		case !errors.Is(err, context.DeadlineExceeded):
			t.Fatal(err)
		default:
			given++
			got[0] = 0x5a
			repeat(got, 1)
		}
		if err != nil && sctx.Err() == nil { // else the send waits for ever
			es[0].Irecv(&r, everyone{}, 0, 1, round, rest)
			if random.IntN(2) == 0 {
				cancel()
			}
		}
		<-sent
		if err != nil {
			if n := len(got) - bytes.Count(got, []byte{0x5a}); n > 0 {
				t.Fatalf("round %d: %d bytes of a buffer were written after the receive had given it back", round, n)
			}
		}
		es[0].abandonForTest(&r)
		cancel()
		cancel2()
	}
	t.Logf("%d given up, %d received", given, taken)
}

// abandonForTest gives up a request that may be under way.
func (e *Engine) abandonForTest(r *Request) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if r.e != nil {
		r.Wait(gone)
	}
}

// Where a process may not touch its peer's memory, large messages go through the ring.
func TestMemoryClosed(t *testing.T) {
	for _, who := range [][]int{{0}, {1}, {0, 1}} {
		es, _, attach := neighbours(t, 1<<20)
		for _, i := range who {
			es[i].sharing.memory = func(shm.Descriptor) (*shm.Memory, error) { return nil, errors.New("closed") }
		}
		attach()
		settle(t, es, true)
		for i, e := range es {
			var s, r Request
			b, got := numbered(make([]byte, lentSize), i), make([]byte, lentSize)
			es[1-i].Irecv(&r, everyone{}, 0, i, 5, got)
			e.Isend(&s, everyone{}, 0, 1-i, 5, b, Standard, false)
			_, err := wait(t, &r)
			_, err2 := wait(t, &s)
			if err != nil || err2 != nil || !bytes.Equal(b, got) {
				t.Errorf("closed for %v, from %d: %v, %v", who, i, err, err2)
			}
		}
	}
}
