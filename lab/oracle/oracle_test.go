package oracle

import (
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/broker/decide"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
)

func between(t *testing.T, asker, target string) Pair {
	t.Helper()
	p, err := Between(asker, target)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What the measurements state in words, pair by pair.
func TestStatedFacts(t *testing.T) {
	const (
		d, r, v = overlay.Direct, overlay.PortRange, overlay.Reversed
		s, c, u = overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching
	)
	for _, tc := range []struct {
		asker, target string
		want          Set
	}{
		{"nat-symmetric", "nat-symmetric", Of()},
		{"syn-drop", "syn-drop", Of(c, u)},
		{"syn-drop-no-udp", "syn-drop-no-udp", Of(c)},
		{"syn-drop", "syn-drop-no-udp", Of(c)},
		{"syn-drop", "syn-reset", Of(u)},
		{"syn-reset", "syn-drop", Of(c, u)},
		{"syn-reset", "syn-reset", Of(u)},
		{"egress-443", "egress-443", Of(s)},
		{"egress-443", "stateful", Of(s)},
		{"egress-443", "no-udp", Of(s)},
		{"no-udp", "stateful", Of(s, c)},
		{"egress-443", "nat-random", Of()},
		{"nat-symmetric", "egress-443", Of()},
		{"egress-443", "open", Of(s)},
		{"open", "egress-443", Of(s)},
		{"egress-443", "port-range", Of(s)},
		{"http-proxy", "open", Of()},
		{"port-range", "http-proxy", Of()},
		{"http-proxy", "http-proxy", Of()},
		{"stateful", "stateful", Of(s, c, u)},
		{"stateful-reject", "stateful-reject", Of(s, u)},
		{"nat", "stateful-strict", Of(s, c, u)},
		{"nat-answers", "nat-answers", Of(s, u)},
		{"nat-symmetric", "nat", Of()},
		{"nat-symmetric", "no-udp", Of()},
		{"nat-symmetric", "syn-drop", Of(u)},
		{"syn-reset", "nat-symmetric", Of(u)},
		{"syn-drop-no-udp", "nat-symmetric", Of()},
		{"nat-symmetric", "port-range", Of(r)},
		{"port-range", "nat-symmetric", Of(v)},
		{"nat-symmetric", "open", Of(d, v, s, c, u).Without(v)},
		{"nat-symmetric", "nat-fullcone", Of(s, c, u)},
		{"nat", "nat-fullcone", Of(s, c, u)},
		{"stateful", "port-range", Of(r, s, c, u)},
		{"nat-1to1", "nat-1to1", Of(d, v, s, c, u)},
		{"nat-symmetric", "nat-symmetric-ipv6", Of()},
		{"nat-symmetric-ipv6", "nat-symmetric-ipv6", Of(s, c, u)},
		{"nat-ipv6", "nat-symmetric-ipv6", Of(s, c, u)},
		{"nat-symmetric-ipv6", "no-route/nat-ipv6", Of(s, c, u)},
		{"ipv6-only", "nat-symmetric-ipv6", Of(s, c, u)},
		{"ipv6-stateful-nat-symmetric", "ipv6-stateful-nat-symmetric", Of(s, c, u)},
		{"ipv6-stateful-nat-symmetric", "nat", Of()},
		{"ipv6-stateful-nat-symmetric", "ipv6-open-nat", Of(d, s, c, u)},
		{"ipv6-open-nat", "ipv6-stateful-nat-symmetric", Of(v, s, c, u)},
		{"ipv6-open-nat", "no-route/ipv6-open-nat", Of(v, s, c, u)},
		{"ipv6-open-nat", "nat-symmetric", Of()},
		{"nat-double", "mtu-1400", Of(s, c, u)},
		{"udp-slow", "udp-slow", Of(s, c)},
		{"no-route/syn-drop", "syn-drop", Of(c, u)},
		{"no-route/nat-symmetric", "no-route/nat-symmetric", Of()},
		{"no-route/nat-fullcone", "nat-symmetric", Of()},
		{"no-route/stateful", "no-route/open", Of(d, s, c, u)},
		{"no-route/egress-443", "no-route/http-proxy", Of()},
	} {
		if got := between(t, tc.asker, tc.target); got.Works != tc.want {
			t.Errorf("%s to %s: %v; the measurements say %v", tc.asker, tc.target, got.Works, tc.want)
		}
	}
}

// The pairs of the eighteen measured kinds without a direct path: a list written by hand, each pair
// once, for ordinary users.
func TestNoDirectPath(t *testing.T) {
	none := map[string]string{ // the kinds that a kind does not reach, including itself
		"http-proxy":          "all",
		"nat-symmetric":       "stateful stateful-reject stateful-strict stateful-strict-new stateful-noloose nat nat-answers nat-random nat-symmetric no-udp egress-443",
		"egress-443":          "nat-random nat-symmetric",
		"nat-random":          "nat-symmetric egress-443",
		"no-udp":              "nat-symmetric",
		"stateful":            "nat-symmetric",
		"stateful-reject":     "nat-symmetric",
		"stateful-strict":     "nat-symmetric",
		"stateful-strict-new": "nat-symmetric",
		"stateful-noloose":    "nat-symmetric",
		"nat":                 "nat-symmetric",
		"nat-answers":         "nat-symmetric",
	}
	measured := plain()[:18]
	for _, a := range measured {
		for _, b := range measured {
			listed := slices.Contains(strings.Fields(none[a]), b) || none[a] == "all" || b == "http-proxy"
			if direct := between(t, a, b).Unprivileged().Direct(); direct == listed {
				t.Errorf("%s to %s: direct %v", a, b, direct)
			}
		}
	}
}

// Reversed is the mirrored table of direct connections, and techniques that need both ends alike
// are symmetric.
func TestSymmetry(t *testing.T) {
	for _, a := range lab.Presets() {
		for _, b := range lab.Presets() {
			there, back := between(t, a, b).Works, between(t, b, a).Works
			dialled := there.Has(overlay.Direct) || there.Has(overlay.PortRange)
			if dialled != back.Has(overlay.Reversed) {
				t.Errorf("%s to %s: %v, but the other way: %v", a, b, there, back)
			}
			for _, tech := range []overlay.Technique{overlay.SimultaneousOpen, overlay.HolePunching} {
				if there.Has(tech) != back.Has(tech) {
					t.Errorf("%s to %s: %v, but the other way: %v", a, b, there, back)
				}
			}
			if there&between(t, a, b).Unsettled != 0 {
				t.Errorf("%s to %s: both settled and not", a, b)
			}
		}
	}
}

// Every kind of site that the lab builds is in the tables.
func TestEveryPresetIsKnown(t *testing.T) {
	for _, p := range lab.Presets() {
		between(t, p, "open")
	}
	if _, err := Between("open", "moat"); err == nil || !strings.Contains(err.Error(), "moat") {
		t.Errorf("an unknown preset: %v", err)
	}
	if _, err := Between("no-route/moat", "open"); err == nil {
		t.Error("an unknown preset without a route is known")
	}
}

// Each kind met later is known, and most of them work without a relay.
func TestUnforeseenKinds(t *testing.T) {
	for _, p := range lab.Unforeseen() {
		if between(t, p, "open").Works == 0 && p != "tls-only-443" && p != "connect-tls-only" && p != "ipv6-only" {
			t.Errorf("nothing but the relay joins %s and open", p)
		}
	}
	if p := between(t, "same-nat-no-hairpin", "same-nat-no-hairpin"); p.Direct() {
		t.Errorf("behind one NAT without hairpinning these work: %v", p.Works)
	}
	if p := between(t, "split-tcp", "nat-fullcone"); p != (Pair{Works: Of(overlay.HolePunching)}) {
		t.Errorf("a middlebox that splits connections lets these through: %v, unsettled %v", p.Works, p.Unsettled)
	}
	if p := between(t, "nat-tcp-symmetric-udp-eim", "nat-tcp-symmetric-udp-eim"); p.Works != Of(overlay.HolePunching) {
		t.Errorf("between two NATs that are symmetric for TCP alone these work: %v", p.Works)
	}
}

// plain returns the lab's presets without those that have no route.
func plain() []string {
	var names []string
	for _, p := range lab.Presets() {
		if !strings.HasPrefix(p, noRoute) {
			names = append(names, p)
		}
	}
	return names
}

// profile returns the broker's profile of a preset.
func profile(t *testing.T, preset string, site overlay.SiteID, privileged bool) overlay.SiteProfile {
	t.Helper()
	p, err := lab.Profile(preset)
	if err != nil {
		t.Fatal(err)
	}
	p.Site, p.Privileged = site, privileged
	return p
}

// The broker's decision and the measurements agree: a plan contains nothing that was seen to fail,
// and omits nothing that was seen to work and that it needs.
func TestDecisionAgrees(t *testing.T) {
	const most = 30 // disagreements that are printed
	complaints := 0
	for _, privileged := range []bool{true, false} {
		for _, a := range lab.Presets() {
			for _, b := range lab.Presets() {
				known, plan := meet(t, a, b, privileged)
				for _, complaint := range disagreements(known, plan) {
					if complaints++; complaints <= most {
						t.Errorf("%s to %s, privileged %v: %s", a, b, privileged, complaint)
					}
				}
			}
		}
	}
	if complaints > most {
		t.Errorf("and %d more", complaints-most)
	}
}

// The same holds over IPv6, where no gateway translates.
func TestDecisionAgreesOverIPv6(t *testing.T) {
	six := func(preset string, site overlay.SiteID) overlay.SiteProfile {
		return grid.OverIPv6(profile(t, preset, site, true))
	}
	pairs := 0
	for _, a := range lab.Presets() {
		for _, b := range lab.Presets() {
			known, err := OverIPv6(a, b)
			if err != nil { // one of them has none
				continue
			}
			pairs++
			for _, complaint := range disagreements(known, decide.Decide(six(a, "sitea"), six(b, "siteb"), nil)) {
				t.Errorf("%s to %s: %s", a, b, complaint)
			}
		}
	}
	if want := 34 * 34; pairs != want {
		t.Errorf("%d pairs of presets have IPv6, want %d", pairs, want)
	}
}

// For IPv6 a preset is its filter.
func TestOverIPv6(t *testing.T) {
	for _, tc := range []struct {
		asker, target string
		works         Set
	}{
		{"nat-symmetric-ipv6", "no-route/nat-symmetric-ipv6", Of(overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching)},
		{"syn-drop", "syn-reset", Of(overlay.HolePunching)},
		{"syn-drop-no-udp", "syn-drop-no-udp", Of(overlay.Traversing)},
		{"egress-443", "stateful", Of(overlay.SimultaneousOpen)},
	} {
		if known, err := OverIPv6(tc.asker, tc.target); err != nil || known != (Pair{Works: tc.works}) {
			t.Errorf("%s to %s: %v, unsettled %v, %v; want %v", tc.asker, tc.target, known.Works, known.Unsettled, err, tc.works)
		}
	}
	for _, tc := range [][2]string{{"nat", "open"}, {"open", "no-route/nat-1to1"}, {"moat", "open"}} {
		if _, err := OverIPv6(tc[0], tc[1]); err == nil {
			t.Errorf("%s to %s passes", tc[0], tc[1])
		}
	}
}

// meet returns what is known of a pair, and what the broker decides for it.
func meet(t *testing.T, asker, target string, privileged bool) (Pair, overlay.Plan) {
	t.Helper()
	known := between(t, asker, target)
	if !privileged {
		known = known.Unprivileged()
	}
	return known, decide.Decide(profile(t, asker, "sitea", privileged), profile(t, target, "siteb", privileged), nil)
}

// For every technique there is a pair in the matrix that nothing else connects without a relay. An
// open target can be reached by more than a plain dial, but a plan does not need more.
func TestEachTechniqueAlone(t *testing.T) {
	for _, tc := range []struct {
		only          overlay.Technique
		asker, target string
		privileged    bool
		physics       bool // nothing else would work, either
	}{
		{overlay.Direct, "open", "open", true, false},
		{overlay.PortRange, "nat-symmetric", "port-range", true, true},
		{overlay.Reversed, "port-range", "nat-symmetric", true, true},
		{overlay.SimultaneousOpen, "no-udp", "stateful", false, true},
		{overlay.SimultaneousOpen, "egress-443", "egress-443", true, true},
		{overlay.Traversing, "syn-drop-no-udp", "syn-drop-no-udp", true, true},
		{overlay.HolePunching, "syn-drop", "syn-drop", false, true},
		{overlay.HolePunching, "nat-symmetric", "syn-drop", true, true},
	} {
		known, plan := meet(t, tc.asker, tc.target, tc.privileged)
		if tc.physics && known.Works != Of(tc.only) {
			t.Errorf("%s to %s: %v would work, want only %v", tc.asker, tc.target, known.Works, tc.only)
		}
		if !known.Works.Has(tc.only) {
			t.Errorf("%s to %s: %v would not work", tc.asker, tc.target, tc.only)
		}
		var steps Set
		for _, s := range plan.Steps {
			steps |= Of(s.Technique)
		}
		if want := Of(tc.only, overlay.Relay); steps != want {
			t.Errorf("%s to %s, privileged %v: the plan is %v, want %v", tc.asker, tc.target, tc.privileged, steps, want)
		}
	}
}

// disagreements compares a plan with what is known.
func disagreements(known Pair, plan overlay.Plan) []string {
	var planned Set
	for _, s := range plan.Steps {
		planned |= Of(s.Technique)
	}
	var complaints []string
	direct := planned.Without(overlay.Relay)
	if wrong := direct &^ (known.Works | known.Unsettled); wrong != 0 {
		complaints = append(complaints, "the plan has "+wrong.String()+", which cannot work")
	}
	const dials = 1<<overlay.Direct | 1<<overlay.PortRange | 1<<overlay.Reversed
	missing := known.Works &^ direct
	switch {
	case direct&dials&^Of(overlay.Reversed) != 0: // the plan needs no more than the asker's dial
		missing = 0
	case direct&dials != 0: // nor more than the target's
		missing &= dials &^ Of(overlay.Reversed)
	}
	if missing != 0 {
		complaints = append(complaints, "the plan lacks "+missing.String()+", which works")
	}
	return complaints
}
