package punch

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// cands parses "host 10.0.0.1:5, mapped 192.0.2.1:5".
func cands(t *testing.T, s string) (list []Candidate) {
	t.Helper()
	for word := range strings.SplitSeq(s, ", ") {
		kind, addr, _ := strings.Cut(word, " ")
		if kind == "" {
			continue
		}
		c := Candidate{Mapped, netip.MustParseAddrPort(addr)}
		if kind == "host" {
			c.Kind = Host
		}
		list = append(list, c)
	}
	return list
}

func TestChooseTargets(t *testing.T) {
	const natA, natB = "host 10.0.0.1:1, mapped 192.0.2.1:1", "host 10.0.0.2:2, mapped 192.0.2.2:2"
	cfg := Config{Forbidden: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
	for _, c := range []struct {
		name, own, peer string
		want            string
		class           error
	}{
		{"two NATs: the private address may be another's", natA, natB, "mapped 192.0.2.2:2", nil},
		{"one NAT for both", natA, "host 10.0.0.3:3, mapped 192.0.2.1:3", "host 10.0.0.3:3, mapped 192.0.2.1:3", nil},
		{"no NAT", natA, "host 203.0.113.5:5, mapped 203.0.113.5:5", "host 203.0.113.5:5", nil},
		{"a gateway's own socket, port translated", natA, "host 203.0.113.5:5, mapped 203.0.113.5:7", "host 203.0.113.5:5, mapped 203.0.113.5:7", nil},
		{"no STUN asked", natA, "host 203.0.113.5:5", "host 203.0.113.5:5", nil},
		{"two ports of a symmetric NAT", natA, "host 10.0.0.2:2, mapped 192.0.2.2:2, mapped 192.0.2.2:3", "mapped 192.0.2.2:2, mapped 192.0.2.2:3", nil},
		{"forbidden among others", natA, "host 127.0.0.1:1, mapped 127.0.0.1:1, mapped 192.0.2.2:2", "mapped 192.0.2.2:2", nil},
		{"IPv6 not here", natA, "host [2001:db8::1]:1, mapped 192.0.2.2:2", "mapped 192.0.2.2:2", nil},
		{"IPv6 alone", natA, "host [2001:db8::1]:1", "", overlay.ErrUnreachable},
		{"nothing", natA, "", "", overlay.ErrUnreachable},
		{"private alone", natA, "host 10.0.0.2:2, mapped [2001:db8::1]:1", "host 10.0.0.2:2", nil},
		{"loopback", natA, "host 127.0.0.1:1", "", overlay.ErrForbidden},
		{"loopback 6", "host [2001:db8::9]:1", "host [::1]:1", "", overlay.ErrForbidden},
		{"link-local", natA, "host 169.254.169.254:80", "", overlay.ErrForbidden},
		{"link-local 6", "host [2001:db8::9]:1", "host [fe80::1]:1", "", overlay.ErrForbidden},
		{"multicast", natA, "mapped 224.0.0.1:1", "", overlay.ErrForbidden},
		{"broadcast", natA, "mapped 255.255.255.255:1", "", overlay.ErrForbidden},
		{"unspecified", natA, "host 0.0.0.0:1", "", overlay.ErrForbidden},
		{"management", natA, "mapped 198.51.100.7:1", "", overlay.ErrForbidden},
	} {
		got, err := chooseTargets(cands(t, c.own), cands(t, c.peer), cfg.permits)
		if !slices.Equal(got, cands(t, c.want)) || !errors.Is(err, c.class) {
			t.Errorf("%s: %v, %v; want %s, %v", c.name, got, err, c.want, c.class)
		}
	}
	cfg.AllowLoopback = true
	if got, err := chooseTargets(cands(t, natA), cands(t, "host 127.0.0.1:1"), cfg.permits); len(got) != 1 {
		t.Errorf("with AllowLoopback: %v, %v", got, err)
	}
}
