package decide

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The oracle for two versions of IP: what a site is over one of them. It knows no technique's
// conditions, only which packets pass.
type face struct {
	exists    bool // the site has the version, and addresses in it that others can send to
	open      bool // a SYN from outside reaches a listener that is known outside
	lets      bool // SYNs leave for any port
	datagrams bool // datagrams leave, and answers come in
	changing  bool // a NAT gives each destination another port
}

func overFour(s overlay.SiteProfile) face {
	return face{
		exists: !s.IPv6Only, open: s.Inbound == overlay.InboundOpen, lets: s.Egress == overlay.EgressAny, datagrams: s.UDP,
		changing: s.NAT.Mapping == overlay.AddressAndPortDependent,
	}
}

func overSix(s overlay.SiteProfile) face {
	switch {
	case s.IPv6Only:
		return face{exists: s.IPv6, open: s.Inbound == overlay.InboundOpen, lets: s.Egress == overlay.EgressAny, datagrams: s.UDP}
	case s.IPv6Rules.Measured:
		return face{
			exists: s.IPv6, lets: s.IPv6Rules.Egress == overlay.EgressAny, datagrams: s.IPv6Rules.UDP,
			open: s.IPv6Rules.Inbound == overlay.InboundOpen && len(s.Networks) > 0 && !s.GatewayOnly,
		}
	}
	return face{exists: s.IPv6 && s.Egress == overlay.EgressAny, lets: s.Egress == overlay.EgressAny}
}

// dialled, opened and punched report whether a connection of each kind is possible over one version
// of IP; both firewalls track connections.
func dialled(from, to face) bool { return from.exists && to.exists && from.lets && to.open }
func opened(a, b face) bool {
	return a.exists && b.exists && a.lets && b.lets && (!a.changing || b.open) && (!b.changing || a.open)
}
func punched(a, b face) bool {
	return a.exists && b.exists && a.datagrams && b.datagrams && (!a.changing || b.open) && (!b.changing || a.open)
}

// bothVersions returns sites with all combinations of what the decision about the version of IP
// depends on.
func bothVersions() (all []overlay.SiteProfile) {
	symmetric := overlay.NAT{Mapping: overlay.AddressAndPortDependent, Filtering: overlay.AddressAndPortDependent}
	four := []overlay.SiteProfile{
		{UDP: true}, {UDP: true, Inbound: overlay.InboundOpen}, {UDP: true, NAT: symmetric}, {Egress: overlay.EgressNone},
	}
	var six []overlay.IPv6Rules
	for _, in := range []overlay.Inbound{overlay.InboundNone, overlay.InboundOpen} {
		for _, out := range []overlay.Egress{overlay.EgressAny, overlay.EgressNone} {
			for _, udp := range []bool{false, true} {
				six = append(six, overlay.IPv6Rules{Measured: true, Filter: overlay.FilterStateful, Inbound: in, Egress: out, UDP: udp})
			}
		}
	}
	networks := []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/64")}
	for _, p := range four {
		p.Filter = overlay.FilterStateful
		all = append(all, p)
		p.IPv6 = true
		all = append(all, p)
		if !p.NAT.Translates() {
			p.IPv6Only = true
			all = append(all, p)
			p.IPv6Only = false
		}
		for _, p.IPv6Rules = range six {
			p.Networks = nil
			all = append(all, p)
			p.Networks = networks
			all = append(all, p)
		}
	}
	for _, p := range slices.Clone(all) {
		p.GatewayOnly = true
		all = append(all, p)
	}
	return all
}

// TestDecideBothVersions: a technique is taken exactly where one version of IP lets it through, and
// over IPv6 only where IPv4 does not.
func TestDecideBothVersions(t *testing.T) {
	all := bothVersions()
	for _, a := range all {
		a.Site = "sitea"
		for _, b := range all {
			b.Site = "siteb"
			plan := Decide(a, b, nil)
			type way struct{ four, six bool }
			direct := way{dialled(overFour(a), overFour(b)), dialled(overSix(a), overSix(b))}
			back := way{dialled(overFour(b), overFour(a)), dialled(overSix(b), overSix(a))}
			if a.IPv6Only || b.IPv6Only { // a listener of such a site is reached even if translated, and needs no flag
				direct.four, back.four = direct.six && b.IPv6Only, back.six && a.IPv6Only
			}
			none := way{}
			want := map[overlay.Technique]way{overlay.Direct: direct}
			if direct == none {
				want[overlay.Reversed] = back
			}
			if direct == none && back == none {
				want[overlay.SimultaneousOpen] = way{opened(overFour(a), overFour(b)), opened(overSix(a), overSix(b))}
				want[overlay.HolePunching] = way{punched(overFour(a), overFour(b)), punched(overSix(a), overSix(b))}
			}
			for tech := range judges {
				if tech == overlay.Relay {
					continue
				}
				w, i := want[tech], slices.IndexFunc(plan.Steps, func(s overlay.Step) bool { return s.Technique == tech })
				if (i >= 0) != (w != none) {
					t.Fatalf("%v: taken is %v, the packets say %+v\nasker  %+v\ntarget %+v\nplan   %+v", tech, i >= 0, w, a, b, plan)
				}
				if i < 0 {
					continue
				}
				step := plan.Steps[i]
				if step.IPv6 == w.four || strings.HasPrefix(step.Reason, "over IPv6: ") != (step.IPv6 || a.IPv6Only || b.IPv6Only) {
					t.Fatalf("%v: over IPv6 is %v (%s), the packets say %+v\nasker  %+v\ntarget %+v", tech, step.IPv6, step.Reason, w, a, b)
				}
			}
		}
	}
}

// Where only a setting is missing for a direct dial over IPv6, the reason names it. An older
// profile, without rules for IPv6, gets the plan that it always got.
func TestDecideIPv6Reasons(t *testing.T) {
	open := overlay.SiteProfile{Site: "sitea", Filter: overlay.FilterStateful, IPv6: true, IPv6Rules: overlay.IPv6Rules{Measured: true, Inbound: overlay.InboundOpen, UDP: true}}
	hidden, other := open, open
	hidden.GatewayOnly, other.Site, other.IPv6Rules.Inbound = true, "siteb", overlay.InboundNone
	old := overlay.SiteProfile{Site: "sitec", Filter: overlay.FilterStateful, IPv6: true, UDP: true}
	for _, tc := range []struct {
		asker, target overlay.SiteProfile
		against       overlay.Technique
		want          string
	}{
		{other, open, overlay.Direct, "sitea lets no connection in; sitea lets every connection in over IPv6, but its profile.networks declares no network of IPv6"},
		{other, hidden, overlay.Direct, "sitea lets no connection in; the gateway of sitea listens on one address, of IPv4"},
		{open, old, overlay.HolePunching, "sitea lets no UDP through"},
		{old, open, overlay.Direct, "sitea lets no connection in; sitea lets"},
	} {
		got := ""
		for _, r := range Decide(tc.asker, tc.target, nil).Rejected {
			if r.Technique == tc.against {
				got = r.Reason
			}
		}
		if !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s to %s, against %v: %q, want %q", tc.asker.Site, tc.target.Site, tc.against, got, tc.want)
		}
	}
}
