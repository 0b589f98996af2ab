package frontal

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// allowed is the set of addresses that the frontal may dial for its nodes:
// those that an answer, an assignment or an introduction of the broker named
// to this site a short while ago. So the gateway is no open relay.
type allowed struct {
	keep  time.Duration
	deny  []netip.Prefix
	named *lru[netip.AddrPort, time.Time] // until when
}

const maxAllowed = 64 << 10

func newAllowed(deny []netip.Prefix, keep time.Duration) *allowed {
	return &allowed{keep: keep, deny: deny, named: newLRU[netip.AddrPort, time.Time](maxAllowed)}
}

// name allows an address for a while. What is not an address is passed over:
// nobody can ask for it.
func (a *allowed) name(addr string, now time.Time) {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		a.named.put(plainAddr(ap), now.Add(a.keep))
	}
}

// check parses an address that a node wants dialled and says why it may not
// be, with overlay.ErrForbidden.
func (a *allowed) check(addr string, now time.Time) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return ap, fmt.Errorf("%w: %.100q is not an address:port", overlay.ErrForbidden, addr)
	}
	ap = plainAddr(ap)
	if kind := neverDialled(ap.Addr()); kind != "" {
		return ap, fmt.Errorf("%w: %v is a %s address; those are never dialled for a node", overlay.ErrForbidden, ap, kind)
	}
	for _, prefix := range a.deny {
		if prefix.Contains(ap.Addr()) {
			return ap, fmt.Errorf("%w: %v lies in %v, which the site's admin denies (deny)", overlay.ErrForbidden, ap, prefix)
		}
	}
	if until, ok := a.named.get(ap); !ok || !now.Before(until) {
		return ap, fmt.Errorf("%w: the broker did not name %v to this site in the last %v; resolve or introduce first", overlay.ErrForbidden, ap, a.keep)
	}
	return ap, nil
}

// plainAddr removes what makes one address look like several: the IPv6 form
// of IPv4 addresses, and zones.
func plainAddr(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// neverDialled names the kind of an address that is refused whatever anybody
// says; "" for the others. Link-local includes the metadata services of clouds.
func neverDialled(ip netip.Addr) string {
	switch ip = ip.Unmap(); {
	case ip.IsUnspecified(), ip.Is4() && ip.As4()[0] == 0: // "this network", RFC 1122 section 3.2.1.3
		return "unspecified"
	case ip.IsLoopback():
		return "loopback"
	case ip.IsLinkLocalUnicast():
		return "link-local"
	case ip.IsMulticast():
		return "multicast"
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "broadcast"
	case embeds4(ip):
		return "translated IPv4"
	}
	return ""
}

var translated = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"), // NAT64, RFC 6052
	netip.MustParsePrefix("2002::/16"),    // 6to4, RFC 3056
	netip.MustParsePrefix("::/96"),        // IPv4-compatible, RFC 4291 section 2.5.5.1
}

// embeds4 reports whether an IPv6 address stands for an IPv4 address, behind
// which a refused one could hide.
func embeds4(ip netip.Addr) bool {
	for _, p := range translated {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}
