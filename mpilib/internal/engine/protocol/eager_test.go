package protocol

import (
	"testing"
	"time"
)

// What goes eagerly on a long path is twice what the path holds.
func TestUnaskedAt(t *testing.T) {
	for _, tc := range []struct {
		rtt  time.Duration
		rate float64
		want int
	}{
		{0, 0, EagerShort}, {time.Millisecond, 1e9, EagerShort},
		{10 * time.Millisecond, 0, 2_500_000}, {10 * time.Millisecond, 10e6, 200_000}, {100 * time.Millisecond, 1e5, EagerShort},
		{100 * time.Millisecond, 1e9, 8 << 20}, {time.Hour, 1e300, 8 << 20},
	} {
		if got := eagerLimit(tc.rtt, tc.rate, 16<<20); got != tc.want {
			t.Errorf("%v at %g B/s: %d, want %d", tc.rtt, tc.rate, got, tc.want)
		}
	}
}
