//go:build !linux

package stream

import "net"

// boundUnsent does nothing: the socket option is Linux's.
func boundUnsent(net.Conn, int) {}
