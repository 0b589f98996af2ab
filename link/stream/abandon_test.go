package stream

import (
	"io"
	"testing"
)

// TestLeftCarrierHoldsNothingBack: what a carrier has not delivered soon after the stream moved to
// another is sent again on that one, at both ends and although the first lives; duplicates are
// delivered once. Time passes in ticks until then: on a busy machine real time would pass before
// the peer has moved too, and the silence of the first carrier would end it.
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
		until(t, what, func() bool { return is(0) && is(1) })
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
}
