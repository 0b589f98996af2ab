package stream

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"testing"
)

// TestNoAllocations: in a steady state a message allocates nothing at either end, small or large,
// copied or lent, echoed or in sequence.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; other runs tell")
		return
	}
	for _, size := range []int{1, 64 << 10, 1 << 20} {
		for _, lent := range []bool{false, true} {
			for _, echo := range []bool{false, true} {
				t.Run(fmt.Sprintf("size=%d/lent=%v/echo=%v", size, lent, echo), func(t *testing.T) {
					allocations(t, size, lent, echo)
				})
			}
		}
	}
}

// allocations checks the number per message in the whole process. Some are not the messages': the
// collector's and the test's own. So the least of some rounds counts.
func allocations(t *testing.T, size int, lent, echo bool) {
	w := newSocketWorld(t)
	w.with("tcp")
	a, b := w.ends[0].Stream, w.ends[1].Stream
	one := [][]byte{make([]byte, size)}
	write := func(s *Stream) error {
		if !lent {
			_, err := s.WriteBuffers(one)
			return err
		}
		_, mark, err := s.Lend(one)
		if err != nil {
			return err
		}
		return s.Await(mark)
	}
	echoed := make(chan error, 1)
	go func() { // ends when b does
		in := make([]byte, size)
		for {
			_, err := io.ReadFull(b, in)
			if err == nil && echo {
				err = write(b)
			}
			if err != nil {
				echoed <- err
				return
			}
		}
	}()
	in := make([]byte, size)
	run := func(n int) {
		for range n {
			err := write(a)
			if err == nil && echo {
				_, err = io.ReadFull(a, in)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	const messages, rounds = 40, 20
	least := math.Inf(1)
	for range rounds {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run(messages)
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/messages)
		if least < 0.1 {
			break
		}
	}
	if least >= 0.1 {
		t.Errorf("at least %.3f allocations per message in each of %d rounds", least, rounds)
	}
	b.Fail(errors.New("enough"))
	a.Fail(errors.New("enough"))
	<-echoed
}
