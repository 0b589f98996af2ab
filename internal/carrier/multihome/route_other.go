//go:build !linux

package multihome

import "net/netip"

// routed cannot determine it here, and a source without a route is not worth trying.
func routed(netip.Addr, Source) bool { return false }

// Bind does nothing here.
func Bind(uintptr, Source) error { return nil }
