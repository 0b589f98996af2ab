package lab

import (
	"fmt"
	"net/netip"
)

// A Flow selects packets for Drop and Reset: those between A and B, in both directions. An endpoint
// without an address means every address, and without a port every port; with a port only TCP is
// meant. The addresses are those that packets have on the host: behind a NAT gateway, those of the
// inside and of the peer.
type Flow struct{ A, B netip.AddrPort }

// Everything returns the flow of all packets between two addresses; an address that is not valid
// means any.
func Everything(a, b netip.Addr) Flow {
	return Flow{netip.AddrPortFrom(a, 0), netip.AddrPortFrom(b, 0)}
}

// String describes the flow in one line.
func (f Flow) String() string { return fmt.Sprintf("%s and %s", place(f.A), place(f.B)) }

func place(p netip.AddrPort) string {
	switch {
	case !p.Addr().IsValid() && p.Port() == 0:
		return "any address"
	case p.Port() == 0:
		return p.Addr().String()
	case !p.Addr().IsValid():
		return fmt.Sprintf("port %d", p.Port())
	}
	return p.String()
}

func (f Flow) check() error {
	for _, a := range []netip.Addr{f.A.Addr(), f.B.Addr()} {
		if a.IsValid() && !a.Is4() {
			return fmt.Errorf("the flow between %v: %v is no IPv4 address", f, a)
		}
	}
	return nil
}
