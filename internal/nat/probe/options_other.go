//go:build !linux

package probe

import "net"

// OptionsOf returns nil: it is not known.
func OptionsOf(net.Conn) *TCPOptions { return nil }
