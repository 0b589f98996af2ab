package netrule

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// within is the oracle: it compares the significant bits, one by one.
func within(p netip.Prefix, ip netip.Addr) bool {
	a, b := p.Addr().AsSlice(), ip.AsSlice()
	if len(a) != len(b) {
		return false
	}
	for i := range p.Bits() {
		if (a[i/8]^b[i/8])>>(7-i%8)&1 != 0 {
			return false
		}
	}
	return true
}

func TestIsPrivate(t *testing.T) {
	for ip, want := range map[string]bool{
		"10.1.0.5": true, "::ffff:10.1.0.5": true, "172.31.0.1": true, "172.32.0.1": false, "192.168.0.1": true, "100.64.0.1": true, "192.0.2.1": false,
		"fd00::1": true, "2001:db8::1": false, "127.0.0.1": false,
	} {
		if got := IsPrivate(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s: %v", ip, got)
		}
	}
}

func TestRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	networks := append([]netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("192.0.2.0/31"),
		netip.MustParsePrefix("10.1.2.3/32"), netip.MustParsePrefix("fd00:1::/32"), netip.MustParsePrefix("::/0"),
	}, private...)
	some := func() (list []netip.Prefix) {
		for range rng.IntN(3) {
			list = append(list, networks[rng.IntN(len(networks))])
		}
		return list
	}
	any := func(list []netip.Prefix, ip netip.Addr) (in bool) {
		for _, p := range list {
			in = in || within(p, ip)
		}
		return in
	}
	for range 20_000 {
		r := Rule{Deny: some(), Private: some(), Own: some()}
		near := networks[rng.IntN(len(networks))].Addr().AsSlice()
		for range rng.IntN(3) {
			near[rng.IntN(len(near))] ^= 1 << rng.IntN(8)
		}
		ip, _ := netip.AddrFromSlice(near)
		denied := any(r.Deny, ip)
		foreign := denied || any(translated, ip) && !ip.IsLoopback() || any(private, ip) && !any(r.Private, ip)
		for _, own := range r.Own {
			listed := false
			for _, p := range r.Private {
				listed = listed || within(p, ip) && p.Bits() >= own.Bits()
			}
			foreign = foreign || within(own, ip) && !listed
		}
		shown := ip
		if ip.Is4() && rng.IntN(2) == 0 { // in its IPv6 form
			shown = netip.AddrFrom16(ip.As16())
		}
		for what, c := range map[string]struct {
			err  error
			want bool
		}{"Denied": {r.Denied(shown), denied}, "Foreign": {r.Foreign(shown), foreign}} {
			if (c.err != nil) != c.want || c.err != nil && !errors.Is(c.err, overlay.ErrForbidden) {
				t.Fatalf("%s of %v by %+v: %v", what, shown, r, c.err)
			}
		}
	}
}

// A neighbour is behind the host's own firewall, also at a public address.
func TestOwnNetworks(t *testing.T) {
	own := Networks([]netip.Prefix{
		netip.MustParsePrefix("192.0.2.17/24"), netip.MustParsePrefix("2001:db8:1::5/64"), netip.MustParsePrefix("198.51.100.1/32"),
		netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("10.1.2.3/24"),
	})
	for _, c := range []struct {
		private, ip string
		ok          bool
	}{
		{"", "192.0.2.80", false}, {"", "::ffff:192.0.2.80", false}, {"", "2001:db8:1::80", false},
		{"", "192.0.3.80", true}, {"", "2001:db8:2::80", true}, {"", "198.51.100.1", true},
		{"192.0.2.0/24", "192.0.2.80", true}, {"192.0.2.64/26", "192.0.2.80", true}, {"192.0.2.64/26", "192.0.2.17", false},
		{"192.0.0.0/16", "192.0.2.80", false},
		{"10.0.0.0/8", "10.1.3.80", true}, {"10.0.0.0/8", "10.1.2.80", false}, {"10.1.2.0/24", "10.1.2.80", true},
	} {
		r := Rule{Own: own}
		if c.private != "" {
			r.Private = []netip.Prefix{netip.MustParsePrefix(c.private)}
		}
		if err := r.Foreign(netip.MustParseAddr(c.ip)); (err == nil) != c.ok || err != nil && !errors.Is(err, overlay.ErrForbidden) {
			t.Errorf("%s, private %q: %v", c.ip, c.private, err)
		}
	}
}

// An IPv4 address that would be refused is also refused in an IPv6 address that represents it.
func TestTranslatedAddresses(t *testing.T) {
	for _, text := range []string{"64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1", "64:ff9b:1:a00:0:100::", "2002:a00:1::1", "::10.0.0.1"} {
		if err := (Rule{}).Foreign(netip.MustParseAddr(text)); !errors.Is(err, overlay.ErrForbidden) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := (Rule{}).Foreign(netip.MustParseAddr("2001:db8::1")); err != nil {
		t.Error(err)
	}
}
