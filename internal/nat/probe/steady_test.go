package probe

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

func TestSteady(t *testing.T) {
	const open = "inbound=open nat.mapping=endpoint-independent nat.filtering=address-dependent nat.keeps_port=true egress=443 udp=true mtu=1400 udp_rate=1000000 ipv6=true"
	nothing := texts(overlay.EgressNone)[0]
	for _, tc := range []struct {
		name              string
		before, last, now string
		works             Working
		want              string // some findings; an empty value is unknown
		doubtful          bool
	}{
		{name: "the first", now: open, want: open},
		{name: "the same", before: open, last: open, now: open, want: open},
		{name: "unknown", before: open, last: open, now: "inbound= nat.mapping= nat.filtering= nat.keeps_port= egress= udp= mtu= udp_rate= ipv6=", want: open},
		{name: "nothing reached at first", now: "egress=" + nothing + " udp=false", want: "egress= udp=false", doubtful: true},
		{name: "nothing reached twice", now: "egress=" + nothing, last: "egress=" + nothing, want: "egress=" + nothing},
		{name: "nothing reached twice, but by links", now: "egress=" + nothing + " udp=false", last: "egress=" + nothing, works: Working{Connections: true}, want: "egress= udp=false"},
		{name: "nothing reached after much", before: open, last: open, now: "egress=" + nothing, want: "egress=443", doubtful: true},
		{name: "nothing reached after less", before: open, last: "egress=http-proxy", now: "egress=" + nothing, want: "egress=" + nothing},
		{name: "nothing reached after an unknown", before: open, last: "egress=", now: "egress=" + nothing, want: "egress=443", doubtful: true},
		{name: "nothing reached, then much", before: open, last: "egress=" + nothing, now: "egress=443", want: "egress=443"},
		{name: "nothing reached, then more", before: open, last: "egress=" + nothing, now: "egress=any", want: "egress=any"},
		{name: "datagrams lost", before: open, last: open, now: "udp=false", want: "udp=true", doubtful: true},
		{name: "datagrams lost twice", before: open, last: "udp=false", now: "udp=false", want: "udp=false"},
		{name: "datagrams lost twice, but in links", before: open, last: "udp=false", now: "udp=false", works: Working{Datagrams: true}, want: "udp=true"},
		{name: "another symmetry", before: open, last: open, now: "nat.mapping=address-dependent nat.filtering=address-and-port-dependent nat.keeps_port=false", want: open, doubtful: true},
		{name: "no NAT any more", before: open, last: open, now: "nat.mapping=none", want: "nat.mapping=none"},
		{name: "closed", before: open, last: open, now: "inbound=none", want: "inbound=open", doubtful: true},
		{name: "smaller packets", before: open, last: open, now: "mtu=1280", want: "mtu=1400", doubtful: true},
		{name: "smaller packets twice", before: open, last: "mtu=1300", now: "mtu=1280", want: "mtu=1280"},
		{name: "larger packets", before: open, last: open, now: "mtu=1500", want: "mtu=1500"},
		{name: "a lower rate", before: open, last: open, now: "udp_rate=500000", want: "udp_rate=1000000", doubtful: true},
		{name: "a lower rate twice", before: open, last: "udp_rate=450000", now: "udp_rate=500000", want: "udp_rate=500000"},
		{name: "idle times are measured by themselves", before: "idle_tcp=300", now: "idle_tcp=", want: "idle_tcp="},
		{name: "nearly the same rate", before: open, now: "udp_rate=1200000", want: "udp_rate=1000000"},
		{name: "nearly the same rate, but lower", before: open, now: "udp_rate=700000", want: "udp_rate=1000000"},
		{name: "another rate", before: open, now: "udp_rate=2000000", want: "udp_rate=2000000"},
		{name: "another node measured", before: "seen_at=10.1.0.5", now: "seen_at=10.1.0.200", want: "seen_at=10.1.0.5"},
		{name: "another network", before: "seen_at=10.1.0.5", now: "seen_at=10.1.1.5", want: "seen_at=10.1.1.5"},
		{name: "no private address any more", before: "seen_at=10.1.0.5", now: "seen_at=none", want: "seen_at=none"},
		{name: "no limit to the rate", before: open, now: "udp_rate=none", want: "udp_rate=none"},
		{name: "the first rate", before: "udp_rate=", now: "udp_rate=1000000", want: "udp_rate=1000000"},
		{name: "the first limit to the rate", before: "udp_rate=none", now: "udp_rate=1000000", want: "udp_rate=none", doubtful: true},
		{name: "a limit to the rate twice", before: "udp_rate=none", last: "udp_rate=900000", now: "udp_rate=1000000", want: "udp_rate=1000000"},
	} {
		now := measured(tc.now)
		got, doubtful := now.Steady(measured(tc.before), measured(tc.last), tc.works)
		if doubtful != tc.doubtful {
			t.Errorf("%s: doubtful %v", tc.name, doubtful)
		}
		for pair := range strings.FieldsSeq(tc.want) {
			field, value, _ := strings.Cut(pair, "=")
			if f := got.finding(field); f.Value != value && now.finding(field).Field != "" {
				t.Errorf("%s: %s is %q (%s), want %q", tc.name, field, f.Value, f.How, value)
			}
		}
		for _, f := range measured(tc.now).Findings {
			if now.finding(f.Field) != f {
				t.Errorf("%s: the argument was changed", tc.name)
			}
		}
	}
}

// Ports belong to the finding that names them.
func TestSteadyKeepsPorts(t *testing.T) {
	before := measured("inbound=ports")
	before.Ports = ports
	if got, _ := measured("inbound=").Steady(before, before, Working{}); got.Ports != ports || got.Fill(overlay.SiteProfile{}, Fields()).Ports != ports {
		t.Errorf("%+v", got)
	}
}
