//go:build !linux

package carrier

import "net"

// tuneSystem does nothing: the rest of Tuning is Linux's.
func tuneSystem(*net.TCPConn, Tuning) error { return nil }
