package overlay

import (
	"testing"
	"time"
)

func TestClocksDiffer(t *testing.T) {
	const want = "the clocks of this host and the broker differ by at least 1m30s: set them by NTP"
	for _, d := range []time.Duration{90*time.Second + 7*time.Millisecond, -90*time.Second - 7*time.Millisecond} {
		if got := ClocksDiffer("this host", "the broker", d); got != want {
			t.Errorf("%v: %s", d, got)
		}
	}
}
