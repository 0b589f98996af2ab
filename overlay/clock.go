package overlay

import (
	"fmt"
	"time"
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
