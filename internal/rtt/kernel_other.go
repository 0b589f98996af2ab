//go:build !linux

package rtt

import "net"

// Of returns the zero Estimate: the kernel is not asked on this system.
func Of(net.Conn) Estimate { return Estimate{} }
