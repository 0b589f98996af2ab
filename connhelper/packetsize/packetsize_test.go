package packetsize

import (
	"testing"
	"time"
)

// TestSizes: large packets are not tried for a while after they vanished, for longer each time they
// do so again, up to a bound; when they pass, the site is forgotten.
func TestSizes(t *testing.T) {
	var s Memory
	now := time.Unix(1000, 0)
	if _, small := s.Small("a", now); small {
		t.Error("small packets before anything is known")
	}
	if !s.Vanished("a", now) || s.Vanished("a", now.Add(time.Second)) {
		t.Error("the first time is news, and the second, while large ones are not tried, is none")
	}
	want := firstVanished
	for range 10 {
		until, small := s.Small("a", now)
		if !small || until != now.Add(want) {
			t.Fatalf("until %v after %v, want %v", until.Sub(now), now, want)
		}
		if _, small := s.Small("b", now); small {
			t.Error("another site has small packets, too")
		}
		now = until
		if _, small := s.Small("a", now); small {
			t.Fatal("large packets are never tried again")
		}
		s.Vanished("a", now)
		want = min(2*want, lastVanished)
	}
	if !s.Passed("a") || s.Passed("a") {
		t.Error("that large ones pass is news once")
	}
	if _, small := s.Small("a", now); small {
		t.Error("small packets though large ones pass")
	}
}
