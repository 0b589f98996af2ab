//go:build !linux

package probe

import "net"

// OptionsOf returns nil: the options are unknown.
func OptionsOf(net.Conn) *TCPOptions { return nil }
