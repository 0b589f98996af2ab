package resume

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// refused checks that a call was a protocol error and changed nothing.
func refused(t *testing.T, what string, state interface{ String() string }, call func() error) {
	t.Helper()
	before := state.String()
	err := call()
	if !errors.Is(err, ErrProtocol) || !strings.HasPrefix(err.Error(), "resume: ") && !strings.HasPrefix(err.Error(), "carrier ") {
		t.Errorf("%s: %v, want a protocol error", what, err)
	}
	if after := state.String(); after != before {
		t.Errorf("%s: the state changed from\n%s to\n%s", what, before, after)
	}
}

func TestAckOfWhatWasNotSent(t *testing.T) {
	s := NewSender(100)
	up(t, s, 1, 1)
	s.Push(50)
	s.Fin()
	s.Next(1, 20)
	for _, off := range []uint64{21, 50, 51, 1 << 62, math.MaxUint64} {
		refused(t, "ack", s, func() error { _, err := s.Ack(off); return err })
		refused(t, "handshake", s, func() error { _, err := s.Up(2, 1, off); return err })
	}
	s.Next(1, 20)
	s.Next(1, 20) // with the fin
	if free, err := s.Ack(30); free != 30 || err != nil {
		t.Errorf("Ack(30) = %d, %v", free, err)
	}
	if free, err := s.Ack(10); free != 30 || err != nil {
		t.Errorf("Ack(10) after Ack(30) = %d, %v; want it ignored", free, err)
	}
	if free, err := s.Ack(51); free != 50 || err != nil || !s.Finished() {
		t.Errorf("Ack(51) = %d, %v; %v", free, err, s)
	}
	refused(t, "ack behind the fin", s, func() error { _, err := s.Ack(52); return err })
}

func TestCarriersThatCannotBeAdded(t *testing.T) {
	s := NewSender(100)
	for id := Carrier(1); id <= MaxCarriers; id++ {
		up(t, s, id, 1)
	}
	for _, id := range []Carrier{None, 5, MaxCarriers + 1} {
		if _, err := s.Up(id, 1, 0); !errors.Is(err, ErrCarrier) {
			t.Errorf("Up(%d) = %v", id, err)
		}
	}
	s.Down(5)
	up(t, s, MaxCarriers+1, 1)
	s.Down(99) // unknown carriers are ignored
	s.Drain(99)
	s.Weight(99, 1)
}

func TestFramesNoPeerSends(t *testing.T) {
	const window = 100
	r := NewReceiver(window)
	if _, err := r.Data(0, 40); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Data(60, 20); err != nil {
		t.Fatal(err)
	}
	data := func(off uint64, n int) {
		t.Helper()
		refused(t, "look", r, func() error { _, err := r.Look(off, n); return err })
		refused(t, "data", r, func() error { _, err := r.Data(off, n); return err })
	}
	fin := func(off uint64) {
		t.Helper()
		refused(t, "fin", r, func() error { return r.Fin(off) })
	}
	data(40, window+1)
	data(140, 1)
	data(139, 2)
	data(0, 141)
	data(40, -1)
	data(40, math.MaxInt)
	data(math.MaxUint64, 1)
	data(math.MaxUint64-10, 30)
	data(MaxOffset, 1)
	data(MaxOffset+1, 0)
	fin(39) // delivered beyond
	fin(79) // stored beyond
	fin(141)
	fin(math.MaxUint64)
	if err := r.Fin(90); err != nil {
		t.Fatal(err)
	}
	fin(91)
	fin(89)
	data(90, 1)
	data(40, 51)
	if err := r.Fin(90); err != nil {
		t.Errorf("the same fin again: %v", err)
	}
	if v, err := r.Data(0, 90); err != nil || v != (Verdict{Skip: 40, Deliver: 50}) || !r.Ended() || r.Ack() != 91 {
		t.Errorf("the whole stream again: %+v, %v; %v", v, err, r)
	}
	data(90, 1)
}

func TestFastPathKeepsTheWindow(t *testing.T) {
	r := NewReceiver(100)
	refused(t, "a frame beyond the window", r, func() error { _, err := r.Data(0, 101); return err })
	refused(t, "a negative frame", r, func() error { _, err := r.Data(0, -1); return err })
}

// TestEndOfOffsets reaches MaxOffset: the sender accepts no more, the receiver refuses more.
func TestEndOfOffsets(t *testing.T) {
	s, r := NewSender(100), NewReceiver(100)
	s.q.from, s.q.to, s.end, r.next = MaxOffset-10, MaxOffset-10, MaxOffset-10, MaxOffset-10
	up(t, s, 1, 1)
	if got := s.Push(50); got != 10 {
		t.Errorf("Push(50) = %d at 10 bytes before the end", got)
	}
	s.Fin()
	f, _ := s.Next(1, 50)
	if f != (Frame{MaxOffset - 10, 10, true}) {
		t.Errorf("%+v", f)
	}
	refused(t, "a frame beyond", r, func() error { _, err := r.Data(f.Off, 11); return err })
	refused(t, "a fin beyond", r, func() error { return r.Fin(MaxOffset + 1) })
	if v, err := r.Data(f.Off, 10); err != nil || v.Deliver != 10 {
		t.Errorf("%+v, %v", v, err)
	}
	if err := r.Fin(MaxOffset); err != nil {
		t.Error(err)
	}
	if _, err := s.Ack(r.Ack()); err != nil || !s.Finished() {
		t.Errorf("%v: %v", s, err)
	}
}

// TestFragmented stores the maximum number of separate bytes: one more changes nothing, and one
// that closes a gap is accepted.
func TestFragmented(t *testing.T) {
	r := NewReceiver(10 * Granule)
	most := 2 * (10 + MaxCarriers)
	for i := range most {
		if _, err := r.Data(uint64(2*i+1), 1); err != nil {
			t.Fatal(err)
		}
	}
	before := r.String()
	_, err := r.Data(uint64(2*most+1), 1)
	if _, err2 := r.Look(uint64(2*most+1), 1); !errors.Is(err, ErrFragmented) || !errors.Is(err2, ErrFragmented) {
		t.Errorf("Data: %v, Look: %v; want too fragmented", err, err2)
	}
	if r.String() != before {
		t.Errorf("the state changed from\n%s to\n%v", before, r)
	}
	if v, err := r.Data(2, 1); v.Store != 1 || err != nil {
		t.Errorf("a gap closed: %+v, %v", v, err)
	}
	if v, err := r.Data(uint64(2*most+1), 1); v.Store != 1 || err != nil {
		t.Errorf("and one more: %+v, %v", v, err)
	}
}

// TestVerdicts covers every position of a frame relative to what is there: [0,10) delivered,
// [20,30) and [40,50) stored.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		off  uint64
		n    int
		want Verdict
		next uint64 // after Advance
	}{
		{0, 10, Verdict{Skip: 10}, 10},
		{5, 3, Verdict{Skip: 3}, 10},
		{10, 5, Verdict{Deliver: 5}, 15},
		{5, 10, Verdict{Skip: 5, Deliver: 5}, 15},
		{10, 10, Verdict{Deliver: 10}, 30},
		{10, 15, Verdict{Deliver: 15}, 30},
		{0, 45, Verdict{Skip: 10, Deliver: 35}, 50},
		{10, 60, Verdict{Deliver: 60}, 70},
		{12, 3, Verdict{Store: 3}, 10},
		{12, 8, Verdict{Store: 8}, 10},
		{12, 13, Verdict{Store: 8}, 10},
		{20, 10, Verdict{Skip: 10}, 10},
		{22, 5, Verdict{Skip: 5}, 10},
		{25, 10, Verdict{Skip: 5, Store: 5}, 10},
		{25, 20, Verdict{Skip: 5, Store: 10}, 10},
		{30, 10, Verdict{Store: 10}, 10},
		{15, 50, Verdict{Store: 50}, 10},
		{60, 5, Verdict{Store: 5}, 10},
		{50, 5, Verdict{Store: 5}, 10},
		{10, 0, Verdict{}, 10},
		{35, 0, Verdict{}, 10},
	} {
		r := NewReceiver(100)
		for _, s := range []span{{0, 10}, {20, 30}, {40, 50}} {
			if _, err := r.Data(s.start, int(s.end-s.start)); err != nil {
				t.Fatal(err)
			}
		}
		v, err := r.Data(c.off, c.n)
		for ok := true; ok; {
			_, _, ok = r.Advance()
		}
		if v != c.want || err != nil || r.Next() != c.next {
			t.Errorf("[%d,+%d): %+v, %v, next %d; want %+v, next %d", c.off, c.n, v, err, r.Next(), c.want, c.next)
		}
	}
}

func TestWindowsOutOfRange(t *testing.T) {
	for _, window := range []int{0, -1, MaxWindow + 1} {
		for name, make := range map[string]func(){"sender": func() { NewSender(window) }, "receiver": func() { NewReceiver(window) }} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s with a window of %d", name, window)
					}
				}()
				make()
			}()
		}
	}
}
