package decide

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The oracle: two gateways as rules on single SYNs, and hosts that try to connect. It knows no
// technique's conditions, only the packets of each technique.

// syn is a connection attempt as seen by the two gateways on its path.
type syn struct {
	port     uint16 // destination
	viaProxy bool   // requested from the site's HTTP proxy by CONNECT
	tls      bool   // the data that follows begins as TLS
}

// leaves applies a site's egress rule.
func leaves(s overlay.SiteProfile, p syn) bool {
	switch s.Egress {
	case overlay.EgressAny:
		return !p.viaProxy // there is no proxy
	case overlay.Egress443:
		return !p.viaProxy && p.port == 443
	case overlay.EgressHTTPProxy:
		return p.viaProxy && p.port == 443
	case overlay.EgressTLS443:
		return !p.viaProxy && p.port == 443 && p.tls
	case overlay.EgressHTTPProxyTLS:
		return p.viaProxy && p.port == 443 && p.tls
	}
	return false
}

// enters applies a site's inbound rule.
func enters(s overlay.SiteProfile, p syn) bool {
	return s.Inbound == overlay.InboundOpen || s.Inbound == overlay.InboundPorts && s.Ports.Contains(p.port)
}

// listening returns the possible ports of a listener of the site: the kernel's choice, or any
// within the site's range.
func listening(s overlay.SiteProfile) iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		first, last := uint16(32768), uint16(32770)
		if s.Inbound == overlay.InboundPorts {
			first, last = s.Ports.First, s.Ports.Last
		}
		for p := first; p <= last; p++ {
			if !yield(p) {
				return
			}
		}
	}
}

// connects reports whether some SYN from one site reaches a listener of the other, and that
// listener understands the data that follows: helpers accept no TLS, proxies do.
func connects(from, to overlay.SiteProfile, understood ...bool) bool {
	for port := range listening(to) {
		for _, proxied := range []bool{false, true} {
			for _, tls := range understood {
				if p := (syn{port, proxied, tls}); leaves(from, p) && enters(to, p) {
					return true
				}
			}
		}
	}
	return false
}

// works lists the techniques that the packets permit.
func works(asker, target overlay.SiteProfile) map[overlay.Technique]bool {
	public := overlay.SiteProfile{Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: 443, Last: 443}}
	return map[overlay.Technique]bool{
		overlay.Direct:    connects(asker, target, false) && target.Inbound == overlay.InboundOpen,
		overlay.PortRange: connects(asker, target, false) && target.Inbound == overlay.InboundPorts,
		overlay.Reversed:  connects(target, asker, false),
		overlay.Relay:     connects(asker, public, false, true) && connects(target, public, false, true),
	}
}

// expected returns what works, without what is forbidden and what is pointless.
func expected(asker, target overlay.SiteProfile) []overlay.Technique {
	w := works(asker, target)
	for _, t := range slices.Concat(asker.Forbidden, target.Forbidden) {
		delete(w, t)
	}
	if w[overlay.Direct] || w[overlay.PortRange] {
		delete(w, overlay.Reversed)
	}
	var list []overlay.Technique
	for _, t := range overlay.Techniques() {
		if w[t] {
			list = append(list, t)
		}
	}
	return list
}

// profiles returns all combinations of the fields that the implemented techniques read.
func profiles() []overlay.SiteProfile {
	var all []overlay.SiteProfile
	for _, in := range []overlay.SiteProfile{
		{Inbound: overlay.InboundNone},
		{Inbound: overlay.InboundOpen},
		{Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: 20000, Last: 20003}},
		{Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: 443, Last: 443}},
		{Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: 440, Last: 445}},
		{Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: 444, Last: 446}},
	} {
		for egress := overlay.EgressAny; egress <= overlay.EgressHTTPProxyTLS; egress++ {
			for _, nat := range []overlay.NATBehaviour{overlay.NATNone, overlay.AddressAndPortDependent} {
				for _, hidden := range []bool{false, true} {
					for _, forbidden := range [][]overlay.Technique{nil, {overlay.Direct}, {overlay.PortRange}, {overlay.Reversed}, {overlay.Relay}} {
						p := in
						p.Egress, p.GatewayOnly, p.Forbidden = egress, hidden, forbidden
						p.NAT = overlay.NAT{Mapping: nat, Filtering: nat}
						all = append(all, p)
					}
				}
			}
		}
	}
	return all
}

func TestDecideAgainstPackets(t *testing.T) {
	all := profiles()
	rng := rand.New(rand.NewPCG(1, 0))
	for _, a := range all {
		a.Site = "sitea"
		for _, b := range all {
			if !testload.Full() && rng.IntN(20) > 0 {
				continue
			}
			b.Site = "siteb"
			checkPlan(t, a, b)
			if t.Failed() {
				return
			}
		}
	}
}

// Fields that only the techniques of two ends read must not change a step of the others, nor a
// technique's place.
func TestDecideIgnoresTheRest(t *testing.T) {
	base := profiles()
	seed, pairs := uint64(1), 5_000
	if testload.Full() {
		seed, pairs = rand.Uint64(), 100_000
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	for range pairs {
		a, b := scramble(rng, base[rng.IntN(len(base))]), scramble(rng, base[rng.IntN(len(base))])
		a.Site, b.Site = "sitea", "siteb"
		checkPlan(t, a, b)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func scramble(rng *rand.Rand, p overlay.SiteProfile) overlay.SiteProfile {
	p.Filter = overlay.Filter(rng.IntN(4))
	p.Refusal = overlay.Refusal(rng.IntN(2))
	p.UDP, p.Privileged = rng.IntN(2) == 0, rng.IntN(2) == 0
	if p.NAT.Translates() {
		p.NAT = overlay.NAT{Mapping: overlay.NATBehaviour(1 + rng.IntN(3)), Filtering: overlay.NATBehaviour(1 + rng.IntN(3)), KeepsPort: rng.IntN(2) == 0}
	}
	p.Forbidden = nil
	for _, t := range overlay.Techniques() {
		if rng.IntN(8) == 0 {
			p.Forbidden = append(p.Forbidden, t)
		}
	}
	return p
}

func checkPlan(t *testing.T, a, b overlay.SiteProfile) {
	t.Helper()
	plan := Decide(a, b, nil)
	fail := func(format string, args ...any) {
		t.Errorf("%s\nasker  %+v\ntarget %+v\nplan   %+v", fmt.Sprintf(format, args...), a, b, plan)
	}
	seen := map[overlay.Technique]int{}
	var steps []overlay.Technique
	var via overlay.Via
	if a.GatewayOnly {
		via |= overlay.ViaAsker
	}
	if b.GatewayOnly {
		via |= overlay.ViaTarget
	}
	for _, s := range plan.Steps {
		seen[s.Technique]++
		if s.Technique.Kind().Negotiated() {
			if slices.Contains(steps, overlay.Direct) || slices.Contains(steps, overlay.PortRange) || slices.Contains(steps, overlay.Reversed) {
				fail("%v though one end can dial the other", s.Technique)
			}
			if slices.Contains(a.Forbidden, s.Technique) || slices.Contains(b.Forbidden, s.Technique) {
				fail("%v is forbidden", s.Technique)
			}
			continue // TestPhysicsTable covers these
		}
		steps = append(steps, s.Technique)
		if s.Reason == "" || s.Via != via {
			fail("step %v: reason %q, via %v, want %v", s.Technique, s.Reason, s.Via, via)
		}
	}
	for _, r := range plan.Rejected {
		seen[r.Technique]++
		named := strings.Contains(r.Reason, string(a.Site)) || strings.Contains(r.Reason, string(b.Site))
		if !named {
			fail("the reason against %v names no site: %q", r.Technique, r.Reason)
		}
	}
	for _, tech := range overlay.Techniques() {
		if seen[tech] != 1 {
			fail("%v appears %d times", tech, seen[tech])
		}
	}
	if want := expected(a, b); !slices.Equal(steps, want) {
		fail("steps %v, the packets say %v", steps, want)
	}
}

func TestDecideSameSite(t *testing.T) {
	const viaBoth = overlay.ViaAsker | overlay.ViaTarget
	for name, tc := range map[string]struct {
		profile overlay.SiteProfile
		want    []overlay.Step
	}{
		"any":           {overlay.SiteProfile{}, []overlay.Step{{Technique: overlay.Direct}, {Technique: overlay.Reversed}, {Technique: overlay.Relay}}},
		"no route":      {overlay.SiteProfile{GatewayOnly: true}, []overlay.Step{{Technique: overlay.Direct}, {Technique: overlay.Reversed}, {Technique: overlay.Relay, Via: viaBoth}}},
		"no egress":     {overlay.SiteProfile{Egress: overlay.EgressNone}, []overlay.Step{{Technique: overlay.Direct}, {Technique: overlay.Reversed}}},
		"all forbidden": {overlay.SiteProfile{Forbidden: overlay.Techniques()}, []overlay.Step{{Technique: overlay.Direct}, {Technique: overlay.Reversed}}},
	} {
		tc.profile.Site = "sitea"
		plan := Decide(tc.profile, tc.profile, nil)
		for i := range plan.Steps {
			if plan.Steps[i].Reason == "" {
				t.Errorf("%s: %v without a reason", name, plan.Steps[i].Technique)
			}
			plan.Steps[i].Reason = ""
		}
		if !slices.Equal(plan.Steps, tc.want) {
			t.Errorf("%s: steps %v, want %v", name, plan.Steps, tc.want)
		}
		if n := len(plan.Steps) + len(plan.Rejected); n != len(overlay.Techniques()) {
			t.Errorf("%s: %d techniques", name, n)
		}
	}
}

// preset returns the profile of one of the lab's presets.
func preset(t testing.TB, name string, site overlay.SiteID) overlay.SiteProfile {
	t.Helper()
	p, err := lab.Profile(name)
	if err != nil {
		t.Fatal(err)
	}
	p.Site = site
	return p
}

// The table of plans for common kinds of site, with every reason. Review its diff when a decision
// changes.
func TestPlanTable(t *testing.T) {
	kinds := []string{"open", "port-range", "stateful", "nat", "egress-443", "http-proxy", "no-route/stateful", "no-route/egress-443"}
	var b strings.Builder
	for _, asker := range kinds {
		for _, target := range kinds {
			plan := Decide(preset(t, asker, "sitea"), preset(t, target, "siteb"), nil)
			fmt.Fprintf(&b, "%s -> %s\n", asker, target)
			for i, s := range plan.Steps {
				via := ""
				if s.Via != 0 {
					via = " [via " + s.Via.String() + "]"
				}
				fmt.Fprintf(&b, "  %d %-17s  %s%s\n", i+1, s.Technique, s.Reason, via)
			}
			for _, r := range plan.Rejected {
				fmt.Fprintf(&b, "  - %-17s  %s\n", r.Technique, r.Reason)
			}
			b.WriteString("\n")
		}
	}
	testkit.Golden(t, "testdata/plans.txt", b.String())
}

// What is physically possible for the techniques of two ends, over every kind of gateway, whether
// or not a simpler one would be taken. The first two tables agree with the measured ones for
// simultaneous open and UDP; '.' is possible, 'x' is not.
func TestPhysicsTable(t *testing.T) {
	var kinds []string
	for _, k := range lab.Presets() {
		if !strings.HasPrefix(k, "no-route/") {
			kinds = append(kinds, k)
		}
	}
	var b strings.Builder
	for _, tech := range []overlay.Technique{overlay.SimultaneousOpen, overlay.HolePunching, overlay.Traversing} {
		fmt.Fprintf(&b, "%s (rows ask; columns in the same order)\n", tech)
		for _, asker := range kinds {
			fmt.Fprintf(&b, "  %-20s", asker)
			for _, target := range kinds {
				p := pair{asker: preset(t, asker, "sitea"), target: preset(t, target, "siteb")}
				mark := " x"
				if v := p.judge(tech); v.take {
					mark = " ."
				}
				b.WriteString(mark)
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	testkit.Golden(t, "testdata/physics.txt", b.String())
}

// Without connectivity over IPv4, sites meet at a proxy, or over IPv6 where both have it; gateways
// as well as nodes. The inbound rules of a site with only IPv6 apply to IPv6.
func TestDecideIPv6Only(t *testing.T) {
	with := func(p overlay.SiteProfile, site overlay.SiteID, change func(*overlay.SiteProfile)) overlay.SiteProfile {
		p.Site = site
		change(&p)
		return p
	}
	four := overlay.SiteProfile{Site: "four", Filter: overlay.FilterStateful, UDP: true, Inbound: overlay.InboundOpen}
	both := with(four, "both", func(p *overlay.SiteProfile) { p.IPv6 = true })
	six := with(four, "six", func(p *overlay.SiteProfile) {
		p.IPv6, p.IPv6Only, p.Inbound, p.UDP = true, true, overlay.InboundNone, false
	})
	open := with(six, "open", func(p *overlay.SiteProfile) { p.Inbound = overlay.InboundOpen })
	hidden := with(six, "hidden", func(p *overlay.SiteProfile) { p.GatewayOnly = true })
	web := with(both, "web", func(p *overlay.SiteProfile) { p.Egress = overlay.Egress443 })
	nptv6 := with(six, "nptv6", func(p *overlay.SiteProfile) { p.IPv6 = false })
	raw := with(six, "raw", func(p *overlay.SiteProfile) { p.Privileged = true })
	rawBoth := with(both, "rawboth", func(p *overlay.SiteProfile) {
		p.Privileged, p.Inbound = true, overlay.InboundNone
		p.NAT = overlay.NAT{Mapping: overlay.AddressAndPortDependent, Filtering: overlay.AddressAndPortDependent}
	})
	rawDrop := with(raw, "rawdrop", func(p *overlay.SiteProfile) { p.Filter = overlay.FilterStateless })
	drop := with(six, "drop", func(p *overlay.SiteProfile) { p.Filter = overlay.FilterStateless })
	for _, tc := range []struct {
		a, b overlay.SiteProfile
		want string
		says string // reason against simultaneous open, if that is left out
	}{
		{six, four, "relay", "six has nothing but IPv6, and four none of it"},
		{four, six, "relay", "six has nothing but IPv6, and four none of it"},
		{six, both, "simultaneous-open/6 relay", ""},
		{both, six, "simultaneous-open/6 relay", ""},
		{six, with(six, "six2", func(*overlay.SiteProfile) {}), "simultaneous-open/6 relay", ""},
		{both, four, "direct relay", "need no more than one of them to dial"},
		{hidden, four, "relay", "hidden has nothing but IPv6, and four none of it"},
		{hidden, both, "simultaneous-open/6 relay", ""},
		{six, hidden, "simultaneous-open/6 relay", ""},
		{hidden, with(hidden, "hidden2", func(*overlay.SiteProfile) {}), "simultaneous-open/6 relay", ""},
		{six, web, "relay", "web lets only port 443 out, and what it lets out over IPv6 is not known"},
		{six, nptv6, "relay", "the IPv6 addresses of nptv6 are translated"},
		{drop, with(drop, "drop2", func(*overlay.SiteProfile) {}), "relay", "both refuse every SYN"},
		{raw, with(raw, "raw2", func(*overlay.SiteProfile) {}), "simultaneous-open/6 traversing/6 relay", ""},
		{raw, six, "simultaneous-open/6 relay", ""},
		{raw, rawBoth, "simultaneous-open/6 traversing/6 relay", ""},
		{rawBoth, with(rawBoth, "rawboth2", func(p *overlay.SiteProfile) { p.UDP = false }), "simultaneous-open/6 traversing/6 relay", ""},
		{rawDrop, with(rawDrop, "rawdrop2", func(*overlay.SiteProfile) {}), "traversing/6 relay", "both refuse every SYN"},
		{raw, with(hidden, "rawhidden", func(p *overlay.SiteProfile) { p.Privileged = true }), "simultaneous-open/6 traversing/6 relay", ""},
		{raw, web, "relay", "web lets only port 443 out, and what it lets out over IPv6 is not known"},
		{both, open, "direct relay", "need no more than one of them to dial"},
		{hidden, open, "direct relay", "need no more than one of them to dial"},
		{open, both, "reversed relay", "need no more than one of them to dial"},
		{four, open, "relay", "open has nothing but IPv6, and four none of it"},
	} {
		plan := Decide(tc.a, tc.b, nil)
		var got []string
		for _, s := range plan.Steps {
			name := s.Technique.String()
			if s.IPv6 {
				name += "/6"
			}
			got = append(got, name)
			if gateways := tc.a.GatewayOnly || tc.b.GatewayOnly; gateways != (s.Via != 0) {
				t.Errorf("%s to %s: %v is via %v", tc.a.Site, tc.b.Site, s.Technique, s.Via)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s to %s: %q, want %q", tc.a.Site, tc.b.Site, got, tc.want)
		}
		for _, r := range plan.Rejected {
			if r.Technique == overlay.SimultaneousOpen && !strings.Contains(r.Reason, tc.says) {
				t.Errorf("%s to %s: %q, want %q", tc.a.Site, tc.b.Site, r.Reason, tc.says)
			}
		}
	}
}

// A NAT may treat TCP and UDP differently, and each technique depends on the treatment of its
// protocol.
func TestDecideByProtocol(t *testing.T) {
	cone := overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressAndPortDependent, KeepsPort: true}
	dependent := overlay.NAT{Mapping: overlay.AddressAndPortDependent, Filtering: overlay.AddressAndPortDependent}
	site := func(name overlay.SiteID, tcp, udp overlay.NAT) overlay.SiteProfile {
		return overlay.SiteProfile{Site: name, Filter: overlay.FilterStateful, UDP: true, NAT: tcp, NATUDP: udp}
	}
	for _, tc := range []struct {
		name     string
		tcp, udp overlay.NAT
		want     string
	}{
		{"alike", cone, overlay.NAT{}, "simultaneous-open hole-punching relay"},
		{"TCP symmetric", dependent, cone, "hole-punching relay"},
		{"UDP symmetric", cone, dependent, "simultaneous-open relay"},
		{"both symmetric", dependent, overlay.NAT{}, "relay"},
	} {
		var got []string
		for _, s := range Decide(site("sitea", tc.tcp, tc.udp), site("siteb", tc.tcp, tc.udp), nil).Steps {
			got = append(got, s.Technique.String())
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	a, t := preset(b, "no-route/egress-443", "sitea"), preset(b, "stateful", "siteb")
	for b.Loop() {
		Decide(a, t, nil)
	}
}

// A SYN passes where only port 443 is let out if the end that it is sent to has bound its port 443.
func TestPort443NeedsTheRight(t *testing.T) {
	site := func(name overlay.SiteID, egress overlay.Egress, highPortsOnly, gateway bool) overlay.SiteProfile {
		return overlay.SiteProfile{Site: name, Filter: overlay.FilterStateful, Egress: egress, HighPortsOnly: highPortsOnly, GatewayOnly: gateway}
	}
	for _, tc := range []struct {
		asker, target overlay.SiteProfile
		says          string // empty: simultaneous open is taken
	}{
		{site("web", overlay.Egress443, false, false), site("b", overlay.EgressAny, false, false), ""},
		{site("web", overlay.Egress443, true, false), site("b", overlay.EgressAny, false, false), ""},
		{site("web", overlay.Egress443, false, false), site("b", overlay.EgressAny, true, false), "web lets only port 443 out, and the helper of b may not bind"},
		{site("b", overlay.EgressAny, true, true), site("web", overlay.Egress443, false, false), "the gateway of b may not bind"},
		{site("web", overlay.Egress443, false, false), site("web2", overlay.Egress443, true, false), "the helper of web2 may not bind"},
		{site("a", overlay.EgressAny, true, false), site("b", overlay.EgressAny, true, false), ""},
	} {
		v := pair{asker: tc.asker, target: tc.target}.simultaneousOpen()
		if v.take != (tc.says == "") || !strings.Contains(v.reason, tc.says) {
			t.Errorf("%s to %s: %v, %q, want %q", tc.asker.Site, tc.target.Site, v.take, v.reason, tc.says)
		}
	}
}

// A technique of one more row is taken at its place; without one it is left out.
func TestAddedTechnique(t *testing.T) {
	const added overlay.Technique = 20
	defer overlay.Register(added, "test", overlay.AskerDials, 25)()
	a, b := preset(t, "open", "sitea"), preset(t, "open", "siteb")
	if plan := Decide(a, b, nil); !slices.ContainsFunc(plan.Rejected, func(r overlay.Rejection) bool { return r.Technique == added && r.Reason == "not known to this broker" }) {
		t.Errorf("without a row: %+v", plan)
	}
	judges[added] = func(p pair) verdict { return take("%s has it", p.target.Site) }
	defer delete(judges, added)
	plan := Decide(a, b, nil)
	i := slices.IndexFunc(plan.Steps, func(s overlay.Step) bool { return s.Technique == added })
	if i < 1 || plan.Steps[i-1].Technique != overlay.Direct || plan.Steps[i].Reason != "siteb has it" || i+1 == len(plan.Steps) || plan.Steps[i+1].Technique <= overlay.PortRange {
		t.Errorf("with one: %+v", plan.Steps)
	}
	a.Forbidden = []overlay.Technique{added}
	if plan := Decide(a, b, nil); slices.ContainsFunc(plan.Steps, func(s overlay.Step) bool { return s.Technique == added }) {
		t.Errorf("forbidden: %+v", plan.Steps)
	}
}

// Where the NAT before a site is full only relays are tried, unless none is possible.
func TestFullNAT(t *testing.T) {
	open := overlay.SiteProfile{Site: "open", Inbound: overlay.InboundOpen, UDP: true}
	full := overlay.SiteProfile{
		Site: "full", Filter: overlay.FilterStateful, UDP: true, Sessions: 60,
		NAT: overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressDependent},
	}
	for _, pair := range [][2]overlay.SiteProfile{{full, open}, {open, full}, {full, full}} {
		if pair[0].Site == pair[1].Site {
			pair[1].Site = "other"
		}
		plan := Decide(pair[0], pair[1], nil)
		if len(plan.Steps) != 1 || plan.Steps[0].Technique != overlay.Relay {
			t.Errorf("%s to %s: %+v", pair[0].Site, pair[1].Site, plan.Steps)
		}
		if why := plan.Rejected[0].Reason; !strings.Contains(why, "lets no new connections through beyond about 60 of a node") || strings.Contains(why, "gateway_only") {
			t.Errorf("%s to %s: %s", pair[0].Site, pair[1].Site, why)
		}
	}
	few := full
	few.Sessions = overlay.FewSessions
	if why := Decide(few, open, nil).Rejected[0].Reason; !strings.Contains(why, "about 2 of a node") || !strings.Contains(why, "with gateway_only its gateway shares for all") {
		t.Errorf("with room for two: %s", why)
	}
	few.GatewayOnly = true
	if why := Decide(few, open, nil).Rejected[0].Reason; strings.Contains(why, "gateway_only") {
		t.Errorf("with room for two of its gateway: %s", why)
	}
	if plan := Decide(full, full, nil); plan.Steps[0].Technique != overlay.Direct {
		t.Errorf("within the site: %+v", plan.Steps)
	}
	full.Forbidden = []overlay.Technique{overlay.Relay}
	if plan := Decide(full, open, nil); len(plan.Steps) == 0 {
		t.Error("no relay is possible, and nothing else is tried")
	}
}
