package gateway

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/lru"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
)

// allowed is the set of addresses that the frontal may dial for its nodes: those that an answer, an
// assignment or a signalling request of the broker named to this site recently, and the proxies of
// reserve relays for the life of their tickets. So the gateway is not an open relay.
type allowed struct {
	keep  time.Duration
	rule  netrule.Rule
	named *lru.Map[netip.AddrPort, named]
}

// named is how long an address is allowed, and whether it is that of a process of another site, or
// a proxy's.
type named struct {
	until   time.Time
	foreign bool
}

const maxAllowed = 64 << 10

func newAllowed(rule netrule.Rule, keep time.Duration) *allowed {
	return &allowed{keep: keep, rule: rule, named: lru.New[netip.AddrPort, named](maxAllowed)}
}

// name allows an address for a while. A value that is not an address is ignored: it cannot be
// requested.
func (a *allowed) name(addr string, foreign bool, now time.Time) {
	a.nameFor(addr, foreign, now, a.keep)
}

// nameFor allows an address for the given time.
func (a *allowed) nameFor(addr string, foreign bool, now time.Time, keep time.Duration) {
	until := now.Add(keep)
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return
	}
	ap = PlainAddr(ap)
	if before, ok := a.named.Get(ap); ok && now.Before(before.until) {
		foreign = foreign && before.foreign // a proxy's address stays one even if it is also another process's
		if before.until.After(until) {
			until = before.until
		}
	}
	a.named.Put(ap, named{until, foreign})
}

// check parses an address that a node requests and returns why it may not be dialled, with
// overlay.ErrForbidden.
func (a *allowed) check(addr string, now time.Time) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return ap, fmt.Errorf("%w: %.100q is not an address:port", overlay.ErrForbidden, addr)
	}
	ap = PlainAddr(ap)
	if kind := NeverDialled(ap.Addr()); kind != "" {
		return ap, fmt.Errorf("%w: %v is a %s address; those are never dialled for a node", overlay.ErrForbidden, ap, kind)
	}
	if err := a.rule.Denied(ap.Addr()); err != nil {
		return ap, err
	}
	n, ok := a.named.Get(ap)
	if ok && n.foreign {
		if err := a.rule.Foreign(ap.Addr()); err != nil {
			return ap, err
		}
	}
	if !ok || !now.Before(n.until) {
		return ap, fmt.Errorf("%w: the broker did not name %v to this site in the last %v; resolve or signal first", overlay.ErrForbidden, ap, a.keep)
	}
	return ap, nil
}

// isProxy reports whether an address accepted by check is a proxy's.
func (a *allowed) isProxy(ap netip.AddrPort) bool {
	n, ok := a.named.Get(ap)
	return ok && !n.foreign
}

// PlainAddr normalizes an address: it removes the IPv6-mapped form of IPv4 addresses, and zones.
func PlainAddr(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// NeverDialled returns the kind of an address that is always refused; "" for other addresses.
// Link-local includes the metadata services of clouds.
func NeverDialled(ip netip.Addr) string {
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
	case netrule.StandsFor4(ip):
		return "translated IPv4"
	}
	return ""
}
