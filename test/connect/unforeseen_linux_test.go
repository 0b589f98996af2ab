//go:build system

package connect

import (
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// directly excludes the relay, so that a pair is linked by another technique or by none.
func directly(_ string, p overlay.SiteProfile) overlay.SiteProfile {
	p.Forbidden = []overlay.Technique{overlay.Relay}
	return p
}

// newMeasuredWorld returns a world of sites whose profiles the daemons measure, ready.
func newMeasuredWorld(t *testing.T, sites string, cfg grid.Config) *world {
	t.Helper()
	cfg.Measured = true
	w := newWorld(t, sites, cfg)
	if err := w.AwaitMeasured(w.Ctx); err != nil {
		t.Fatal(err)
	}
	return w
}

// Carriers' NATs that give each TCP connection a port of its own, and one to a UDP socket, are
// traversed by hole punching.
func TestNATByProtocol(t *testing.T) {
	w := newMeasuredWorld(t, "  - {name: sitea, preset: nat-tcp-symmetric-udp-eim, nodes: 1}\n  - {name: siteb, preset: nat-tcp-symmetric-udp-eim, nodes: 1}\n",
		grid.Config{Profile: directly})
	j := w.LinkPair("sitea/n1", "siteb/n1")
	if got := labtest.PathOf(j.Near); got != "hole-punching" {
		t.Errorf("linked by %s", got)
	}
	j.End(t)
}

// An IPv6-only and an IPv4-only site meet at a proxy that has both, and not at one that has only
// IPv4, from what they measured.
func TestIPv6Only(t *testing.T) {
	w := newMeasuredWorld(t, "  - {name: six, preset: ipv6-only, nodes: 1}\n"+labtest.SiteClosed, grid.Config{
		Proxies: []string{"public/p1", "public/p2"},
		// It listens on both nevertheless: a proxy without IPv6 advertises none.
		Settings: map[string]map[string]any{"proxy p2": {"advertise": []string{"203.0.113.4:443"}}},
		Profile:  func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p },
	})
	for _, nodes := range [][2]string{{"six/n1", "closed/n1"}, {"closed/n1", "six/n1"}, {"six/n1", "closed/n1"}} {
		j := w.LinkPair(nodes[0], nodes[1])
		if p := j.Near.Path; p.Technique != overlay.Relay || p.Proxy != "p1" {
			t.Errorf("%s to %s: linked by %v", nodes[0], nodes[1], p)
		}
		j.End(t)
	}
}

// Hole punching works through a path with an MTU below Ethernet's and without ICMP errors, whatever
// was measured of it.
func TestPunchingThroughANarrowPath(t *testing.T) {
	w := newMeasuredWorld(t, "  - {name: wide, preset: stateful, nodes: 1}\n  - {name: narrow, preset: mtu-1300-blackhole, nodes: 1}\n",
		grid.Config{Profile: func(_ string, p overlay.SiteProfile) overlay.SiteProfile {
			p.Forbidden = []overlay.Technique{overlay.SimultaneousOpen, overlay.Traversing, overlay.Relay}
			return p
		}})
	for _, nodes := range [][2]string{{"wide/n1", "narrow/n1"}, {"narrow/n1", "wide/n1"}} {
		j := w.LinkPair(nodes[0], nodes[1])
		if got := labtest.PathOf(j.Near); got != "hole-punching" {
			t.Errorf("%s to %s: linked by %s", nodes[0], nodes[1], got)
		}
		j.End(t)
	}
}
