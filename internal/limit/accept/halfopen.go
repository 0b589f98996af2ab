package accept

import (
	"net"
	"net/netip"

	"github.com/isthmus-grid/isthmus/internal/limit"
)

// HalfOpen bounds the connections of one port whose other end has not authenticated yet. When there
// are too many, the source with the most loses its oldest, so that another source always gets in.
// Safe for concurrent use.
type HalfOpen struct {
	places  *limit.Places[Source]
	refused func(from net.Addr, err error)
}

// Bounds are the limits of half-open connections at a port.
type Bounds struct {
	Total, PerSource int // connections; 0 is unlimited

	// What they wait for, "data connections before their first frame", and the names of the
	// settings. The defaults are "half-open connections", limits.half_open and
	// limits.half_open_per_source.
	What, TotalSetting, SourceSetting string
}

// NewHalfOpen returns a HalfOpen without connections. It calls refused for every connection that
// was turned away or closed to make room; refused must not block.
func NewHalfOpen(b Bounds, refused func(from net.Addr, err error)) *HalfOpen {
	if b.What == "" {
		b.What, b.TotalSetting, b.SourceSetting = "half-open connections", "limits.half_open", "limits.half_open_per_source"
	}
	if refused == nil {
		refused = func(net.Addr, error) {}
	}
	return &HalfOpen{
		places: limit.NewPlaces[Source](limit.Bounds{
			What: b.What, Total: b.Total, PerKey: b.PerSource, TotalSetting: b.TotalSetting, KeySetting: b.SourceSetting,
		}),
		refused: refused,
	}
}

// Enter counts c as half-open until the place's Leave, which reports whether c was still open, not
// closed to make room. On an error, which is a *limit.Exceeded that was passed to refused, the
// caller still owns c.
func (h *HalfOpen) Enter(c net.Conn) (*limit.Place[Source], error) {
	from := c.RemoteAddr()
	place, err := h.places.Enter(SourceOf(from), func(why error) {
		c.Close()
		h.refused(from, why)
	})
	if err != nil {
		h.refused(from, err)
	}
	return place, err
}

// SetMax changes the limits for later connections.
func (h *HalfOpen) SetMax(total, perSource int) { h.places.SetMax(total, perSource) }

// Stats returns the use of the limits, for metrics.
func (h *HalfOpen) Stats() limit.Stats { return h.places.Stats() }

// Source is the origin of a connection for counting: an IPv4 address, or the /64 of an IPv6
// address, since a host with one address of it has all. The zero Source is all connections without
// an address.
type Source struct{ prefix netip.Prefix }

// SourceOf returns the source of a TCP or UDP address.
func SourceOf(a net.Addr) Source {
	at, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return Source{}
	}
	ip := at.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return Source{}
	}
	return Source{prefix}
}

// String returns the source's address: 192.0.2.7, or 2001:db8::/64.
func (s Source) String() string {
	switch {
	case !s.prefix.IsValid():
		return "sources without an address"
	case s.prefix.IsSingleIP():
		return s.prefix.Addr().String()
	}
	return s.prefix.String()
}
