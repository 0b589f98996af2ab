package coordinate

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file decides over which IP version an end meets another.

// OtherAddress is multihome.OtherVersion.
func OtherAddress(ip netip.Addr) netip.Addr { return multihome.OtherVersion(ip) }

// OverIPv6 returns the side over IPv6. Where the profile is about IPv6 already, in an IPv6-only
// grid, that is the side itself.
func (s *Side) OverIPv6() (*Side, error) {
	six := *s
	six.Other = netip.Addr{}
	switch {
	case s.Address.Is4() && s.Other.Is6():
		six.Address = s.Other
	case !s.Address.Is6():
		return nil, fmt.Errorf("%w: this host has no IPv6 address, though its site's profile declares IPv6", overlay.ErrUnreachable)
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

// punchFrom returns where to bind the socket of a hole punching, and which STUN servers to ask. A
// host with both versions of IP binds to both and gathers candidates of both, unless it is to use
// IPv6 (OverIPv6): ICE finds out which pair passes, and the peer ignores what it lacks. IPv6
// addresses are not translated, so that over IPv6 alone no server is needed.
func (s *Side) punchFrom(b Reflectors) (local netip.Addr, stun []netip.AddrPort, err error) {
	if s.Profile.IPv6Only && s.Address.Is4() {
		if s, err = s.OverIPv6(); err != nil {
			return local, nil, err
		}
	}
	local = s.sourceAddress(b.STUN)
	six := ofVersion(netip.IPv6Unspecified(), slices.Concat(b.STUN, b.STUN6))
	if local.Is6() {
		return local, six, nil
	}
	stun = ofVersion(local, b.STUN)
	if len(stun) == 0 {
		return local, nil, fmt.Errorf("%w: the broker names no STUN server", overlay.ErrUnreachable)
	}
	if s.Profile.IPv6 && !s.Profile.IPv6Only && (s.Address.Is6() || s.Other.Is6()) && len(six) > 0 {
		return netip.IPv6Unspecified(), slices.Concat(stun, six), nil
	}
	return local, stun, nil
}

// sourceAddress returns the address to meet others from, given the reflectors: without an IPv4
// one, the mapping of a NAT cannot be learned.
func (s *Side) sourceAddress(reflectors []netip.AddrPort) netip.Addr {
	if s.overIPv4() && len(ofVersion(s.Other, reflectors)) > 0 {
		return s.Other
	}
	return s.Address
}

// preferredAddress is sourceAddress for reflectors of both IP versions, which most grids have.
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
