package control

import (
	"net"
	"net/netip"
	"time"
)

// SetClock makes c use another clock.
func (c *Credentials) SetClock(now func() time.Time) { c.now = now }

// SentOn returns what sentOn's function says of the bytes acknowledged and written.
func SentOn(conn net.Conn) func() (acked, total uint64) {
	sent := sentOn(conn)
	return func() (acked, total uint64) {
		s := sent()
		return s.acked, s.total
	}
}

// SetHasAddress makes e call f instead of carrier.HasAddress.
func (e *Endpoint) SetHasAddress(f func(netip.Addr) bool) { e.has = f }
