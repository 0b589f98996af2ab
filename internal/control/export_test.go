package control

import (
	"net/netip"
	"time"
)

// SetClock has c judge by another clock.
func (c *Credentials) SetClock(now func() time.Time) { c.now = now }

// HasAddress is hasAddress for the tests.
var HasAddress = hasAddress

// SentOn is sentOn for the tests.
var SentOn = sentOn

// SetHasAddress has e ask f in place of the host.
func (e *Endpoint) SetHasAddress(f func(netip.Addr) bool) { e.has = f }
