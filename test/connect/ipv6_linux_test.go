//go:build system

package connect

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Gateways of nodes without a route out reach others, and are reached, over IPv6: where they have
// only IPv6, where the LAN has IPv6 as well, and where a session over IPv6 comes with a profile of
// IPv4's NAT.
func TestGatewaysOverIPv6(t *testing.T) {
	// The lab's addresses: 2001:db8:N::/64 is the LAN of the N-th site.
	const sites = `
  - {name: hidden, preset: no-route/ipv6-only, nodes: 1}
  - {name: six, preset: ipv6-only, nodes: 1}
  - {name: both, preset: no-route/nat-ipv6, nodes: 1}
  - {name: ranged, preset: no-route/port-range, only-ipv6: true, nodes: 1}
  - {name: dual, preset: nat-symmetric-ipv6, nodes: 1}
` + labtest.SiteClosed
	w := newMeasuredWorld(t, sites, grid.Config{
		Settings: map[string]map[string]any{
			"frontal hidden":   {"listen": "[::]:7440", "data_listen": "[2001:db8:1::1]:7441"},
			"helper hidden/n1": {"frontal": "[2001:db8:1::1]:7440"},
			"frontal both":     {"broker": "[2001:db8:ffff::2]:443"},
			"frontal ranged":   {"public_listen": "[2001:db8:ff00:4::2]:20000", "profile": map[string]any{"inbound": "ports"}},
		},
		Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
			if site != "hidden" && site != "closed" {
				p = directly(site, p)
			}
			return p
		},
	})
	for _, tc := range []struct{ from, to, path string }{
		{"hidden", "six", "simultaneous-open, via asker's gateway"},
		{"six", "hidden", "simultaneous-open, via target's gateway"},
		{"hidden", "both", "simultaneous-open, via both gateways"},
		{"both", "hidden", "simultaneous-open, via both gateways"},
		{"six", "dual", "simultaneous-open"}, // they know the broker by different addresses
		{"dual", "hidden", "simultaneous-open, via target's gateway"},
		{"both", "closed", "simultaneous-open, via asker's gateway"}, // over IPv4
		{"closed", "both", "simultaneous-open, via target's gateway"},
		{"hidden", "ranged", "port-range, via both gateways"},
		{"six", "ranged", "port-range, via target's gateway"},
		{"both", "ranged", "port-range, via both gateways"},
		{"ranged", "six", "reversed, via asker's gateway"},
		{"hidden", "closed", "relay, via asker's gateway"},
		{"closed", "hidden", "relay, via target's gateway"},
	} {
		j := w.LinkPair(tc.from+"/n1", tc.to+"/n1")
		if got := labtest.PathOf(j.Near); got != tc.path {
			t.Errorf("%s to %s: linked by %s, want %s", tc.from, tc.to, got, tc.path)
		}
		j.End(t)
	}
}

// Two IPv6-only sites whose filters refuse every SYN connect by a carried one, nodes as well as
// gateways, from what they measured: that there is only IPv6, and nothing of the filter. No other
// host sees a packet.
func TestTraversingOverIPv6(t *testing.T) {
	const sites = `
  - {name: a, preset: syn-drop, only-ipv6: true, nodes: 1}
  - {name: b, preset: syn-drop, only-ipv6: true, nodes: 1}
  - {name: hidden, preset: no-route/syn-drop, only-ipv6: true, nodes: 1}
  - {name: other, preset: syn-drop, only-ipv6: true, nodes: 1}
`
	w := newMeasuredWorld(t, sites, grid.Config{Profile: directly})
	for _, tc := range []struct{ from, to, path string }{
		{"a", "b", "traversing"},
		{"b", "a", "traversing"},
		{"a", "hidden", "traversing, via target's gateway"},
		{"hidden", "b", "traversing, via asker's gateway"},
		{"a", "b", "traversing"}, // from what was declared
	} {
		j := w.LinkPair(tc.from+"/n1", tc.to+"/n1")
		if got := labtest.PathOf(j.Near); got != tc.path {
			t.Errorf("%s to %s: linked by %s, want %s", tc.from, tc.to, got, tc.path)
		}
		j.End(t)
	}
	stranger := func(end string) bool {
		return end == "other" || end == "public/stranger" || end == "public/p2" || end == "public/p3"
	}
	control := func(end string) bool { return end == "public/broker" || end == "public/p1" }
	for _, c := range w.Lab.Traffic() {
		third := stranger(c.From) && !control(c.To) || stranger(c.To) && !control(c.From)
		if third && c.Packets > 0 {
			t.Errorf("%d packets from %s to %s", c.Packets, c.From, c.To)
		}
	}
}

// Sites whose IPv4 NATs keep them apart meet over IPv6 from what they measured of it: by a dial
// where its firewall lets connections in, back from there, and by hole punching through firewalls
// that let none in, also to a site with IPv6 alone. The reasons at both ends say so.
func TestDialsAndPunchingOverIPv6(t *testing.T) {
	const sites = `
  - {name: shut, preset: ipv6-stateful-nat-symmetric, nodes: 1}
  - {name: other, preset: ipv6-stateful-nat-symmetric, nodes: 1}
  - {name: open, preset: ipv6-open-nat, nodes: 1}
  - {name: six, preset: ipv6-only, nodes: 1}
`
	w := newMeasuredWorld(t, sites, grid.Config{Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
		p = directly(site, p)
		p.Forbidden = append(p.Forbidden, overlay.SimultaneousOpen, overlay.Traversing)
		return p
	}})
	for _, tc := range []struct{ from, to, path string }{
		{"shut", "open", "direct"},
		{"open", "shut", "reversed"},
		{"six", "open", "direct"},
		{"shut", "other", "hole-punching"},
		{"six", "shut", "hole-punching"},
		{"other", "six", "hole-punching"},
	} {
		j := w.LinkPair(tc.from+"/n1", tc.to+"/n1")
		if got := labtest.PathOf(j.Near); got != tc.path {
			t.Errorf("%s to %s: linked by %s, want %s", tc.from, tc.to, got, tc.path)
		}
		for _, l := range []*link.Link{j.Near, j.Far} {
			if path, _ := l.Current(); !strings.Contains(path.Reason, "over IPv6") {
				t.Errorf("%s to %s: the path is %v, because %s", tc.from, tc.to, path, path.Reason)
			}
		}
		j.End(t)
	}
}
