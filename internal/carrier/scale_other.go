//go:build !linux

package carrier

import "net"

// Unscaled returns false: it is not known.
func Unscaled(*net.TCPConn) bool { return false }
