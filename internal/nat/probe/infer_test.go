package probe

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

var (
	brokerTCP  = netip.MustParseAddrPort("192.0.2.1:443")
	brokerSTUN = netip.MustParseAddrPort("192.0.2.1:3478")
	proxyTCP   = netip.MustParseAddrPort("192.0.2.2:443")
	proxySTUN  = netip.MustParseAddrPort("192.0.2.2:3478")
)

// local is the address of socket n of a node, before translation.
func local(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("10.0.0.9"), uint16(40000+n))
}

func outside(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("198.51.100.9"), port)
}

// views are those of socket 1, which asked all; seen is what each reflector saw, an invalid
// address meaning that it did not answer.
func views(seen map[netip.AddrPort]netip.AddrPort) []View {
	var all []View
	for _, to := range []netip.AddrPort{brokerTCP, brokerSTUN, proxyTCP, proxySTUN} {
		if at, asked := seen[to]; asked {
			v := View{Socket: 1, To: to, Local: local(1), Seen: at}
			if !at.IsValid() {
				v.Err = "timed out"
			}
			all = append(all, v)
		}
	}
	return all
}

// everywhere is the map in which all reflectors saw the same.
func everywhere(seen netip.AddrPort) map[netip.AddrPort]netip.AddrPort {
	return map[netip.AddrPort]netip.AddrPort{brokerTCP: seen, brokerSTUN: seen, proxyTCP: seen, proxySTUN: seen}
}

func bySTUN(a, b netip.AddrPort) []View {
	return views(map[netip.AddrPort]netip.AddrPort{brokerSTUN: a, proxySTUN: b})
}

// withOptions sets the options that connections agreed on.
func withOptions(views []View, o TCPOptions) []View {
	views = slices.Clone(views)
	for i := range views {
		views[i].Options = &o
	}
	return views
}

func fresh(udp bool, o Outcome, arrived bool) Call {
	return Call{Target: Fresh, UDP: udp, Port: 41000, From: proxyTCP, Outcome: o, Arrived: arrived}
}

func inRange(port uint16, arrived bool) Call {
	return Call{Target: InRange, Port: port, From: proxyTCP, Outcome: Silent, Arrived: arrived}
}

func mapped(udp, first, arrived bool) Call {
	c := Call{Target: Answered, UDP: udp, From: proxyTCP, First: first, Arrived: arrived, Outcome: Silent}
	if first {
		c.From = brokerTCP
	}
	return c
}

var (
	nobody = netip.AddrPort{}
	ports  = overlay.Ports{First: 20000, Last: 20999}
)

func TestInfer(t *testing.T) {
	plain := views(everywhere(local(1)))
	stun := bySTUN(local(1), local(1))
	for _, tc := range []struct {
		name string
		o    Observations
		want string // "field=value" of some findings; an empty value is unknown
	}{
		{"nothing seen", Observations{}, "inbound= filter= refusal= nat.mapping= nat.filtering= nat.keeps_port= egress= udp="},
		{"open", Observations{TCP: plain, UDP: stun, Calls: []Call{fresh(false, Connected, true), fresh(true, Silent, true)}},
			"inbound=open filter=none refusal= nat.mapping=none nat.filtering=none nat.keeps_port=false egress=any udp=true"},
		{"stateful", Observations{TCP: plain, UDP: stun, Calls: []Call{fresh(false, Silent, false), fresh(true, Silent, false)}},
			"inbound=none filter=stateful refusal=drop"},
		{"stateless", Observations{TCP: plain, UDP: stun, Calls: []Call{fresh(false, Reset, false), fresh(true, Silent, true)}},
			"inbound=none filter=stateless refusal=reset"},
		{"ICMP", Observations{TCP: plain, UDP: stun, Calls: []Call{fresh(false, Unreachable, false), fresh(true, Unreachable, false)}},
			"inbound=none filter=stateful refusal=reset"},
		{"no UDP, so no filter", Observations{TCP: plain, UDP: bySTUN(nobody, nobody), Calls: []Call{fresh(false, Silent, false), fresh(true, Silent, false)}},
			"filter= udp=false refusal=drop"},
		{"no UDP, own SYN opens", Observations{TCP: plain, UDP: bySTUN(nobody, nobody), Calls: []Call{fresh(false, Silent, false)}, Cross: &Cross{From: proxyTCP, Connected: true}},
			"filter=stateful udp=false"},
		{"no UDP, own SYN opens nothing", Observations{TCP: plain, UDP: bySTUN(nobody, nobody), Calls: []Call{fresh(false, Silent, false)}, Cross: &Cross{From: proxyTCP}},
			"filter=stateless udp=false"},
		{"no UDP, no quiet port", Observations{TCP: plain, UDP: bySTUN(nobody, nobody), Calls: []Call{fresh(false, Silent, false)}, Cross: &Cross{Err: "unreachable"}},
			"filter= udp=false"},
		{"datagrams tell more", Observations{TCP: plain, UDP: stun, Calls: []Call{fresh(false, Silent, false), fresh(true, Silent, true)}, Cross: &Cross{From: proxyTCP, Connected: true}},
			"filter=stateless"},
		{"somebody else accepts", Observations{TCP: plain, UDP: stun, Calls: []Call{fresh(false, Connected, false)}}, "inbound=none refusal="},
		{"no call-back", Observations{TCP: plain, UDP: stun, Calls: []Call{{Target: Fresh, Err: "overloaded"}}}, "inbound= refusal= filter= egress=any"},
		{"range", Observations{Ports: ports, TCP: plain, UDP: stun, Calls: []Call{fresh(false, Silent, false), inRange(20000, true), inRange(20999, true)}}, "inbound=ports"},
		{"half a range", Observations{Ports: ports, TCP: plain, UDP: stun, Calls: []Call{fresh(false, Silent, false), inRange(20000, true), inRange(20999, false)}}, "inbound="},
		{"no range after all", Observations{Ports: ports, TCP: plain, UDP: stun, Calls: []Call{fresh(false, Silent, false), inRange(20000, false)}}, "inbound=none"},
		{"range not tried", Observations{Ports: ports, TCP: plain, UDP: stun, Calls: []Call{fresh(false, Silent, false)}}, "inbound="},

		{"cone", Observations{TCP: views(everywhere(outside(40001))), UDP: bySTUN(outside(40001), outside(40001)), Calls: []Call{fresh(false, Silent, false), mapped(true, true, false), mapped(true, false, false)}},
			"nat.mapping=endpoint-independent nat.filtering=address-and-port-dependent nat.keeps_port=true filter=stateful inbound=none"},
		{"cone, random ports", Observations{TCP: views(everywhere(outside(7))), UDP: bySTUN(outside(8), outside(8)), Calls: []Call{mapped(true, true, true), mapped(true, false, false)}},
			"nat.mapping=endpoint-independent nat.filtering=address-dependent nat.keeps_port=false"},
		{"full cone", Observations{TCP: views(everywhere(outside(40001))), UDP: bySTUN(outside(40001), outside(40001)), Calls: []Call{mapped(true, true, true), mapped(true, false, true)}},
			"nat.filtering=endpoint-independent"},
		{"filtering by TCP", Observations{TCP: views(everywhere(outside(40001))), UDP: bySTUN(nobody, nobody), Calls: []Call{mapped(true, true, false), mapped(true, false, false), mapped(false, true, true), mapped(false, false, true)}},
			"nat.filtering=endpoint-independent udp=false"},
		{"one reflector, reached", Observations{TCP: views(everywhere(outside(40001))), UDP: bySTUN(outside(40001), outside(40001)), Calls: []Call{mapped(true, true, true)}}, "nat.filtering="},
		{"address-dependent", Observations{TCP: views(map[netip.AddrPort]netip.AddrPort{brokerTCP: outside(1), brokerSTUN: outside(1), proxyTCP: outside(2), proxySTUN: outside(2)})},
			"nat.mapping=address-dependent"},
		{"symmetric", Observations{TCP: views(map[netip.AddrPort]netip.AddrPort{brokerTCP: outside(1), brokerSTUN: outside(2), proxyTCP: outside(3), proxySTUN: outside(4)})},
			"nat.mapping=address-and-port-dependent nat.keeps_port=false"},
		{"worse for UDP", Observations{TCP: views(everywhere(outside(40001))), UDP: bySTUN(outside(40001), outside(5))},
			"nat.mapping=endpoint-independent nat_udp.mapping=address-dependent"},
		{"worse for TCP", Observations{
			TCP: views(map[netip.AddrPort]netip.AddrPort{brokerTCP: outside(1), brokerSTUN: outside(2), proxyTCP: outside(3), proxySTUN: outside(4)}), UDP: bySTUN(outside(40001), outside(40001)),
			Calls: []Call{mapped(true, true, true), mapped(true, false, false), mapped(false, true, false), mapped(false, false, false)},
		}, "nat.mapping=address-and-port-dependent nat.filtering=address-and-port-dependent nat.keeps_port=false nat_udp.mapping=endpoint-independent nat_udp.filtering=address-dependent nat_udp.keeps_port=true"},
		{"no UDP to tell by", Observations{TCP: views(everywhere(outside(40001))), UDP: bySTUN(nobody, nobody)},
			"nat.mapping=endpoint-independent nat_udp.mapping= nat_udp.filtering= nat_udp.keeps_port="},
		{"nothing but UDP", Observations{TCP: views(everywhere(nobody)), UDP: bySTUN(outside(5), outside(5))},
			"nat.mapping=endpoint-independent nat.keeps_port=false nat_udp.mapping=endpoint-independent"},
		{"one reflector, translated", Observations{TCP: views(map[netip.AddrPort]netip.AddrPort{brokerTCP: outside(1)})}, "nat.mapping= egress="},
		{"same address, other port", Observations{TCP: views(everywhere(netip.AddrPortFrom(local(1).Addr(), 9)))}, "nat.mapping=endpoint-independent nat.keeps_port=false"},

		{"no options known", Observations{TCP: plain}, "tcp_options="},
		{"all options", Observations{TCP: withOptions(plain, TCPOptions{Scale: true, SACK: true, Timestamps: true})}, "tcp_options=none"},
		{"one reflector without", Observations{TCP: append(withOptions(plain[:1], TCPOptions{}), withOptions(plain[1:], TCPOptions{Scale: true, SACK: true, Timestamps: true})...)}, "tcp_options=none"},
		{"no window scaling", Observations{TCP: withOptions(plain, TCPOptions{SACK: true, Timestamps: true})}, "tcp_options=window-scale"},
		{"443 alone", Observations{TCP: views(map[netip.AddrPort]netip.AddrPort{brokerTCP: local(1), brokerSTUN: nobody})}, "egress=443"},
		{"443, and another host fails", Observations{TCP: views(map[netip.AddrPort]netip.AddrPort{brokerTCP: local(1), proxySTUN: nobody})}, "egress="},
		{"HTTP proxy", Observations{TCP: views(everywhere(nobody)), Proxy: &View{Seen: outside(3)}}, "egress=http-proxy nat.mapping="},
		{"443 alone, and only TLS", Observations{TCP: []View{{To: brokerTCP, Seen: local(1), TLS: true}, {To: brokerSTUN, Err: "timed out"}}}, "egress=tls-443"},
		{"only TLS at one of two", Observations{TCP: []View{{To: brokerTCP, Seen: local(1), TLS: true}, {To: proxyTCP, Seen: local(1)}, {To: brokerSTUN, Err: "timed out"}}}, "egress=443"},
		{"only TLS on 443, all on other ports", Observations{TCP: []View{{To: brokerTCP, Seen: local(1), TLS: true}, {To: brokerSTUN, Seen: local(1)}}}, "egress=any"},
		{"HTTP proxy, and only TLS inside", Observations{TCP: views(everywhere(nobody)), Proxy: &View{Seen: outside(3), TLS: true}}, "egress=http-proxy-tls"},
		{"HTTP proxy refuses", Observations{TCP: views(everywhere(nobody)), Proxy: &View{Err: "407"}}, "egress=none"},
		{"nothing but the session", Observations{Session: true, TCP: views(everywhere(nobody)), UDP: bySTUN(nobody, nobody)}, "egress= udp=false"},
		{"nothing but the session, by HTTP proxy", Observations{Session: true, TCP: views(everywhere(nobody)), Proxy: &View{Err: "timed out"}}, "egress=http-proxy-tls"},
		{"seen at its private address", Observations{TCP: plain, UDP: stun}, "seen_at=10.0.0.9"},
		{"seen at a private address of its NAT", Observations{TCP: views(everywhere(netip.MustParseAddrPort("100.64.1.2:5")))}, "seen_at=100.64.1.2"},
		{"seen at a public address", Observations{TCP: views(everywhere(outside(40001))), UDP: bySTUN(nobody, outside(40001))}, "seen_at=198.51.100.9"},
		{"seen at several addresses", Observations{TCP: views(map[netip.AddrPort]netip.AddrPort{brokerTCP: local(1), brokerSTUN: local(1), proxyTCP: outside(2), proxySTUN: outside(2)})}, "seen_at=none"},
		{"seen by nobody", Observations{TCP: views(everywhere(nobody))}, "seen_at="},
		{"no way out", Observations{TCP: views(everywhere(nobody)), UDP: bySTUN(nobody, nobody)}, "egress=none udp=false"},
	} {
		r := Infer(tc.o)
		for pair := range strings.FieldsSeq(tc.want) {
			field, value, _ := strings.Cut(pair, "=")
			if f := r.Finding(field); f.Value != value || f.How == "" {
				t.Errorf("%s: %s is %q (%s), want %q", tc.name, field, f.Value, f.How, value)
			}
		}
		if len(r.Findings) != len(Fields()) {
			t.Errorf("%s: %d findings", tc.name, len(r.Findings))
		}
		for i, f := range r.Findings {
			if f.Field != Fields()[i] || f.HasValue() && f.Field != Stripped && f.Value != Value(r.Profile, f.Field) {
				t.Errorf("%s: finding %+v, the profile says %q", tc.name, f, Value(r.Profile, f.Field))
			}
		}
	}
}

func measured(pairs string) Measured {
	var m Measured
	for pair := range strings.FieldsSeq(pairs) {
		field, value, _ := strings.Cut(pair, "=")
		m.Findings = append(m.Findings, Finding{field, value, "the test says so"})
	}
	return m
}

func TestDifferences(t *testing.T) {
	p := overlay.SiteProfile{Inbound: overlay.InboundOpen, Filter: overlay.FilterStrict, UDP: true}
	got := measured("inbound=none filter=stateful refusal= udp=true egress=443 colour=blue").Differences(p)
	if len(got) != 2 || got[0].Field != Inbound || got[0].Declared != "open" || got[0].Measured != "none" || got[1].Field != Egress {
		t.Errorf("%+v", got)
	}
	if got := measured("filter=stateless").Differences(p); len(got) != 1 {
		t.Errorf("strict and stateless: %+v", got)
	}
}

func TestFill(t *testing.T) {
	base := overlay.SiteProfile{Site: "a", Filter: overlay.FilterStateful}
	all := Fields()
	ranged := measured("inbound=ports")
	ranged.Ports = ports
	for _, tc := range []struct {
		name  string
		m     Measured
		unset []string
		want  overlay.SiteProfile
	}{
		{"nothing left open", measured("inbound=open filter=none udp=true"), nil, base},
		{"unknown", measured("inbound= filter= udp="), all, base},
		{"some", measured("inbound=open filter=none udp=true"), []string{Inbound, UDP}, overlay.SiteProfile{Site: "a", Inbound: overlay.InboundOpen, Filter: overlay.FilterStateful, UDP: true}},
		{"all", measured("refusal=reset egress=443 nat.mapping=endpoint-independent nat.filtering=address-dependent nat.keeps_port=true"), all,
			overlay.SiteProfile{Site: "a", Filter: overlay.FilterStateful, Refusal: overlay.RefuseReset, Egress: overlay.Egress443,
				NAT: overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressDependent, KeepsPort: true}}},
		{"half a NAT", measured("nat.mapping=endpoint-independent nat.filtering="), all,
			overlay.SiteProfile{Site: "a", Filter: overlay.FilterStateful, NAT: overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressAndPortDependent}}},
		{"UDP alike", measured("nat.mapping=endpoint-independent nat.filtering=address-dependent nat_udp.mapping=endpoint-independent nat_udp.filtering=address-dependent"), all,
			overlay.SiteProfile{Site: "a", Filter: overlay.FilterStateful, NAT: overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressDependent}}},
		{"UDP otherwise", measured("nat.mapping=address-dependent nat.filtering=address-dependent nat_udp.mapping=endpoint-independent nat_udp.keeps_port=true"), all,
			overlay.SiteProfile{Site: "a", Filter: overlay.FilterStateful, NAT: overlay.NAT{Mapping: overlay.AddressDependent, Filtering: overlay.AddressDependent},
				NATUDP: overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressAndPortDependent, KeepsPort: true}}},
		{"UDP alone", measured("nat_udp.mapping=endpoint-independent nat_udp.filtering=address-dependent"), all, base},
		{"the other half", measured("nat.filtering=address-dependent nat.keeps_port=true"), all, base},
		{"ports", ranged, all, overlay.SiteProfile{Site: "a", Filter: overlay.FilterStateful, Inbound: overlay.InboundPorts, Ports: ports}},
		{"ports that are none", measured("inbound=ports"), all, base},
		{"a newer word", measured("filter=telepathic"), all, base},
	} {
		got := tc.m.Fill(base, tc.unset)
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if text(got) != text(tc.want) || got.NATUDP != tc.want.NATUDP || got.Ports != tc.want.Ports {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// text formats a profile for comparison.
func text(p overlay.SiteProfile) string {
	var b strings.Builder
	for _, f := range Fields() {
		b.WriteString(f + "=" + Value(p, f) + " ")
	}
	return b.String()
}

func TestMessage(t *testing.T) {
	m := measured("inbound=open filter=")
	m.Node, m.Ports, m.Time = "a1", ports, time.Unix(9, 5)
	back, err := FromPB(m.ToPB())
	if err != nil || back.Node != m.Node || back.Ports != m.Ports || !back.Time.Equal(m.Time) || len(back.Findings) != 2 || back.Findings[0] != m.Findings[0] {
		t.Errorf("%+v, %v", back, err)
	}
	long := measured("inbound=open")
	long.Node = strings.Repeat("n", 256)
	many := measured(strings.Repeat("x=y ", maxFindings+1))
	wide := m.ToPB()
	wide.LastPort = 1 << 16
	for name, pb := range map[string]*controlpb.Measurement{"long": long.ToPB(), "many": many.ToPB(), "wide": wide} {
		if _, err := FromPB(pb); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
