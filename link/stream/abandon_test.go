package stream

import (
	"io"
	"runtime"
	"testing"
)

// TestLeftCarrierHoldsNothingBack: what a carrier has not delivered soon after the stream moved to
// another is sent again on that one, at both ends and although the first lives; duplicates are
// delivered once.
func TestLeftCarrierHoldsNothingBack(t *testing.T) {
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
	carried := func(i int) (bytes uint64, lives bool) {
		for _, c := range w.ends[i].Carriers() {
			if c.Carrier == slow.carriers[i] {
				return c.Carried, true
			}
		}
		return 0, false
	}
	for i := range w.ends {
		for bytes, lives := carried(i); bytes == 0 && lives; bytes, lives = carried(i) {
			runtime.Gosched()
		}
	}
	w.ends[0].Use(fast.carriers[0], 1)
	w.watch()
	for range 4 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for i := range w.ends {
		if bytes, lives := carried(i); bytes > 0 || !lives {
			t.Errorf("end %d: the slow carrier lives: %v, and carries %d bytes; it was to be left in peace", i, lives, bytes)
		}
	}
}
