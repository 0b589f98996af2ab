package link

import (
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
)

// What a link took in the first round trips says nothing about its path.
func TestBandwidthOf(t *testing.T) {
	for _, tc := range []struct {
		heldFor, rtt time.Duration
		want         float64
	}{
		{0, 0, 0}, {minHeld - 1, 0, 0}, {minHeld, 0, 1e6}, {minHeld, minHeld, 0},
		{minTrips*time.Second - 1, time.Second, 0}, {minTrips * time.Second, time.Second, 1e6}, {time.Minute, time.Second, 1e6},
	} {
		load := stream.Load{HeldBytes: uint64(tc.heldFor.Seconds() * 1e6), HeldFor: tc.heldFor}
		if got := bandwidthOf(load, tc.rtt); got < tc.want*0.99 || got > tc.want*1.01 {
			t.Errorf("held for %v, round trip %v: %g B/s, want %g", tc.heldFor, tc.rtt, got, tc.want)
		}
	}
}
