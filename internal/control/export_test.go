package control

import "net/netip"

// HasAddress is hasAddress for the tests.
var HasAddress = hasAddress

// SentOn is sentOn for the tests.
var SentOn = sentOn

// SetHasAddress has e ask f in place of the host.
func (e *Endpoint) SetHasAddress(f func(netip.Addr) bool) { e.has = f }
