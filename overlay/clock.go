package overlay

import (
	"fmt"
	"time"
)

// By how much clocks may be wrong before the grid refuses what one host dated and another
// judges. Neither makes anything good again that was used or revoked: what was used is
// remembered for longer, and revocations do not end.
const (
	// MaxAhead is how far the clock of who dates something may be ahead of the clock
	// of who judges it. It keeps nobody out: who signs can date back.
	MaxAhead = time.Hour

	// MaxLate is how long after its end a certificate counts, and so how far the clock
	// of who judges it may be ahead of its issuer's. It is what a stolen certificate that
	// nobody revokes gains.
	MaxLate = 30 * time.Minute
)

// ClocksDiffer says, in the same words wherever it is noticed and whichever of the two is
// ahead, that the clocks of two hosts or daemons differ, and what to do. least is by how much they do at
// least, of either sign; it is given in seconds, or exactly if it is less than one.
func ClocksDiffer(a, b string, least time.Duration) string {
	least = least.Abs()
	if least > time.Second {
		least = least.Truncate(time.Second)
	}
	return fmt.Sprintf("the clocks of %s and %s differ by at least %v: set them by NTP", a, b, least)
}
