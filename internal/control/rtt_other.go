//go:build !linux

package control

import "time"

// RTT is unsupported here and returns 0.
func (s *Session) RTT() time.Duration { return 0 }
