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
		r := Rule{Deny: some(), Private: some()}
		near := networks[rng.IntN(len(networks))].Addr().AsSlice()
		for range rng.IntN(3) {
			near[rng.IntN(len(near))] ^= 1 << rng.IntN(8)
		}
		ip, _ := netip.AddrFromSlice(near)
		denied := any(r.Deny, ip)
		foreign := denied || any(translated, ip) && !ip.IsLoopback() || any(private, ip) && !any(r.Private, ip)
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
