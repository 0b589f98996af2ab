package accept

import (
	"net"
	"net/netip"

	"github.com/isthmus-grid/isthmus/internal/limit"
)

// HalfOpen bounds the connections of one port whose other end has not said yet
// who it is. When there are too many, the source that has the most loses its
// oldest, so that another source always gets in. Safe for concurrent use.
type HalfOpen struct {
	places  *limit.Places[Source]
	refused func(from net.Addr, err error)
}

// Bounds are the limits of half-open connections at a port.
type Bounds struct {
	Total, PerSource int // connections; 0 is no limit

	// What they wait for, "data connections before their first frame", and the
	// settings' names. Without them it says "half-open connections", limits.half_open
	// and limits.half_open_per_source.
	What, TotalSetting, SourceSetting string
}

// NewHalfOpen returns a HalfOpen without connections. refused is told of every
// connection that was turned away or closed to make room; it must not wait.
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

// Enter counts c as half-open until the place's Leave, which reports whether c
// was not closed meanwhile to make room. On an error, which is a
// *limit.Exceeded that refused was told of, c still belongs to the caller.
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

// SetMax changes the limits for connections that come from now on.
func (h *HalfOpen) SetMax(total, perSource int) { h.places.SetMax(total, perSource) }

// Stats returns how far the limits are used, for metrics.
func (h *HalfOpen) Stats() limit.Stats { return h.places.Stats() }

// Source is where a connection comes from, as far as sources are told apart:
// an IPv4 address, the /64 of an IPv6 address, since who has one address of it
// has all. The zero Source is all that have no address.
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
