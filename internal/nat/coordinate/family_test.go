package coordinate

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
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

// Which reflectors a broker's answer names for a port, and at which of them its clock is read: the
// broker's own address of the port's version of IP, if there is one and it has answered.
func TestReadReflectors(t *testing.T) {
	const b4, b6, p4, p6 = "203.0.113.2:443", "[2001:db8:ffff::2]:443", "203.0.113.3:443", "[2001:db8:ffff::3]:443"
	four, six := netip.MustParseAddr("10.1.0.11"), netip.MustParseAddr("2001:db8:1::b")
	for _, tc := range []struct {
		what   string
		m      *controlpb.ReflectorsResponse
		local  netip.Addr
		asked  string
		silent int // of those asked, from the first
		clock  int
		clocks int
	}{
		{"over IPv4", &controlpb.ReflectorsResponse{Tcp: []string{b4, p4}, Tcp6: []string{b6, p6}, Own: []string{b4, b6}}, four, "[" + b4 + " " + p4 + "]", 0, 0, 2},
		{"over IPv4, from an IPv6 address", &controlpb.ReflectorsResponse{Tcp: []string{b4, p4}, Tcp6: []string{b6, p6}, Own: []string{b4, b6}}, six, "[]", 0, -1, 2},
		{"over IPv6", &controlpb.ReflectorsResponse{Tcp: []string{b6, b4, p4}, Tcp6: []string{p6}, Own: []string{b6, b4}}, six, "[" + b6 + " " + p6 + "]", 0, 0, 2},
		{"over IPv6, from an IPv4 address", &controlpb.ReflectorsResponse{Tcp: []string{b6, b4, p4}, Tcp6: []string{p6}, Own: []string{b6, b4}}, four, "[" + b4 + " " + p4 + "]", 0, 0, 2},
		{"the broker does not answer", &controlpb.ReflectorsResponse{Tcp: []string{b4, p4}, Own: []string{b4}}, four, "[" + b4 + " " + p4 + "]", 1, -1, 1},
		{"the broker has no IPv4", &controlpb.ReflectorsResponse{Tcp: []string{b6, p4}, Tcp6: []string{p6}, Own: []string{b6}}, four, "[" + p4 + "]", 0, -1, 1},
		{"an older broker, over IPv6", &controlpb.ReflectorsResponse{Tcp: []string{b6, p4}}, four, "[" + p4 + "]", 0, -1, 1},
		{"an older broker", &controlpb.ReflectorsResponse{Tcp: []string{b4, p4}}, four, "[" + b4 + " " + p4 + "]", 0, 0, 1},
	} {
		b, err := ReadReflectors(tc.m)
		if err != nil {
			t.Fatal(err)
		}
		same := ofVersion(tc.local, b.TCP)
		seen := make([]netip.AddrPort, len(same))
		for i := tc.silent; i < len(seen); i++ {
			seen[i] = netip.AddrPortFrom(tc.local, 1)
		}
		if got := clockOf(b, same, simopen.Mapping{Seen: seen}); fmt.Sprint(same) != tc.asked || got != tc.clock || len(b.Clocks) != tc.clocks {
			t.Errorf("%s: asks %v and takes the time from %d, or at %v; want %s and %d", tc.what, same, got, b.Clocks, tc.asked, tc.clock)
		}
	}
}

// No list of the answer is left out when addresses are denied.
func TestFilter(t *testing.T) {
	m := new(controlpb.ReflectorsResponse)
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.IsList() {
			m.ProtoReflect().Mutable(f).List().Append(protoreflect.ValueOfString("192.0.2.1:443"))
		}
	}
	Filter(m, func([]string) []string { return nil })
	for i := range fields.Len() {
		if f := fields.Get(i); f.IsList() && m.ProtoReflect().Has(f) {
			t.Errorf("%s still has addresses", f.Name())
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
