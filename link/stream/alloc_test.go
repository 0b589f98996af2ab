package stream

import (
	"errors"
	"fmt"
	"io"
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
	for _, size := range []int{1, 1 << 10, 64 << 10, 1 << 20} {
		for _, lent := range []bool{false, true} {
			for _, echo := range []bool{false, true} {
				t.Run(fmt.Sprintf("size=%d/lent=%v/echo=%v", size, lent, echo), func(t *testing.T) {
					messages := 1000
					if size > 1<<10 {
						messages = 800
					}
					most := 0.2 // the test's own, and what the collector took from a pool
					if got := allocations(t, size, messages, lent, echo); got > most {
						t.Errorf("%.3f allocations per message", got)
					}
				})
			}
		}
	}
}

// allocations returns the number per message in the whole process.
func allocations(t *testing.T, size, messages int, lent, echo bool) float64 {
	w := newWorld(t)
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
	run(messages) // warm up
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(messages)
	runtime.ReadMemStats(&after)
	b.Fail(errors.New("enough"))
	a.Fail(errors.New("enough"))
	<-echoed
	return float64(after.Mallocs-before.Mallocs) / float64(messages)
}
