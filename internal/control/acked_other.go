//go:build !linux

package control

import "net"

// ackedBy tells nothing here: only what a peer says shows that it is alive.
func ackedBy(net.Conn) func() uint64 { return func() uint64 { return 0 } }
