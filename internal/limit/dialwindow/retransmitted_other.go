//go:build !linux

package dialwindow

import "time"

// retransmitted reports whether the SYN of a new connection was probably sent more than once.
func retransmitted(_ any, took time.Duration) bool { return took >= lateAfter }
