package wan

import (
	"testing"
	"time"
)

func TestWallClock(t *testing.T) {
	var c wallClock
	for i, step := range []struct {
		wall, monotonic time.Duration
		set             bool
	}{
		{time.Hour, 0, false},
		{time.Hour + 10*time.Millisecond, 10 * time.Millisecond, false},
		{time.Hour + 21600*time.Microsecond, 20 * time.Millisecond, true}, // 1.6 ms forward
		{time.Hour + 31600*time.Microsecond, 30 * time.Millisecond, false},
		{time.Hour + 35*time.Millisecond, 40 * time.Millisecond, true},                                // back
		{time.Hour + 10*time.Second + 3*time.Millisecond, 10*time.Second + 5*time.Millisecond, false}, // hastened
	} {
		if got := c.wasSet(step.wall, step.monotonic); got != step.set {
			t.Errorf("step %d: %v", i, got)
		}
	}
}
