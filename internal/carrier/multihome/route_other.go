//go:build !linux

package multihome

import "net/netip"

// routed cannot tell here, and a source that has no route is not worth a try.
func routed(netip.Addr, Source) bool { return false }

// Bind does nothing here.
func Bind(uintptr, Source) error { return nil }
