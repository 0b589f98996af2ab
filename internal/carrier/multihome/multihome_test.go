package multihome

import (
	"net/netip"
	"slices"
	"testing"
)

func TestChoose(t *testing.T) {
	at := func(prefix, iface string) own {
		p := netip.MustParsePrefix(prefix)
		return own{Source{p.Addr(), iface}, p}
	}
	host := []own{
		at("192.0.2.10/24", "eth0"), at("192.0.2.99/24", "eth0"), at("2001:db8:1::10/64", "eth0"), at("fe80::1/64", "eth0"),
		at("198.51.100.10/24", "eth1"), at("198.51.100.11/24", "eth1"), at("2001:db8:2::10/64", "eth1"),
		at("172.17.0.1/16", "docker0"), at("169.254.3.4/16", "eth1"),
	}
	withRoute := func(s Source) bool { return s.Interface != "docker0" }
	for _, c := range []struct {
		name, to, selected string
		routed             func(Source) bool
		want               []string
	}{
		{"the other uplink, once", "203.0.113.1", "192.0.2.10", withRoute, []string{"198.51.100.10"}},
		{"and back", "203.0.113.1", "198.51.100.10", withRoute, []string{"192.0.2.10"}},
		{"IPv6", "2001:db8:ffff::1", "2001:db8:1::10", withRoute, []string{"2001:db8:2::10"}},
		{"no route at all", "203.0.113.1", "192.0.2.10", func(Source) bool { return false }, nil},
		{"none selected", "203.0.113.1", "", withRoute, []string{"192.0.2.10", "198.51.100.10"}},
		{"a neighbour", "192.0.2.77", "192.0.2.10", withRoute, nil},
		{"this host", "127.0.0.1", "127.0.0.1", withRoute, nil},
		{"on a link", "fe80::2", "fe80::1", withRoute, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var selected netip.Addr
			if c.selected != "" {
				selected = netip.MustParseAddr(c.selected)
			}
			var got []string
			for _, s := range choose(netip.MustParseAddr(c.to), selected, host, c.routed) {
				got = append(got, s.Addr.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("from %v, want %v", got, c.want)
			}
		})
	}
}

// On a host with one route out there is no other source.
func TestOthersOfNeighbours(t *testing.T) {
	if got := Others(netip.MustParseAddr("127.0.0.1")); got != nil {
		t.Errorf("other sources for this host: %v", got)
	}
}

// TestBeside: what a host's other address is to other sites.
func TestBeside(t *testing.T) {
	public4, private4, public6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("2001:db8::1")
	for _, tc := range []struct{ ip, other, want netip.Addr }{
		{public4, public6, public6}, {public6, public4, public4}, {private4, public6, public6},
		{public6, private4, netip.Addr{}}, {public4, netip.Addr{}, netip.Addr{}},
	} {
		if got := beside(tc.ip, tc.other); got != tc.want {
			t.Errorf("%v beside %v: %v, want %v", tc.other, tc.ip, got, tc.want)
		}
	}
}

// An address that no other host can send to is replaced by one that they can, of the same IP version if
// there is one.
func TestOutward(t *testing.T) {
	for _, c := range []struct {
		ip         string
		candidates []string
		want       string
	}{
		{"127.0.0.1", []string{"10.1.0.11", "2001:db8::1"}, "10.1.0.11"},
		{"127.0.0.1", []string{"2001:db8::1", "10.1.0.11"}, "10.1.0.11"},
		{"::1", []string{"10.1.0.11", "2001:db8::1"}, "2001:db8::1"},
		{"::ffff:127.0.0.1", []string{"2001:db8::1", "10.1.0.11"}, "10.1.0.11"},
		{"::1", []string{"127.0.0.1", "10.1.0.11", "192.0.2.1"}, "10.1.0.11"},
		{"fe80::1%eth0", []string{"fe80::1", "2001:db8::1"}, "2001:db8::1"},
		{"169.254.3.4", []string{"169.254.3.4", "10.1.0.11"}, "10.1.0.11"},
		{"127.0.0.1", []string{"127.0.0.1", "::1", "fe80::1"}, "127.0.0.1"},
		{"127.0.0.1", nil, "127.0.0.1"},
	} {
		var candidates []netip.Addr
		for _, a := range c.candidates {
			candidates = append(candidates, netip.MustParseAddr(a))
		}
		if got := outward(netip.MustParseAddr(c.ip), candidates); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s among %v: %v, want %s", c.ip, c.candidates, got, c.want)
		}
	}
	for _, ip := range []string{"10.1.0.11", "198.51.100.1", "2001:db8::1", "fd00::1"} {
		if got := Outward(netip.MustParseAddr(ip)); got != netip.MustParseAddr(ip) {
			t.Errorf("%s was replaced by %v", ip, got)
		}
	}
	if got := Outward(netip.MustParseAddr("127.0.0.1")); Unreachable(got) != "" && got != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("replaced by %v", got)
	}
}
