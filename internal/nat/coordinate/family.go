package coordinate

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file decides over which IP version an end meets another.

// anywhere are addresses that only default routes, or their equivalent, lead to. Nothing is sent
// there.
var anywhere = map[bool]netip.Addr{false: netip.MustParseAddr("1.0.0.0"), true: netip.MustParseAddr("2000::1")}

// OtherAddress returns the source address of this host's packets to other sites over the IP version
// that is not ip's; not valid without one.
func OtherAddress(ip netip.Addr) netip.Addr {
	other, err := multihome.Selected(anywhere[ip.Unmap().Is4()])
	if err != nil || !other.IsGlobalUnicast() || other.Is6() && other.IsPrivate() {
		return netip.Addr{}
	}
	return other
}

// OverIPv6 returns the side over IPv6. Where the profile is about IPv6 already, in an IPv6-only
// grid, that is the side itself.
func (s *Side) OverIPv6() (*Side, error) {
	six := *s
	six.Other = netip.Addr{}
	switch {
	case s.Address.Is4() && s.Other.Is6():
		six.Address = s.Other
	case !s.Address.Is6():
		return nil, fmt.Errorf("%w: this host has no IPv6 address to meet others from, though its site's profile says so", overlay.ErrUnreachable)
	case !s.Profile.IPv6:
		return s, nil
	}
	six.Profile = s.Profile.OverIPv6()
	return &six, nil
}

// overIPv4 reports whether the session is over IPv6 but the profile is about IPv4, which the host
// also has.
func (s *Side) overIPv4() bool {
	return s.Address.Is6() && s.Other.Is4() && s.Profile.IPv6 && !s.Profile.IPv6Only
}

// sourceAddress returns the address to meet others from, given the vantage points: without an IPv4
// one, the mapping of a NAT cannot be learned.
func (s *Side) sourceAddress(vantages []netip.AddrPort) netip.Addr {
	if s.overIPv4() && len(ofVersion(s.Other, vantages)) > 0 {
		return s.Other
	}
	return s.Address
}

// preferredAddress is sourceAddress for vantage points of both IP versions, which most grids have.
func (s *Side) preferredAddress() netip.Addr {
	if s.overIPv4() {
		return s.Other
	}
	return s.Address
}

// ofVersion returns the elements of list that have ip's IP version.
func ofVersion(ip netip.Addr, list []netip.AddrPort) (same []netip.AddrPort) {
	for _, a := range list {
		if a.Addr().Unmap().Is4() == ip.Unmap().Is4() {
			same = append(same, a)
		}
	}
	return same
}
