//go:build !linux

package carrier

import (
	"net"
	"time"
)

// LastAck returns false: only Linux tells.
func LastAck(*net.TCPConn) (time.Duration, bool) { return 0, false }

// LeastRTT returns false: only Linux tells.
func LeastRTT(*net.TCPConn) (time.Duration, bool) { return 0, false }
