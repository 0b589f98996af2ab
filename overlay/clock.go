package overlay

import (
	"fmt"
	"time"
)

// By how much clocks may be wrong before the grid rejects what one host dated and another judges.
// Neither bound makes anything valid again that was used or revoked: used items are remembered for
// longer, and revocations do not end.
const (
	// MaxAhead is how far the clock of the host that dates something may be ahead of the clock of
	// the host that judges it. The bound stops no attacker: a signer can date back.
	MaxAhead = time.Hour

	// MaxLate is how long after its end a certificate is still accepted, and so how far the clock
	// of the verifier may be ahead of its issuer's. It also extends the use of a stolen certificate
	// that is not revoked.
	MaxLate = 30 * time.Minute
)

// ClocksDiffer says, in the same words wherever it is noticed and whichever of the two is ahead,
// that the clocks of two hosts or daemons differ, and what to do. least is the minimum difference,
// of either sign; it is printed in seconds, or exactly if it is less than one.
func ClocksDiffer(a, b string, least time.Duration) string {
	least = least.Abs()
	if least > time.Second {
		least = least.Truncate(time.Second)
	}
	return fmt.Sprintf("the clocks of %s and %s differ by at least %v: set them by NTP", a, b, least)
}
