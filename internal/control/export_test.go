package control

import (
	"net/netip"
	"time"
)

// SetClock makes c use another clock.
func (c *Credentials) SetClock(now func() time.Time) { c.now = now }

// HasAddress exports hasAddress.
var HasAddress = hasAddress

// SentOn exports sentOn.
var SentOn = sentOn

// SetHasAddress makes e call f instead of hasAddress.
func (e *Endpoint) SetHasAddress(f func(netip.Addr) bool) { e.has = f }
