package test

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Gateways of nodes without a route out reach others, and are reached, over IPv6: where
// they have nothing else, where the LAN is of IPv6 as well, and where a session over IPv6
// goes with a profile of IPv4's NAT.
func TestGatewaysOverIPv6(t *testing.T) {
	// The lab's addresses: 2001:db8:N::/64 is the LAN of the N-th site.
	const sites = `
  - {name: hidden, preset: no-route/ipv6-only, nodes: 1}
  - {name: six, preset: ipv6-only, nodes: 1}
  - {name: both, preset: no-route/nat-ipv6, nodes: 1}
  - {name: ranged, preset: no-route/port-range, only-ipv6: true, nodes: 1}
  - {name: dual, preset: nat-symmetric-ipv6, nodes: 1}
` + siteClosed
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
		j := w.linked(tc.from+"/n1", tc.to+"/n1")
		if got := pathOf(j.near); got != tc.path {
			t.Errorf("%s to %s: linked by %s, want %s", tc.from, tc.to, got, tc.path)
		}
		j.end(t)
	}
}
