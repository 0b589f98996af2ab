package coordinate

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// From which address an end meets others, given what it knows about itself and the grid.
func TestFamilies(t *testing.T) {
	four, six := netip.MustParseAddr("10.1.0.11"), netip.MustParseAddr("2001:db8:1::b")
	v4, v6 := netip.MustParseAddrPort("203.0.113.2:443"), netip.MustParseAddrPort("[2001:db8:ffff::2]:443")
	nat := overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressAndPortDependent}
	var (
		plain = overlay.SiteProfile{NAT: nat}
		dual  = overlay.SiteProfile{NAT: nat, IPv6: true}
		only  = overlay.SiteProfile{IPv6: true, IPv6Only: true}
		none  netip.Addr
	)
	for _, tc := range []struct {
		what           string
		address, other netip.Addr
		profile        overlay.SiteProfile
		reflectors     []netip.AddrPort
		usual          netip.Addr // over the IP version that the profile is about
		over6          netip.Addr // not valid: no IPv6
	}{
		{"IPv4 alone", four, none, plain, []netip.AddrPort{v4}, four, none},
		{"both", four, six, dual, []netip.AddrPort{v4, v6}, four, six},
		{"both, the session over IPv6", six, four, dual, []netip.AddrPort{v6, v4}, four, six},
		{"both, and the grid has no IPv4", six, four, dual, []netip.AddrPort{v6}, six, six},
		{"both, and no route out over IPv4", six, none, dual, []netip.AddrPort{v4, v6}, six, six},
		{"IPv6 alone", six, none, only, []netip.AddrPort{v6, v4}, six, six},
		{"IPv6 alone, the LAN of IPv4", four, six, only, []netip.AddrPort{v6, v4}, four, six},
		{"IPv6 alone, a private address besides", six, four, only, []netip.AddrPort{v6, v4}, six, six},
		{"a grid of IPv6", six, four, overlay.SiteProfile{}, []netip.AddrPort{v6}, six, six},
	} {
		s := &Side{Address: tc.address, Other: tc.other, Profile: tc.profile}
		if got := s.sourceAddress(tc.reflectors); got != tc.usual {
			t.Errorf("%s: from %v, want %v", tc.what, got, tc.usual)
		}
		o, err := s.OverIPv6()
		if !tc.over6.IsValid() {
			if !errors.Is(err, overlay.ErrUnreachable) {
				t.Errorf("%s: over IPv6: %v", tc.what, err)
			}
			continue
		}
		if err != nil || o.sourceAddress(tc.reflectors) != tc.over6 || o.preferredAddress() != tc.over6 || o.Profile.NAT.Translates() {
			t.Errorf("%s: over IPv6: %+v, %v", tc.what, o, err)
		}
		if s.Profile.NAT != tc.profile.NAT {
			t.Errorf("%s: OverIPv6 changed the side", tc.what)
		}
	}
}

// Which versions of IP a hole punching gathers candidates of.
func TestPunchFrom(t *testing.T) {
	four, six := netip.MustParseAddr("10.1.0.11"), netip.MustParseAddr("2001:db8:1::b")
	v4, v6 := netip.MustParseAddrPort("203.0.113.2:3478"), netip.MustParseAddrPort("[2001:db8:ffff::2]:3478")
	dual, only := overlay.SiteProfile{IPv6: true}, overlay.SiteProfile{IPv6: true, IPv6Only: true}
	both := Reflectors{STUN: []netip.AddrPort{v4}, STUN6: []netip.AddrPort{v6}}
	for _, tc := range []struct {
		what    string
		side    Side
		b       Reflectors
		local   netip.Addr // not valid: an error
		servers int
	}{
		{"IPv4 alone", Side{Address: four}, both, four, 1},
		{"both", Side{Address: four, Other: six, Profile: dual}, both, netip.IPv6Unspecified(), 2},
		{"both, the session over IPv6", Side{Address: six, Other: four, Profile: dual}, both, netip.IPv6Unspecified(), 2},
		{"both, and an older broker", Side{Address: four, Other: six, Profile: dual}, Reflectors{STUN: both.STUN}, four, 1},
		{"both, not known to lead anywhere", Side{Address: four, Other: six}, both, four, 1},
		{"IPv6 alone", Side{Address: six, Profile: only}, both, six, 1},
		{"IPv6 alone, the LAN of IPv4", Side{Address: four, Other: six, Profile: only}, both, six, 1},
		{"IPv6 alone, and an older broker", Side{Address: six, Profile: only}, Reflectors{STUN: both.STUN}, six, 0},
		{"a grid of IPv6", Side{Address: six}, Reflectors{STUN: both.STUN6}, six, 1},
		{"no server", Side{Address: four}, Reflectors{}, netip.Addr{}, 0},
	} {
		local, servers, err := tc.side.punchFrom(tc.b)
		if local != tc.local && tc.local.IsValid() || len(servers) != tc.servers || (err == nil) != tc.local.IsValid() {
			t.Errorf("%s: from %v by %v, %v", tc.what, local, servers, err)
		}
	}
}
