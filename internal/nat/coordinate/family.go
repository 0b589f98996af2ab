package coordinate

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file says over which version of IP an end meets another.

// anywhere are addresses to which only default routes lead, or what stands for them.
// Nothing is sent there.
var anywhere = map[bool]netip.Addr{false: netip.MustParseAddr("1.0.0.0"), true: netip.MustParseAddr("2000::1")}

// OtherAddress returns the address from which this host's packets of the other version
// of IP than ip's leave for other sites; not valid without one.
func OtherAddress(ip netip.Addr) netip.Addr {
	other, err := multihome.Selected(anywhere[ip.Unmap().Is4()])
	if err != nil || !other.IsGlobalUnicast() || other.Is6() && other.IsPrivate() {
		return netip.Addr{}
	}
	return other
}

// OverIPv6 returns the side as it is over IPv6. Where the profile is about IPv6 already,
// in a grid that knows nothing else, that is the side itself.
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

// overIPv4 reports whether the session is over IPv6 and the profile about IPv4, which
// the host has besides.
func (s *Side) overIPv4() bool {
	return s.Address.Is6() && s.Other.Is4() && s.Profile.IPv6 && !s.Profile.IPv6Only
}

// sourceAddress returns the address to meet others from, given the vantage points: without one
// of IPv4 nobody can tell of a NAT's mapping.
func (s *Side) sourceAddress(vantages []netip.AddrPort) netip.Addr {
	if s.overIPv4() && len(ofVersion(s.Other, vantages)) > 0 {
		return s.Other
	}
	return s.Address
}

// preferredAddress is from where the grid has vantage points of both versions of IP, as most have.
func (s *Side) preferredAddress() netip.Addr {
	if s.overIPv4() {
		return s.Other
	}
	return s.Address
}

// ofVersion returns those of list that are of ip's version of IP.
func ofVersion(ip netip.Addr, list []netip.AddrPort) (same []netip.AddrPort) {
	for _, a := range list {
		if a.Addr().Unmap().Is4() == ip.Unmap().Is4() {
			same = append(same, a)
		}
	}
	return same
}
