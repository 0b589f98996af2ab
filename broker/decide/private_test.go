package decide

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
)

// has returns why a plan takes a technique, or why not.
func has(p overlay.Plan, t overlay.Technique) (reason string, taken bool) {
	for _, s := range p.Steps {
		if s.Technique == t {
			return s.Reason, true
		}
	}
	for _, r := range p.Rejected {
		if r.Technique == t {
			return r.Reason, false
		}
	}
	return "", false
}

// TestDecidePrivateAddresses: where one site looks for none of another at the private address at which that is seen,
// only the techniques are planned that do not need it.
func TestDecidePrivateAddresses(t *testing.T) {
	lan, other := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("192.168.0.0/16")
	public := netip.MustParsePrefix("192.0.2.0/24")
	nat := overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressAndPortDependent, KeepsPort: true}
	closed := overlay.SiteProfile{Filter: overlay.FilterStateful, UDP: true, Privileged: true, PrivateGiven: true}
	open := overlay.SiteProfile{Inbound: overlay.InboundOpen, UDP: true, Privileged: true, PrivateGiven: true}
	at := func(p overlay.SiteProfile, ip string, private ...netip.Prefix) overlay.SiteProfile {
		if ip != "" {
			p.SeenAt = netip.MustParseAddr(ip)
		}
		p.Private = private
		return p
	}
	in := func(p overlay.SiteProfile, n netip.Prefix) overlay.SiteProfile {
		p.Networks = []netip.Prefix{n}
		return p
	}
	translated, unknown, six := closed, closed, closed
	translated.NAT = nat
	unknown.PrivateGiven = false
	six.IPv6, six.IPv6Rules = true, overlay.IPv6Rules{Measured: true, Filter: overlay.FilterStateful, UDP: true}
	both := []overlay.Technique{overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching}
	for name, tc := range map[string]struct {
		asker, target overlay.SiteProfile
		without, with []overlay.Technique
	}{
		"both public":                   {at(closed, ""), at(closed, ""), nil, both},
		"the target private":            {at(closed, ""), at(closed, "10.1.0.5"), both, nil},
		"the asker private":             {at(closed, "10.1.0.5"), at(closed, ""), both, nil},
		"private behind its NAT":        {at(closed, ""), at(translated, "100.64.0.9"), both, nil},
		"looked for there":              {at(closed, "", lan), at(closed, "10.1.0.5"), nil, both},
		"looked for elsewhere":          {at(closed, "", other), at(closed, "10.1.0.5"), both, nil},
		"of two networks":               {at(closed, "192.168.1.1", lan), at(closed, "10.1.0.5", other), nil, both},
		"of two networks, one way only": {at(closed, "192.168.1.1", lan), at(closed, "10.1.0.5"), both, nil},
		"it is not known where":         {at(unknown, ""), at(closed, "10.1.0.5"), nil, both},
		"over IPv6":                     {at(six, ""), at(six, "10.1.0.5"), nil, both},
		"a listener":                    {at(closed, ""), at(open, "10.1.0.5"), append([]overlay.Technique{overlay.Direct}, both...), nil},
		"a listener, looked for":        {at(closed, "", lan), at(open, "10.1.0.5"), nil, []overlay.Technique{overlay.Direct}},
		"a listener, public elsewhere":  {at(closed, ""), in(at(open, "10.1.0.5"), public), nil, []overlay.Technique{overlay.Direct}},
		"a listener, declared private":  {at(closed, ""), in(at(open, "10.1.0.5"), lan), []overlay.Technique{overlay.Direct}, nil},
		"dialled back":                  {at(open, "10.1.0.5"), at(closed, ""), append([]overlay.Technique{overlay.Reversed}, both...), nil},
	} {
		tc.asker.Site, tc.target.Site = "sitea", "siteb"
		plan := Decide(tc.asker, tc.target, nil)
		for _, tech := range tc.without {
			if why, taken := has(plan, tech); taken || !strings.Contains(why, "private") {
				t.Errorf("%s: %v is taken: %t (%s)", name, tech, taken, why)
			}
		}
		for _, tech := range append(slices.Clone(tc.with), overlay.Relay) {
			if why, taken := has(plan, tech); !taken {
				t.Errorf("%s: %v is left out: %s", name, tech, why)
			}
		}
	}
	one := at(closed, "10.1.0.5")
	one.Site = "sitea"
	if why, taken := has(Decide(one, one, nil), overlay.Direct); !taken {
		t.Errorf("within a site: %s", why)
	}
}

// TestDecideBehindOneNAT: of two sites behind one NAT hole punching is planned, which says what is not known, and dials to
// addresses inside where others look for them.
func TestDecideBehindOneNAT(t *testing.T) {
	lanA, lanB := netip.MustParsePrefix("192.168.1.0/24"), netip.MustParsePrefix("192.168.2.0/24")
	nat := overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressAndPortDependent, KeepsPort: true}
	site := func(id overlay.SiteID, seen string, private ...netip.Prefix) overlay.SiteProfile {
		return overlay.SiteProfile{Site: id, Filter: overlay.FilterStateful, UDP: true, Privileged: true, NAT: nat,
			SeenAt: netip.MustParseAddr(seen), Private: private, PrivateGiven: true}
	}
	change := func(p overlay.SiteProfile, how func(*overlay.SiteProfile)) overlay.SiteProfile {
		how(&p)
		return p
	}
	a, b := site("sitea", "198.51.100.7"), site("siteb", "198.51.100.7")
	seeksB, seeksA := site("sitea", "198.51.100.7", lanB), site("siteb", "198.51.100.7", lanA)
	opened := change(b, func(p *overlay.SiteProfile) { p.Inbound, p.Networks = overlay.InboundOpen, []netip.Prefix{lanB} })
	forwarded := change(b, func(p *overlay.SiteProfile) {
		p.Inbound, p.Networks = overlay.InboundOpen, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	behind := func(p overlay.SiteProfile) overlay.SiteProfile { // at a private address of the NAT
		return change(p, func(p *overlay.SiteProfile) { p.SeenAt = netip.MustParseAddr("100.64.0.7") })
	}
	unmeasured := change(b, func(p *overlay.SiteProfile) { p.SeenAt = netip.Addr{} })
	six := func(p overlay.SiteProfile) overlay.SiteProfile {
		p.IPv6, p.IPv6Rules = true, overlay.IPv6Rules{Measured: true, Filter: overlay.FilterStateful, UDP: true}
		return p
	}
	const works, hairpins = "open the way for the other's", "one NAT is before sitea and siteb, which others see at 198.51.100.7: datagrams pass only if it leads back inside (hairpinning), which is not measured, or if each"
	const dial, back, open, traverse, punch = overlay.Direct, overlay.Reversed, overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching
	for name, tc := range map[string]struct {
		asker, target overlay.SiteProfile
		with          []overlay.Technique
		says          string // of hole punching
	}{
		"two NATs":                         {a, site("siteb", "198.51.100.8"), []overlay.Technique{open, traverse, punch}, works},
		"it is not known whether one":      {a, unmeasured, []overlay.Technique{open, traverse, punch}, works},
		"one NAT":                          {a, b, []overlay.Technique{punch}, hairpins},
		"each looks for the other":         {seeksB, seeksA, []overlay.Technique{punch}, hairpins},
		"each in the other's networks":     {change(seeksB, func(p *overlay.SiteProfile) { p.Networks = []netip.Prefix{lanA} }), change(seeksA, func(p *overlay.SiteProfile) { p.Networks = []netip.Prefix{lanB} }), []overlay.Technique{punch}, hairpins},
		"at a private address":             {behind(a), behind(b), nil, "others see siteb at 100.64.0.7, a private address"},
		"there, and one looks for another": {behind(seeksB), behind(b), nil, "others see sitea at 100.64.0.7, a private address"},
		"there, and each looks":            {behind(seeksB), behind(seeksA), []overlay.Technique{punch}, "which is not measured"},
		"dialled inside":                   {seeksB, opened, []overlay.Technique{dial}, "need no more than one"},
		"dialled inside, and not looked":   {a, opened, []overlay.Technique{punch}, hairpins},
		"dialled at the NAT":               {seeksB, forwarded, []overlay.Technique{punch}, hairpins},
		"dialled back":                     {opened, seeksB, []overlay.Technique{back}, "need no more than one"},
		"over IPv6":                        {six(a), six(b), []overlay.Technique{open, traverse, punch}, "over IPv6: datagrams leave"},
		"IPv6 at one of them":              {six(a), b, []overlay.Technique{punch}, hairpins},
		"one of them is the NAT's gateway": {a, change(b, func(p *overlay.SiteProfile) { p.NAT = overlay.NAT{} }), []overlay.Technique{open, traverse, punch}, works},
	} {
		plan := Decide(tc.asker, tc.target, nil)
		var got []overlay.Technique
		for _, s := range plan.Steps {
			got = append(got, s.Technique)
		}
		if want := append(tc.with, overlay.Relay); !slices.Equal(got, want) {
			t.Errorf("%s: planned %v, want %v\n%+v", name, got, want, plan.Rejected)
		}
		if why, _ := has(plan, punch); !strings.Contains(why, tc.says) {
			t.Errorf("%s: %s", name, why)
		}
	}
	if why, _ := has(Decide(a, b, nil), open); !strings.Contains(why, "one NAT is before sitea and siteb, which others see at 198.51.100.7") {
		t.Error(why)
	}
}

// TestDecideLowPorts: a port that a site's helpers may not bind is dialled by nobody.
func TestDecideLowPorts(t *testing.T) {
	for name, tc := range map[string]struct {
		first, last uint16
		egress      overlay.Egress
		high        bool
		gateway     bool
		want        bool
	}{
		"may bind":                      {440, 445, overlay.Egress443, false, false, true},
		"may not bind 443":              {440, 445, overlay.Egress443, true, false, false},
		"others of the range":           {440, 445, overlay.EgressAny, true, false, true},
		"none of the range":             {440, 443, overlay.EgressAny, true, false, false},
		"what a gateway listens on is":  {443, 443, overlay.Egress443, true, true, true},
		"a range that has no such port": {20000, 20001, overlay.EgressAny, true, false, true},
	} {
		a := overlay.SiteProfile{Site: "sitea", Egress: tc.egress}
		b := overlay.SiteProfile{Site: "siteb", Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: tc.first, Last: tc.last}, HighPortsOnly: tc.high, GatewayOnly: tc.gateway}
		if why, taken := has(Decide(a, b, nil), overlay.PortRange); taken != tc.want {
			t.Errorf("%s: taken: %t (%s)", name, taken, why)
		}
	}
}

// TestDecideSmallMTU: the datagrams of QUIC do not pass everywhere.
func TestDecideSmallMTU(t *testing.T) {
	for mtu, want := range map[uint16]bool{0: true, 576: false, 1227: false, 1228: true, 1400: true} {
		a := overlay.SiteProfile{Site: "sitea", Filter: overlay.FilterStateful, UDP: true, MTU: mtu}
		b := overlay.SiteProfile{Site: "siteb", Filter: overlay.FilterStateful, UDP: true}
		for _, plan := range []overlay.Plan{Decide(a, b, nil), Decide(b, a, nil)} {
			if why, taken := has(plan, overlay.HolePunching); taken != want {
				t.Errorf("MTU %d: taken: %t (%s)", mtu, taken, why)
			}
		}
	}
}

// TestPlannedOpensAreTried: what a plan has for two ends that dial each other, the ends do not refuse.
func TestPlannedOpensAreTried(t *testing.T) {
	seed, pairs := uint64(39), 20_000
	if testload.Full() {
		seed, pairs = rand.Uint64(), 500_000
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	base, planned := profiles(), 0
	for range pairs {
		a, b := scramble(rng, base[rng.IntN(len(base))]), scramble(rng, base[rng.IntN(len(base))])
		a.Site, b.Site = "sitea", "siteb"
		a.HighPortsOnly, b.HighPortsOnly = rng.IntN(2) == 0, rng.IntN(2) == 0
		if _, taken := has(Decide(a, b, nil), overlay.SimultaneousOpen); !taken {
			continue
		}
		planned++
		if _, err := simopen.Agree(time.Now(), endAt(a, b), endAt(b, a)); err != nil {
			t.Fatalf("seed %d: planned, and refused: %v\nasker  %+v\ntarget %+v", seed, err, a, b)
		}
	}
	if planned == 0 {
		t.Error("nothing was planned")
	}
}

// endAt returns a site's end of a simultaneous open with a peer: where it dials from, and where others see that.
func endAt(self, peer overlay.SiteProfile) simopen.End {
	port := uint16(40000)
	if peer.Egress == overlay.Egress443 && !self.HighPortsOnly {
		port = 443
	}
	local := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)
	outside := local
	if self.NAT.Translates() && !self.NAT.KeepsPort {
		outside = netip.AddrPortFrom(local.Addr(), 50000)
	}
	return simopen.End{Profile: self, Mapping: simopen.Mapping{Local: local, Outside: outside, Independent: !symmetric(self.NAT)}}
}
