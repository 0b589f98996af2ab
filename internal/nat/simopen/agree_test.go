package simopen

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

// reported makes an end behind a preset, as its report would be: 10 ms from the server, its clock
// behind by offset.
func reported(t *testing.T, site, preset string, offset time.Duration) End {
	t.Helper()
	p, err := lab.Profile(preset)
	if err != nil {
		t.Fatal(err)
	}
	p.Site = overlay.SiteID(site)
	local := netip.MustParseAddrPort("10.1.0.11:443")
	seen := []netip.AddrPort{local, local}
	if p.NAT.Mapping == overlay.AddressAndPortDependent {
		seen = []netip.AddrPort{netip.MustParseAddrPort("100.64.1.2:5000"), netip.MustParseAddrPort("100.64.1.2:6000")}
	}
	return End{
		Profile: p, Mapping: newMapping(local, seen, nil, nil),
		Clock: Estimate{Offset: offset, Error: 2 * ms, RTT: 20 * ms},
	}
}

func TestAgreeChoosesInstants(t *testing.T) {
	for _, tc := range []struct {
		a, b      string
		later     time.Duration // B's instant relative to A's
		tolerance time.Duration
	}{
		{"stateful", "stateful", 0, -1},
		{"nat", "nat-random", 0, -1},
		{"open", "stateful", 0, -1},
		{"stateful", "syn-drop", 20 * ms, 40 * ms}, // the stateful side first
		{"syn-drop", "nat", -20 * ms, 40 * ms},
		{"stateful-reject", "stateful", 20 * ms, 40 * ms}, // the side that would answer first
		{"stateful", "nat-answers", -20 * ms, 40 * ms},
		{"stateful-reject", "syn-drop", 20 * ms, 40 * ms},
		{"stateful-reject", "stateful-reject", 0, 20 * ms}, // SYNs must cross
		{"stateful-reject", "nat-answers", 0, 20 * ms},
		{"syn-reset", "stateful", 0, 20 * ms},
		{"syn-reset", "stateful-reject", 0, 20 * ms},
	} {
		a, b := reported(t, "a", tc.a, 5*time.Second), reported(t, "b", tc.b, -time.Minute)
		ag, err := Agree(epoch, a, b)
		if err != nil {
			t.Errorf("%s, %s: %v", tc.a, tc.b, err)
			continue
		}
		atA, atB := a.Clock.Server(ag.A.At), b.Clock.Server(ag.B.At)
		if atB.Sub(atA) != tc.later || ag.Tolerance != tc.tolerance || ag.Risky {
			t.Errorf("%s, %s: B later by %v, tolerance %v, risky %v", tc.a, tc.b, atB.Sub(atA), ag.Tolerance, ag.Risky)
		}
		if first := min(atA.Sub(epoch), atB.Sub(epoch)); first < 10*ms || first > 30*ms {
			t.Errorf("%s, %s: first instant after %v; an agreement needs 10 ms to arrive", tc.a, tc.b, first)
		}
	}
	a, b := reported(t, "a", "stateful-reject", 0), reported(t, "b", "stateful-reject", 0)
	a.Clock.Error = 19 * ms
	if ag, err := Agree(epoch, a, b); err != nil || !ag.Risky {
		t.Errorf("bad clocks: %+v, %v", ag, err)
	}
}

func TestAgreeRefusesWhatCannotWork(t *testing.T) {
	for _, tc := range []struct {
		a, b  string
		class error
		text  string
	}{
		{"syn-drop", "syn-reset", overlay.ErrRefused, "a and b both refuse every bare SYN"},
		{"nat-symmetric", "stateful", ErrUnpredictable, "a: the outside port cannot be foretold: its port 443 was seen as 100.64.1.2:5000 and 100.64.1.2:6000, and b takes no SYN"},
		{"nat", "nat-symmetric", ErrUnpredictable, "b: the outside port"},
		{"http-proxy", "open", overlay.ErrUnreachable, "a lets no SYN of its nodes out (egress is http-proxy)"},
		{"open", "http-proxy", overlay.ErrUnreachable, "b lets no SYN"},
	} {
		ag, err := Agree(epoch, reported(t, "a", tc.a, 0), reported(t, "b", tc.b, 0))
		if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s, %s: %+v, %v; want %q", tc.a, tc.b, ag, err, tc.text)
		}
	}
	a, b := reported(t, "a", "egress-443", 0), reported(t, "b", "stateful", 0)
	if _, err := Agree(epoch, a, b); err != nil {
		t.Error(err)
	}
	b.Mapping.Outside = netip.MustParseAddrPort("100.64.2.2:4430")
	if _, err := Agree(epoch, a, b); err == nil || !strings.Contains(err.Error(), "let it prepare port 443") {
		t.Errorf("b dials from port 4430: %v", err)
	}
	one := reported(t, "b", "nat", 0)
	one.Mapping = newMapping(netip.MustParseAddrPort("10.2.0.11:5"), []netip.AddrPort{netip.MustParseAddrPort("100.64.2.2:5"), {}}, nil, nil)
	if _, err := Agree(epoch, reported(t, "a", "nat", 0), one); !errors.Is(err, ErrUnpredictable) || !strings.Contains(err.Error(), "only one reflector saw port 5") {
		t.Errorf("one reflector: %v", err)
	}
}

// Where one end's port is unknown, the other only listens.
func TestAgreeWithAnOpenPeer(t *testing.T) {
	for _, peer := range []string{"open", "nat-fullcone", "nat-1to1"} {
		ag, err := Agree(epoch, reported(t, "a", "nat-symmetric", 0), reported(t, "b", peer, 0))
		if err != nil || !ag.A.AnyPort || ag.B.Remote != netip.MustParseAddrPort("100.64.1.2:0") || ag.A.Remote.Port() != 443 {
			t.Errorf("%s: %+v, %v", peer, ag, err)
		}
	}
}

func TestNewMapping(t *testing.T) {
	local, x, y := netip.MustParseAddrPort("10.0.0.1:9"), netip.MustParseAddrPort("1.2.3.4:9"), netip.MustParseAddrPort("1.2.3.4:10")
	var none netip.AddrPort
	for _, tc := range []struct {
		seen        []netip.AddrPort
		outside     netip.AddrPort
		independent bool
	}{
		{[]netip.AddrPort{x, x}, x, true},
		{[]netip.AddrPort{x, y}, x, false},
		{[]netip.AddrPort{none, y, y}, y, true},
		{[]netip.AddrPort{none, y}, y, false},
		{[]netip.AddrPort{local, none}, local, true},
		{[]netip.AddrPort{none, none}, none, false},
	} {
		if m := newMapping(local, tc.seen, nil, nil); m.Outside != tc.outside || m.Independent != tc.independent {
			t.Errorf("%v: %+v", tc.seen, m)
		}
	}
}

func TestNextTryStaysOnTheGrid(t *testing.T) {
	o := Options{}.withDefaults()
	for _, tc := range []struct {
		after time.Duration
		try   int
		want  time.Duration
	}{
		{-ms, 0, 40 * ms},
		{20 * ms, 0, 40 * ms},
		{39 * ms, 0, 40 * ms},
		{40 * ms, 2, 80 * ms},
		{45 * ms, 1, 95 * ms}, // half the jitter
		{330 * ms, 4, 360 * ms},
	} {
		if got := nextTry(epoch, epoch.Add(tc.after), o, tc.try, 0.5).Sub(epoch); got != tc.want {
			t.Errorf("try %d ended after %v: next at %v, want %v", tc.try, tc.after, got, tc.want)
		}
	}
}

// TestHurryFitsEveryPair: whatever the direct path takes, up to that through the server, no SYN
// triggers a reset and one of them gets through.
func TestHurryFitsEveryPair(t *testing.T) {
	tried := 0
	for _, from := range lab.Presets() {
		for _, to := range lab.Presets() {
			a, b := reported(t, "a", from, 5*time.Second), reported(t, "b", to, -time.Minute)
			ag, err := Hurry(epoch, a, b)
			if _, impossible := Agree(epoch, a, b); (err == nil) != (impossible == nil) {
				t.Fatalf("%s, %s: %v, but an agreement says %v", from, to, err, impossible)
			}
			if err != nil {
				continue
			}
			tried++
			word := 20 * ms                                         // half of both round trips
			atA, atB := ag.A.At.Sub(epoch), word+ag.B.At.Sub(epoch) // by one clock: neither end's matters
			for way := word / 8; way <= word; way += word / 8 {
				reachesB, reachesA := atA+way >= atB, atB+way >= atA // after the other left
				switch {
				case resets(a.Profile) && !reachesA, resets(b.Profile) && !reachesB:
					t.Errorf("%s, %s, %v apart: a SYN comes too early and draws a reset (%v, %v)", from, to, way, atA, atB)
				case !(reachesA && !stateless(a.Profile)) && !(reachesB && !stateless(b.Profile)):
					t.Errorf("%s, %s, %v apart: no SYN gets through (%v, %v)", from, to, way, atA, atB)
				}
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d pairs could be tried", tried)
	}
}
