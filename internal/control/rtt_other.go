//go:build !linux

package control

import "time"

// RTT tells nothing here.
func (s *Session) RTT() time.Duration { return 0 }
