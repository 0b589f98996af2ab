package broker

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/broker/registry"
)

// Whichever version of IP a session uses and an admin sets, the broker is named by an address of each
// version that it has, that of the session first.
func TestOfBothVersions(t *testing.T) {
	const v4, v6, nat4, nat6 = "192.0.2.1:443", "[2001:db8::1]:443", "203.0.113.1:4443", "[2001:db8:ff::1]:4443"
	parse := func(texts ...string) (all []netip.AddrPort) {
		for _, s := range texts {
			if s == "" {
				all = append(all, netip.AddrPort{})
			} else {
				all = append(all, netip.MustParseAddrPort(s))
			}
		}
		return all
	}
	for _, tc := range []struct {
		set        []string
		own, other string
		want       string
	}{
		{nil, v4, "", "[" + v4 + "]"},
		{nil, v6, "", "[" + v6 + "]"},
		{nil, v4, v6, "[" + v4 + " " + v6 + "]"},
		{nil, v6, v4, "[" + v6 + " " + v4 + "]"},
		{[]string{nat4}, v4, v6, "[" + nat4 + " " + v6 + "]"},
		{[]string{nat4}, v6, "", "[" + v6 + " " + nat4 + "]"},
		{[]string{nat6}, v4, "", "[" + v4 + " " + nat6 + "]"},
		{[]string{nat4, nat6}, v4, v6, "[" + nat4 + " " + nat6 + "]"},
		{[]string{nat4, nat6}, v6, v4, "[" + nat6 + " " + nat4 + "]"},
	} {
		usual := parse(tc.own, tc.other)
		if got := ofBothVersions(parse(tc.set...), usual[0], usual[1]); fmt.Sprint(got) != tc.want {
			t.Errorf("%v, to %s: %v, want %s", tc.set, tc.own, got, tc.want)
		}
	}
}

// Only a broker that listens on all addresses of both versions has another one.
func TestOtherThan(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	beside := func(ip netip.Addr) netip.Addr {
		if ip == v4 {
			return v6
		}
		return v4
	}
	for listening, want := range map[string]map[netip.Addr]string{
		"[::]:4443":     {v4: "[2001:db8::1]:4443", v6: "192.0.2.1:4443"},
		"0.0.0.0:443":   {v4: "invalid AddrPort"},
		"192.0.2.1:443": {v4: "invalid AddrPort"},
	} {
		for own, want := range want {
			if got := otherThan(own, netip.MustParseAddrPort(listening), beside); got.String() != want {
				t.Errorf("%s, a session to %v: %v, want %s", listening, own, got, want)
			}
		}
	}
}

// A proxy with both versions is named by both, whichever it offers first; and so is the broker for a
// session over either.
func TestListReflectors(t *testing.T) {
	four := reflectorAddress{netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddrPort("192.0.2.1:3478")}
	six := reflectorAddress{netip.MustParseAddrPort("[2001:db8::1]:443"), netip.MustParseAddrPort("[2001:db8::1]:3478")}
	proxy := func(stun string, addrs ...string) (p registry.Proxy) {
		for _, a := range addrs {
			p.Addresses = append(p.Addresses, netip.MustParseAddrPort(a))
		}
		if stun != "" {
			p.STUN = netip.MustParseAddrPort(stun)
		}
		return p
	}
	const p4, p6 = "192.0.2.2:443", "[2001:db8::2]:443"
	for _, tc := range []struct {
		what                   string
		own                    []reflectorAddress
		proxy                  registry.Proxy
		tcp, stun, tcp6, stun6 string
	}{
		{"IPv4 alone", []reflectorAddress{four}, proxy("192.0.2.2:3479", p4), "[192.0.2.1:443 192.0.2.2:443]", "[192.0.2.1:3478 192.0.2.2:3479]", "[]", "[]"},
		{"IPv6 alone", []reflectorAddress{six}, proxy("[2001:db8::2]:3479", p6), "[[2001:db8::1]:443 [2001:db8::2]:443]", "[[2001:db8::1]:3478 [2001:db8::2]:3479]", "[]", "[]"},
		{"a session over IPv4", []reflectorAddress{four, six}, proxy("192.0.2.2:3479", p4, p6),
			"[192.0.2.1:443 192.0.2.2:443]", "[192.0.2.1:3478 192.0.2.2:3479]", "[[2001:db8::1]:443 [2001:db8::2]:443]", "[[2001:db8::1]:3478 [2001:db8::2]:3479]"},
		{"a session over IPv6", []reflectorAddress{six, four}, proxy("192.0.2.2:3479", p4, p6),
			"[[2001:db8::1]:443 192.0.2.1:443 192.0.2.2:443]", "[[2001:db8::1]:3478 192.0.2.1:3478 192.0.2.2:3479]", "[[2001:db8::2]:443]", "[[2001:db8::2]:3479]"},
		{"a proxy that offers IPv6 first", []reflectorAddress{four, six}, proxy("[2001:db8::2]:3479", p6, p4),
			"[192.0.2.1:443 192.0.2.2:443]", "[192.0.2.1:3478 192.0.2.2:3479]", "[[2001:db8::1]:443 [2001:db8::2]:443]", "[[2001:db8::1]:3478 [2001:db8::2]:3479]"},
		{"no STUN server", []reflectorAddress{{tcp: four.tcp}, {tcp: six.tcp}}, proxy("", p6, p4),
			"[192.0.2.1:443 192.0.2.2:443]", "[]", "[[2001:db8::1]:443 [2001:db8::2]:443]", "[]"},
	} {
		r := listReflectors(tc.own, []registry.Proxy{tc.proxy})
		if got, want := fmt.Sprint(r.Tcp, r.Stun, r.Tcp6, r.Stun6), strings.Join([]string{tc.tcp, tc.stun, tc.tcp6, tc.stun6}, " "); got != want {
			t.Errorf("%s:\n%s, want\n%s", tc.what, got, want)
		}
		if len(r.Own) != len(tc.own) || r.Own[0] != tc.own[0].tcp.String() {
			t.Errorf("%s: the broker's are %v", tc.what, r.Own)
		}
	}
	many := make([]registry.Proxy, 2*maxReflectors)
	for i := range many {
		many[i] = proxy("192.0.2.2:3479", p4, p6)
	}
	if r := listReflectors([]reflectorAddress{six, four}, many); len(r.Tcp) != maxReflectors || len(r.Stun) != maxReflectors || len(r.Tcp6) != maxReflectors || len(r.Stun6) != maxReflectors {
		t.Errorf("%d, %d, %d and %d addresses in one answer", len(r.Tcp), len(r.Stun), len(r.Tcp6), len(r.Stun6))
	}
}
