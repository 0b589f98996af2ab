package wan

import "time"

// wallClock notices when the wall clock is set, as on a virtual machine that was paused: a time stamp by
// it is of no use then.
type wallClock struct {
	ahead time.Duration // of the monotonic clock, when last looked at
	at    time.Duration // monotonic time of that
	valid bool
}

// How far the clocks drift apart while the wall clock is only slowed or hastened (adjtimex(2)), besides
// what passes between two readings.
const (
	readingTime = 200 * time.Microsecond
	driftShare  = 1000 // 1/1000
)

// wasSet reports whether the wall clock was set since the last call, by both clocks' times now.
func (c *wallClock) wasSet(wall, monotonic time.Duration) bool {
	last := *c
	*c = wallClock{wall - monotonic, monotonic, true}
	return last.valid && (c.ahead-last.ahead).Abs() > readingTime+(monotonic-last.at)/driftShare
}
