package broker

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A declared network counts only if no other site's session comes from it.
func TestOverlaps(t *testing.T) {
	net := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	own := netip.MustParseAddr("192.0.2.9")
	for _, tc := range []struct {
		declared []netip.Prefix
		from     string // where site x comes from
		want     overlay.SiteID
	}{
		{net("192.0.2.0/24"), "192.0.2.77", "x"},
		{net("192.0.2.0/24"), "192.0.3.77", ""},
		{net("192.0.2.0/24"), "192.0.2.9", ""}, // behind the same NAT
		{net("192.0.2.0/24", "192.0.2.0/27"), "192.0.2.77", ""},
		{net("192.0.2.0/27", "192.0.2.0/24"), "192.0.2.77", ""},
		{net("192.0.2.0/24", "192.0.2.0/27"), "192.0.2.17", "x"},
		{net("192.0.2.64/27", "192.0.2.0/27"), "192.0.2.77", ""},
		{nil, "192.0.2.77", ""},
	} {
		if network, got := overlaps(tc.declared, netip.MustParseAddr("192.0.2.1"), own, map[netip.Addr]overlay.SiteID{netip.MustParseAddr(tc.from): "x"}); got != tc.want {
			t.Errorf("%v, x from %s: %s in %v, want %q", tc.declared, tc.from, got, network, tc.want)
		}
	}
}

// Where sites come from is remembered for a day, of a bounded number of them.
func TestSources(t *testing.T) {
	var s sessions
	addr, now := netip.MustParseAddr("::ffff:192.0.2.1"), time.Unix(1_000_000, 0)
	s.noteSource("a", addr, now)
	if got := s.sources("b", now.Add(sourceLife-1)); len(got) != 1 || got[addr.Unmap()] != "a" {
		t.Errorf("remembered: %v", got)
	}
	if got := s.sources("a", now); len(got) != 0 {
		t.Errorf("its own: %v", got)
	}
	if got := s.sources("b", now.Add(sourceLife)); len(got) != 0 {
		t.Errorf("a day later: %v", got)
	}
	for i := range maxSources + 10 {
		s.noteSource(overlay.SiteID(fmt.Sprint("s", i)), addr, now)
	}
	if len(s.from) != maxSources {
		t.Errorf("%d sites are remembered", len(s.from))
	}
	if s.noteSource("late", addr, now.Add(sourceLife+1)); len(s.from) != 1 {
		t.Errorf("%d sites are remembered after a day", len(s.from))
	}
}

// A site does not register processes in networks where another site was seen, also while that has no session.
func TestNetworksOfOthers(t *testing.T) {
	g := newGrid(t)
	g.start()
	a, b := g.frontal(openA, nil), g.frontal(closedB, nil)
	g.register(b, pointOf("siteb", rank(0), 1))
	if from := g.b.sessions.from; len(from) != 2 || !from["sitea"].addr.IsLoopback() {
		t.Errorf("sessions come from %v", from)
	}
	g.b.sessions.mu.Lock()
	g.b.sessions.noteSource("sitec", netip.MustParseAddr("192.0.2.77"), time.Now())
	g.b.sessions.mu.Unlock()
	resp, err := a.directory.Register(g.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{control.RegistrationToPB(signed(pointOf("sitea", rank(1), 1)))}})
	if err != nil || len(resp.Faults) != 1 || !strings.Contains(resp.Faults[0].Text, "frontal sitec comes from 192.0.2.0/24, too") {
		t.Errorf("%v, %v", resp, err)
	}
}
