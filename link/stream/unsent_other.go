//go:build !linux

package stream

import "net"

// boundUnsent has nothing to do: the bound is Linux's.
func boundUnsent(net.Conn, int) {}
