//go:build !linux

package dialwindow

import "time"

// synLost reports whether the first SYN of a new connection, or its answer, was probably lost.
func synLost(_ any, took time.Duration) bool { return took >= lateAfter }
