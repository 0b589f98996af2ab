//go:build system

package connect

import (
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Sites with IPv4 behind a NAT, with IPv6 alone and with both connect in all combinations from what
// they measured, and need the relay only where they have no version of IP in common: whether gateways
// with both reach the broker over IPv4 or IPv6, and whichever of its addresses the proxy offers first.
func TestDualStack(t *testing.T) {
	t.Parallel() // most of it is waiting
	const sites = `
  - {name: four1, preset: nat, nodes: 1}
  - {name: four2, preset: nat, nodes: 1}
  - {name: six1, preset: ipv6-only, nodes: 1}
  - {name: six2, preset: ipv6-only, nodes: 1}
  - {name: dual1, preset: nat-ipv6, nodes: 1}
  - {name: dual2, preset: nat-ipv6, nodes: 1}
`
	const broker4, broker6, proxy4, proxy6 = "203.0.113.2:443", "[2001:db8:ffff::2]:443", "203.0.113.3:443", "[2001:db8:ffff::3]:443"
	for _, tc := range []struct {
		name     string
		dual1    string   // where its gateway reaches the broker
		dual2    string   // the same
		proxy    []string // advertise of the proxy; empty: what it listens on
		ownProxy string   // where the proxy reaches the broker
	}{
		{"sessions over IPv4", broker4, broker4, []string{proxy4, proxy6}, broker4},
		{"sessions over IPv6", broker6, broker6, []string{proxy6, proxy4}, broker6},
		{"sessions over either", broker4, broker6, nil, broker6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newMeasuredWorld(t, sites, grid.Config{
				Settings: map[string]map[string]any{
					"frontal dual1": {"broker": tc.dual1}, "frontal dual2": {"broker": tc.dual2},
					"proxy p1": {"broker": tc.ownProxy, "advertise": tc.proxy},
				},
				Profile: func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p },
			})
			for _, pair := range []struct{ from, to, path string }{
				{"four1", "four2", "simultaneous-open"},
				{"four1", "dual1", "simultaneous-open"},
				{"dual2", "four1", "simultaneous-open"},
				{"dual1", "dual2", "simultaneous-open"},
				{"dual2", "dual1", "simultaneous-open"},
				{"six1", "dual1", "simultaneous-open"},
				{"dual2", "six1", "simultaneous-open"},
				{"six1", "six2", "simultaneous-open"},
				{"four1", "six1", "relay"},
				{"six2", "four2", "relay"},
			} {
				j := w.LinkPair(pair.from+"/n1", pair.to+"/n1")
				if got := labtest.PathOf(j.Near); got != pair.path {
					t.Errorf("%s to %s: linked by %s, want %s", pair.from, pair.to, got, pair.path)
				}
				j.End(t)
			}
		})
	}
}
