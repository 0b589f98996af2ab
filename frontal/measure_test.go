package frontal

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// measurer is a helper that measures on request.
type measurer struct {
	controlpb.UnimplementedTargetServer
	result probe.Measured
	asked  atomic.Pointer[controlpb.MeasureRequest]
	idle   chan probe.Measured // its result for idle mappings; nil: it never ends
	idling chan struct{}       // holds a value after an idle measurement was requested; nil: not waited for
}

func (m *measurer) Measure(ctx context.Context, req *controlpb.MeasureRequest) (*controlpb.Measurement, error) {
	if len(req.IdleS) > 0 {
		select {
		case m.idling <- struct{}{}:
		default:
		}
		select {
		case found := <-m.idle:
			return found.ToPB(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m.asked.Store(req)
	return m.result.ToPB(), nil
}

// joinsSoFar returns the site's registrations that the broker has received.
func (b *fakeBroker) joinsSoFar() []*controlpb.JoinRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*controlpb.JoinRequest(nil), b.joins...)
}

func finding(field, value string) probe.Finding {
	return probe.Finding{Field: field, Value: value, How: "the test says so"}
}

// A routed site is measured by a helper; fields that the admin left open follow the measurement,
// declared fields keep their values, and the helper reconnects.
func TestMeasuredByHelper(t *testing.T) {
	r := newRig(t, func(c *Config) {
		declared := daemon.Defaults[Config]()
		c.Profile, c.Measure = declared.Profile, time.Hour
		c.Profile.Egress = Given(overlay.EgressAny)
		c.Profile.Ports = Ports{First: 20000, Last: 20999}
		c.DataListen, c.PublicListen = declared.DataListen, declared.PublicListen
	})
	m := &measurer{result: probe.Measured{Time: time.Unix(9, 0), Node: "lies", Ports: overlay.Ports{First: 20000, Last: 20999}, Findings: []probe.Finding{
		finding(probe.Inbound, "ports"), finding(probe.Egress, "443"), finding(probe.UDP, "true"), finding(probe.Refusal, ""),
	}}}
	first := r.broker.joinsSoFar()[0]
	if first.Profile.Udp || first.Measured != nil || strings.Join(first.Unset, " ") != "inbound filter refusal nat.mapping nat.filtering nat.keeps_port nat_udp.mapping nat_udp.filtering nat_udp.keeps_port udp udp_rate mtu idle_tcp idle_udp ipv6 ipv6_only ipv6_rules.inbound ipv6_rules.filter ipv6_rules.refusal ipv6_rules.egress ipv6_rules.udp high_ports_only seen_at" {
		t.Errorf("before the measurement: %v", first)
	}
	s, err := r.dialAs(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"}, func(reg grpc.ServiceRegistrar) {
		controlpb.RegisterTargetServer(reg, m)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.until("the broker hears of the measurement", func() bool { return len(r.broker.joinsSoFar()) == 2 })
	second := r.broker.joinsSoFar()[1]
	profile, err := control.ProfileFromPB("sitea", second.Profile)
	if err != nil || profile.Inbound != overlay.InboundPorts || profile.Ports.Last != 20999 || !profile.UDP || profile.Egress != overlay.EgressAny {
		t.Errorf("told %+v, %v", profile, err)
	}
	if second.Measured.GetNode() != "a1" || len(second.Measured.Findings) != 4 {
		t.Errorf("measured %v", second.Measured)
	}
	if req := m.asked.Load(); req.FirstPort != 20000 || req.LastPort != 20999 {
		t.Errorf("asked %v", req)
	}
	r.ends(s, "the helper is to enter again, with the new profile")
	status := r.f.status()
	if len(status.Differs) != 1 || status.Differs[0].Field != probe.Egress || status.Measured == nil {
		t.Errorf("status %+v", status)
	}
	if !strings.Contains(r.log.String(), "the declared profile is not what was measured") {
		t.Error("the difference was not logged")
	}
	again := r.helper("a2")
	entered, err := again.nodes.Enter(again.ctx(), &controlpb.EnterRequest{})
	if err != nil || entered.Profile.Inbound != uint32(overlay.InboundPorts) {
		t.Errorf("a helper that enters now is told %v, %v", entered, err)
	}
}

// undeclared are the settings of a site that leaves all fields to the measurement.
func undeclared(c *Config) {
	declared := daemon.Defaults[Config]()
	c.Profile, c.Measure = declared.Profile, time.Hour
	c.DataListen, c.PublicListen = declared.DataListen, declared.PublicListen
}

// measuredBy has helper a1 join, with m to measure, and returns its session.
func (r *rig) measuredBy(m *measurer) *control.Session { return r.measuredAt("a1", m) }

// measuredAt is measuredBy at any node.
func (r *rig) measuredAt(node string, m *measurer) *control.Session {
	r.t.Helper()
	s, err := r.dialAs(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: node}, func(reg grpc.ServiceRegistrar) {
		controlpb.RegisterTargetServer(reg, m)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.until("the helper has come, and perhaps gone", func() bool {
		select {
		case <-s.Done():
			return true
		default:
		}
		return r.joined(node, s)
	})
	return s
}

// ends waits for the end of a session.
func (r *rig) ends(s *control.Session, why string) {
	r.t.Helper()
	select {
	case <-s.Done():
	case <-time.After(patience):
		r.t.Fatalf("waited %v for this: %s", patience, why)
	}
}

// The lifetime of idle mappings is known minutes later, and then sent like everything else. The
// helper that measures it is not disconnected by the profile measured before. A rate that was
// measured again is kept if it differs little.
func TestIdleIsToldLater(t *testing.T) {
	m := &measurer{idle: make(chan probe.Measured, 1)}
	m.result = probe.Measured{Findings: []probe.Finding{
		finding(probe.Filter, "stateful"), finding(probe.NATMapping, "none"), finding(probe.UDPRate, "1000000"), finding(probe.IdleUDP, ""),
	}}
	r := newRig(t, undeclared)
	r.ends(r.measuredBy(m), "the profile changes, and the helper is to learn it")
	r.measuredBy(m)
	if p := r.f.profile(); p.IdleUDP != 0 || p.UDPRate != 1_000_000 {
		t.Errorf("at first: %+v", p)
	}
	m.idle <- probe.Measured{Findings: []probe.Finding{finding(probe.IdleUDP, "25"), finding(probe.IdleTCP, "290+")}}
	r.until("the broker hears of idle times", func() bool {
		joins := r.broker.joinsSoFar()
		p := joins[len(joins)-1].Profile
		return p.IdleUdp == 25 && p.IdleTcp == 290 && p.UdpRate == 1_000_000
	})
	again := probe.Measured{Findings: []probe.Finding{
		finding(probe.Filter, "stateful"), finding(probe.NATMapping, "none"), finding(probe.UDPRate, "1200000"),
	}}
	told := r.f.measure.Steady(again)
	if f := told.Idle(); len(f) != 2 || (probe.Result{Findings: told.Findings}).Finding(probe.UDPRate).Value != "1000000" {
		t.Errorf("measured again: %+v", told)
	}
}

// If a helper leaves while it measures idle mappings, its state is lost: the next one starts again.
func TestIdleIsTriedAgain(t *testing.T) {
	b := standardBounds
	b.idle = time.Millisecond
	r := newRigWith(t, b, undeclared)
	m := &measurer{idling: make(chan struct{}, 1)}
	m.result = probe.Measured{Findings: []probe.Finding{finding(probe.Filter, "stateful"), finding(probe.UDP, "true")}}
	r.ends(r.measuredBy(m), "the profile changes, and the helper is to learn it")
	s := r.measuredBy(m)
	select {
	case <-m.idling:
	case <-time.After(patience):
		t.Fatalf("waited %v for idle mappings to be measured", patience)
	}
	s.Close()
	next := &measurer{idle: make(chan probe.Measured, 1)}
	next.idle <- probe.Measured{Findings: []probe.Finding{finding(probe.IdleUDP, "25")}}
	r.measuredBy(next)
	r.until("idle times are known", func() bool { return r.f.profile().IdleUDP == 25 })
}

// A site that keeps no state is not measured for minutes to find that out.
func TestNoIdleWithoutState(t *testing.T) {
	m := &measurer{result: probe.Measured{Findings: []probe.Finding{finding(probe.Filter, "stateless"), finding(probe.NATMapping, "none")}}}
	r := newRig(t, undeclared)
	r.measuredBy(m)
	r.until("the site is measured", func() bool { return r.f.status().Measured != nil })
	if f := r.f.status().Measured.Idle(); len(f) != 2 || f[0].Value != "none" || f[1].Value != "none" {
		t.Errorf("%+v", f)
	}
}

// A technique that fails although the profiles permit it triggers a measurement that corrects the
// profile, and logs it, once another node has measured the same.
func TestDoubtIsMeasured(t *testing.T) {
	b := standardBounds
	b.doubt = time.Millisecond
	r := newRigWith(t, b, undeclared)
	s := r.measuredBy(&measurer{result: probe.Measured{Findings: []probe.Finding{finding(probe.UDP, "true")}}})
	r.ends(s, "datagrams pass, and the helper is to learn it")
	both := map[string]*measurer{}
	for _, node := range []string{"a1", "a2"} {
		both[node] = &measurer{result: probe.Measured{Findings: []probe.Finding{finding(probe.UDP, "false")}}}
		r.measuredAt(node, both[node])
	}
	h := r.helper("a3")
	if _, err := h.ask(9, false); err != nil { // so that the frontal knows the site
		t.Fatal(err)
	}
	fails := func(technique overlay.Technique) error {
		_, err := h.dir.Report(h.ctx(), &controlpb.ReportRequest{
			Target: control.ProcessToPB(proc(9)), TargetSite: "siteb", Plan: 7, Technique: uint32(technique), Fault: control.Fault(overlay.ErrTimeout),
		})
		return err
	}
	if err := fails(overlay.Relay); err != nil {
		t.Fatal(err)
	}
	if r.f.measure.Doubted() {
		t.Error("a relay's failure is blamed on the profile")
	}
	fails(overlay.HolePunching) // the corrected profile, with which a3 enters again, may overtake the answer
	r.until("the profile is corrected", func() bool { return !r.f.profile().UDP })
	r.until("the log says so", func() bool {
		return strings.Contains(r.log.String(), "the site's profile was out of date and is corrected")
	})
	for node, m := range both {
		if m.asked.Load() == nil {
			t.Errorf("the profile is corrected by one node: %s was not asked", node)
		}
	}
}

// A gateway measures itself if nodes have no route; to test inbound connections it needs a
// listener.
func TestMeasuredByGateway(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Profile.Inbound, c.PublicListen = Setting[overlay.Inbound]{}, daemon.Defaults[Config]().PublicListen
	})
	r.f.measure.Adopt(probe.Measured{Node: "gateway", Findings: []probe.Finding{finding(probe.Inbound, "open"), finding(probe.UDP, "true")}})
	if p := r.f.profile(); p.Inbound != overlay.InboundNone || !p.UDP {
		t.Errorf("without a listener: %+v", p)
	}
}

// A broker without reflectors causes an error that is reported and a retry, not a profile.
func TestNotMeasured(t *testing.T) {
	r := newRig(t, nil)
	r.broker.stop()
	r.until("the outage is seen", func() bool { return !r.f.up.Up() })
	_, err := r.f.measure.Measure(r.f.ctx, "")
	if err == nil || !strings.Contains(err.Error(), "asking for the reflectors: ") {
		t.Errorf("%v", err)
	}
	if r.f.profile().Inbound != overlay.InboundOpen || r.f.status().Measured != nil {
		t.Error("a failure changed the profile")
	}
}

func TestSetting(t *testing.T) {
	var filter Setting[overlay.Filter]
	var flag Setting[bool]
	for _, tc := range []struct {
		text  string
		given bool
		fault string
	}{
		{"auto", false, ""},
		{"strict", true, ""},
		{"loose", false, `unknown filter "loose"; known are ["none" "stateless" "stateful" "strict"], or "auto" to have it measured`},
	} {
		err := filter.UnmarshalText([]byte(tc.text))
		if fmt.Sprint(err) != tc.fault && (err != nil || tc.fault != "") {
			t.Errorf("%s: %v", tc.text, err)
		}
		if text, _ := filter.MarshalText(); err == nil && (filter.Given != tc.given || string(text) != tc.text) {
			t.Errorf("%s: %+v, %s", tc.text, filter, text)
		}
	}
	var rate Setting[uint64]
	var mtu Setting[uint16]
	for text, want := range map[string]uint16{"1400": 1400, "none": 0, "65535": 65535} {
		if err := mtu.UnmarshalText([]byte(text)); err != nil || mtu != Given(want) {
			t.Errorf("%s: %+v, %v", text, mtu, err)
		}
	}
	if err := rate.UnmarshalText([]byte("1000000")); err != nil || rate != Given(uint64(1_000_000)) {
		t.Errorf("%+v, %v", rate, err)
	}
	if err := mtu.UnmarshalText([]byte("65536")); err == nil || err.Error() != `want a whole number up to 65535, "none", or "auto" to have it measured` {
		t.Errorf("too large: %v", err)
	}
	for text, want := range map[string]Setting[bool]{"auto": {}, "true": Given(true), "false": Given(false)} {
		if err := flag.UnmarshalText([]byte(text)); err != nil || flag != want {
			t.Errorf("%s: %+v, %v", text, flag, err)
		}
	}
	if err := flag.UnmarshalText([]byte("yes")); err == nil {
		t.Error("yes is taken for a truth value")
	}
}

// Fields left open read as those of a closed site, without contradictions, regardless of the other
// fields.
func TestUnsetProfileIsSound(t *testing.T) {
	for _, text := range []string{
		"", "nat: {mapping: endpoint-independent}", "nat: {filtering: address-dependent}", "ports: {first: 5, last: 6}", "inbound: auto\n  udp: true",
	} {
		cfg, err := daemon.Parse[Config]("f.yaml", []byte("site: a\nbroker: b:443\ntls: {cert: c, key: k, ca: a}\nlisten: 10.1.0.1:1\nprofile:\n  privileged: true\n  "+text+"\n"))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if p := cfg.SiteProfile(); p.Check() != nil || p.Inbound != overlay.InboundNone || p.Filter != overlay.FilterStateful {
			t.Errorf("%q: %+v, %v", text, p, p.Check())
		}
	}
}
