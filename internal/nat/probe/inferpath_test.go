package probe

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// step is a run of 100 datagrams at a rate, of which the given rate got through.
func step(rate uint64, echoed bool, through uint64) RateStep {
	return RateStep{Rate: rate, Echoed: echoed, Sent: 100, Answered: int(through * 100 / rate), Offered: rate, Delivered: through}
}

func TestInferPath(t *testing.T) {
	const k, m = 1000, 1000_000
	reached := []View{{To: netip.MustParseAddrPort(v6Broker), Local: netip.MustParseAddrPort(v6Node), Seen: netip.MustParseAddrPort(v6Node)}}
	stun := bySTUN(local(1), local(1))
	for _, tc := range []struct {
		name string
		o    Observations
		want string // as in TestInfer, plus a word of the reason, after /
	}{
		{"no UDP", Observations{UDP: bySTUN(nobody, nobody)}, "udp_rate=/answered mtu=/answered"},
		{"not tried", Observations{UDP: stun}, "udp_rate=/rates mtu=/answered ipv6=/IPv6 privileged=/tried high_ports_only=/tried idle_tcp=/minutes"},
		{"no socket", Observations{UDP: stun, RateErr: "too many open files", Sizes: &PathSizes{Err: "permission denied"}}, "udp_rate=/files mtu=/denied"},

		{"free", Observations{UDP: stun, Rate: []RateStep{step(64*k, true, 64*k), step(3*m, true, 2900*k)}}, "udp_rate=none/2.25"},
		{"lossy, but free", Observations{UDP: stun, Rate: []RateStep{step(64*k, true, 60*k), step(3*m, true, 2400*k)}}, "udp_rate=none"},
		{"slow once by chance", Observations{UDP: stun, Rate: []RateStep{step(1*m, true, 500*k), step(1*m, true, 990*k), step(3*m, true, 3*m)}}, "udp_rate=none"},
		{"lost at any rate", Observations{UDP: stun, Rate: []RateStep{step(64*k, true, 20*k), step(64*k, true, 21*k), step(64*k, false, 22*k)}}, "udp_rate=/slowest"},
		{"held each way", Observations{UDP: stun, Rate: []RateStep{step(1*m, true, 1*m), step(3*m, true, 1100*k), step(3*m, true, 904*k), step(3*m, false, 987654)}}, "udp_rate=990000"},
		{"held each way, busy once", Observations{UDP: stun, Rate: []RateStep{step(1*m, true, 1*m), step(3*m, true, 990*k), step(3*m, true, 980*k), step(3*m, false, 760*k)}}, "udp_rate=980000"},
		{"held on the way in", Observations{UDP: stun, Rate: []RateStep{step(1*m, true, 1*m), step(3*m, true, 1*m), step(3*m, true, 1*m), step(3*m, false, 3*m), step(3*m, true, 1*m)}}, "udp_rate=1000000/in"},
		{"held twice by chance", Observations{UDP: stun, Rate: []RateStep{step(1*m, true, 500*k), step(1*m, true, 500*k), step(1*m, false, 1*m), step(3*m, false, 3*m), step(1*m, true, 1*m), step(3*m, true, 3*m)}}, "udp_rate=none"},
		{"held twice, and then ended", Observations{UDP: stun, Rate: []RateStep{step(64*k, true, 64*k), step(1*m, true, 500*k), step(1*m, true, 500*k), step(1*m, false, 1*m), step(3*m, false, 3*m)}}, "udp_rate="},
		{"held more on the way in", Observations{UDP: stun, Rate: []RateStep{step(64*k, true, 64*k), step(1*m, true, 200*k), step(1*m, true, 200*k), step(1*m, false, 1*m), step(3*m, false, 2*m)}}, "udp_rate=200000/more"},
		{"held together", Observations{UDP: stun, Rate: []RateStep{step(64*k, true, 64*k), step(1*m, true, 500*k), step(1*m, true, 500*k), step(1*m, false, 990*k), step(3*m, false, 1*m)}}, "udp_rate=1000000/together"},
		{"held far below what passed", Observations{UDP: stun, Rate: []RateStep{step(1*m, true, 1*m), step(3*m, true, 90*k), step(3*m, true, 80*k), step(3*m, false, 100*k)}}, "udp_rate=/busy"},
		{"nothing at all at once", Observations{UDP: stun, Rate: []RateStep{step(1*m, true, 1*m), step(3*m, true, 0), step(3*m, true, 0), step(3*m, false, 0)}}, "udp_rate=/busy"},
		{"ended early", Observations{UDP: stun, Rate: []RateStep{step(64*k, true, 30*k)}}, "udp_rate="},

		{"whole packets", Observations{Sizes: &PathSizes{Interface: 1500, Passed: []int{1500, 1492, 1280}}}, "mtu=none/1500"},
		{"small interface", Observations{Sizes: &PathSizes{Interface: 1450, Passed: []int{1448, 1280}, Reported: 1450}}, "mtu=none/1450"},
		{"black hole", Observations{Sizes: &PathSizes{Interface: 1500, Passed: []int{1400, 1280}, Lost: []int{1500, 1492, 1420}}}, "mtu=1400/lost"},
		{"a router said so", Observations{Sizes: &PathSizes{Interface: 1500, Passed: []int{1400, 1280}, Lost: []int{1500, 1420}, Reported: 1406}}, "mtu=1406/said"},
		{"a router lied", Observations{Sizes: &PathSizes{Interface: 1500, Passed: []int{1400, 1280}, Lost: []int{1500, 1420}, Reported: 576}}, "mtu=1400"},
		{"one lost by chance", Observations{Sizes: &PathSizes{Interface: 1500, Passed: []int{1500, 1280}, Lost: []int{1400}}}, "mtu=none"},
		{"nothing large", Observations{Sizes: &PathSizes{Interface: 1500, Lost: []int{1500, 1280}}}, "mtu=/1280"},

		{"IPv6", Observations{IPv6: reached}, "ipv6=true ipv6_only="},
		{"IPv6 and not IPv4", Observations{TCP: views(everywhere(nobody)), UDP: bySTUN(nobody, nobody), IPv6: reached}, "ipv6=true ipv6_only=true/over egress=/IPv6 udp=false"},
		{"IPv6 and IPv4", Observations{TCP: views(everywhere(local(1))), IPv6: reached}, "ipv6_only=false egress=any"},
		{"IPv6 and an HTTP proxy", Observations{TCP: views(everywhere(nobody)), Proxy: &View{Seen: outside(3)}, IPv6: reached}, "ipv6_only=false egress=http-proxy"},
		{"neither", Observations{TCP: views(everywhere(nobody))}, "ipv6= ipv6_only= egress=none"},
		{"IPv6, one reflector down", Observations{IPv6: append([]View{{To: netip.MustParseAddrPort(v6Broker), Err: "timed out"}}, reached...)}, "ipv6=true"},
		{"no IPv6", Observations{IPv6: []View{{To: netip.MustParseAddrPort(v6Broker), Err: "network is unreachable"}}}, "ipv6=false/unreachable"},
		{"translated IPv6", Observations{IPv6: []View{{To: netip.MustParseAddrPort(v6Broker), Local: netip.MustParseAddrPort("[fd00::1]:4"), Seen: netip.MustParseAddrPort(v6Node)}}}, "ipv6=false/translated"},

		{"raw sockets", Observations{Raw: &Privilege{}}, "privileged=true"},
		{"port 443", Observations{Port443: &Privilege{}}, "high_ports_only=false"},
		{"no port 443", Observations{Port443: &Privilege{Err: "permission denied"}}, "high_ports_only=true/denied"},
		{"no raw sockets", Observations{Raw: &Privilege{Err: "operation not permitted"}}, "privileged=false/permitted"},
	} {
		r := Infer(tc.o)
		for pair := range strings.FieldsSeq(tc.want) {
			field, value, _ := strings.Cut(pair, "=")
			value, word, _ := strings.Cut(value, "/")
			if f := r.Finding(field); f.Value != value || f.How == "" || !strings.Contains(f.How, word) {
				t.Errorf("%s: %s is %q (%s), want %q for %q", tc.name, field, f.Value, f.How, value, word)
			}
		}
		for _, f := range r.Findings {
			if f.HasValue() && f.Value != Value(r.Profile, f.Field) {
				t.Errorf("%s: finding %+v, the profile says %q", tc.name, f, Value(r.Profile, f.Field))
			}
		}
	}
}

func TestLifetime(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name  string
		tried []Idle
		want  string
	}{
		{"forgotten", []Idle{{2 * s, true, ""}, {25 * s, true, ""}, {55 * s, false, ""}, {110 * s, false, ""}}, "25"},
		{"one answer lost", []Idle{{2 * s, false, ""}, {25 * s, true, ""}, {55 * s, false, ""}}, "25"},
		{"longer than tried", []Idle{{2 * s, true, ""}, {290 * s, true, ""}}, "290+"},
		{"cut short", []Idle{{2 * s, true, ""}, {25 * s, true, ""}, {290 * s, false, "the measurement ended early"}}, "25+"},
		{"no answer at all", []Idle{{2 * s, false, ""}, {25 * s, false, ""}}, ""},
		{"no UDP", []Idle{{2 * s, false, "no answer to 3 datagrams"}}, ""},
		{"nothing", nil, ""},
	} {
		f := IdleObservations{UDP: tc.tried}.Findings()
		if len(f) != 2 || f[0].Field != IdleTCP || f[0].HasValue() || f[1].Field != IdleUDP || f[1].Value != tc.want || f[1].How == "" {
			t.Errorf("%s: %+v, want %q", tc.name, f, tc.want)
		}
	}
}

// A profile that declares less than was measured is the admin's choice; one that declares more is
// wrong.
func TestBoundsDiffer(t *testing.T) {
	for _, tc := range []struct {
		p    overlay.SiteProfile
		m    string
		want int
	}{
		{overlay.SiteProfile{UDPRate: 1e6}, "udp_rate=700000", 0},
		{overlay.SiteProfile{UDPRate: 1e6}, "udp_rate=600000", 1},
		{overlay.SiteProfile{}, "udp_rate=600000 mtu=1400 idle_udp=25", 2},
		{overlay.SiteProfile{UDPRate: 1e6, MTU: 1400}, "udp_rate=none mtu=none", 0},
		{overlay.SiteProfile{MTU: 1400}, "mtu=1400", 0},
		{overlay.SiteProfile{MTU: 1420}, "mtu=1400", 1},
		{overlay.SiteProfile{IdleUDP: 30, IdleTCP: 3600}, "idle_udp=25 idle_tcp=290+", 0},
		{overlay.SiteProfile{IdleUDP: 300, IdleTCP: 3600}, "idle_udp=25 idle_tcp=110", 2},
		{overlay.SiteProfile{}, "ipv6=true privileged=true", 0},
		{overlay.SiteProfile{IPv6: true, Privileged: true}, "ipv6=false privileged=false", 2},
		{overlay.SiteProfile{}, "high_ports_only=true", 1},
		{overlay.SiteProfile{HighPortsOnly: true}, "high_ports_only=false", 0},
	} {
		if got := measured(tc.m).Differences(tc.p); len(got) != tc.want {
			t.Errorf("%+v and %s: %+v", tc.p, tc.m, got)
		}
	}
}

func TestFillBounds(t *testing.T) {
	base := overlay.SiteProfile{UDPRate: 5, MTU: 6, IdleTCP: 7, IdleUDP: 8}
	m := measured("udp_rate=1000000 mtu=1400 idle_tcp=290+ idle_udp=25 ipv6=true privileged=true")
	got := m.Fill(base, Fields())
	if got.UDPRate != 1e6 || got.MTU != 1400 || got.IdleTCP != 290 || got.IdleUDP != 25 || !got.IPv6 || !got.Privileged {
		t.Errorf("%+v", got)
	}
	if got := m.Fill(base, []string{UDPRate}); got.UDPRate != 1e6 || got.MTU != 6 || got.IdleUDP != 8 || got.IPv6 {
		t.Errorf("the rate alone: %+v", got)
	}
	if got := measured("udp_rate=none mtu=none idle_tcp=none idle_udp=none").Fill(base, Fields()); got.UDPRate+uint64(got.MTU)+uint64(got.IdleTCP+got.IdleUDP) != 0 {
		t.Errorf("no bounds: %+v", got)
	}
	if got := measured("udp_rate=fast mtu=65536 idle_tcp=-1 idle_udp=").Fill(base, Fields()); got.UDPRate != 5 || got.MTU != 6 || got.IdleTCP != 7 || got.IdleUDP != 8 {
		t.Errorf("no numbers: %+v", got)
	}
}

func TestStateless(t *testing.T) {
	for m, want := range map[string]bool{
		"filter=none nat.mapping=none": true, "filter=stateless nat.mapping=none": true, "filter=stateful nat.mapping=none": false,
		"filter=none nat.mapping=endpoint-independent": false, "filter= nat.mapping=none": false, "filter=none nat.mapping=": false, "": false,
	} {
		if _, got := measured(m).Stateless(); got != want {
			t.Errorf("%q: %v", m, got)
		}
	}
}

// Runs through a limiter that drops, one that queues and one that does neither differ in when the
// answers arrive.
func TestJudgeRun(t *testing.T) {
	const n, size = 100, 1000 // 100 kB
	every := func(d time.Duration) []time.Time {
		var all []time.Time
		for i := range n {
			all = append(all, time.Unix(0, 0).Add(time.Second).Add(time.Duration(i)*d))
		}
		return all
	}
	const interval = 4 * time.Millisecond // 2 Mb/s
	thin := every(interval)
	for i := range thin {
		if i > 30 && i%4 != 0 { // the first 30 at once, then every fourth
			thin[i] = time.Time{}
		}
	}
	drained := every(interval)
	for i := 30; i < n; i++ { // a bucket's burst at once, then a queue at 500 kb/s
		drained[i] = drained[29].Add(time.Duration(i-29) * 16 * time.Millisecond)
	}
	asleep := every(interval)
	for i := 60; i < 95; i++ { // no answers were read for a while
		asleep[i] = asleep[95]
	}
	for _, tc := range []struct {
		name    string
		came    []time.Time
		through float64
		limited bool
	}{
		{"free", every(interval), 2e6, false},
		{"drops", thin, 5e5, true},
		{"queues", drained, 5e5, true},
		{"asleep", asleep, 2e6, false},
		{"nothing", make([]time.Time, n), 0, true},
	} {
		s := judgeRun(every(interval), tc.came, size)
		if s.Sent != n || math.Abs(float64(s.Offered)-2e6) > 1e4 || math.Abs(float64(s.Delivered)-tc.through) > tc.through/20 || s.limited() != tc.limited {
			t.Errorf("%s: %+v", tc.name, s)
		}
	}
}

func TestShape(t *testing.T) {
	total := 0
	for _, rate := range rates {
		n, size := shape(rate)
		total += n * size
		if got := float64(n*size*8) / rateTime.Seconds(); math.Abs(got-float64(rate)) > float64(rate)/10 || size%4 != 0 || size > maxDatagram || n < 20 {
			t.Errorf("%d b/s: %d datagrams of %d bytes, %.0f b/s", rate, n, size, got)
		}
		if got := len(paddedRequest([12]byte{}, 0xfff0, size).Raw) + udpHeader; got != size {
			t.Errorf("a request of %d bytes makes a packet of %d", size, got)
		}
	}
	if total > 250_000 {
		t.Errorf("%d bytes", total)
	}
	for _, size := range packetSizes {
		if got := len(paddedRequest([12]byte{}, 0x26, size).Raw) + udpHeader; got != size {
			t.Errorf("a request of %d bytes makes a packet of %d", size, got)
		}
	}
}

func TestCheckIdleWaits(t *testing.T) {
	if err := CheckIdleWaits(IdleWaits()); err != nil {
		t.Error(err)
	}
	for _, waits := range [][]time.Duration{nil, {time.Millisecond}, {2 * time.Second, time.Second}, {time.Hour}, make([]time.Duration, MaxIdleWaits+1)} {
		if CheckIdleWaits(waits) == nil {
			t.Errorf("%v was taken", waits)
		}
	}
}

const (
	v6Broker = "[2001:db8::1]:443"
	v6Node   = "[2001:db8:1::9]:40001"
)
