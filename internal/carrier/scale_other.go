//go:build !linux

package carrier

import "net"

// Unscaled returns false: window scaling is unknown.
func Unscaled(*net.TCPConn) bool { return false }
