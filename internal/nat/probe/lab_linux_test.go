//go:build system

package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestMain(m *testing.M) {
	lab.Main()
	testload.Parallel(2)
	os.Exit(m.Run())
}

// labGrid is a broker and a proxy of a lab, as far as a measurement needs them. It makes sockets in
// the hosts' namespaces.
type labGrid struct {
	broker, proxy *lab.Host
	seen          *reflector.Seen
	points        map[*lab.Host]reflector.Point
}

// newLabGrid runs the two reflectors until the test ends.
func newLabGrid(t *testing.T, l *lab.Lab) *labGrid {
	t.Helper()
	g := &labGrid{broker: l.Host("pub/broker"), proxy: l.Host("pub/proxy"), seen: reflector.NewSeen(1000, time.Hour), points: map[*lab.Host]reflector.Point{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for _, h := range []*lab.Host{g.broker, g.proxy} {
		o := reflector.NewObserver(h.Name(), nil, 0, func(a netip.AddrPort) {
			if h == g.broker {
				g.seen.Note(a.Addr(), time.Now())
			}
		})
		for _, network := range []string{"tcp", "tcp6"} {
			if network == "tcp6" && !h.Addr6().IsValid() {
				continue
			}
			ln, err := h.Listen(network, ":443")
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { o.Serve(ctx, ln) })
		}
		var sockets *reflector.Sockets
		err := h.Do(func() (err error) {
			at := h.Addr()
			if h.Addr6().IsValid() {
				at = netip.IPv6Unspecified() // and all of IPv4
			}
			sockets, err = reflector.Listen(ctx, netip.AddrPortFrom(at, 3478))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		g.points[h] = reflector.Point{Observer: o, Sockets: sockets}
		wg.Go(func() { sockets.Serve(ctx, new(stunserver.Server), o) })
	}
	return g
}

func (g *labGrid) Reflectors(context.Context, *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	resp := &controlpb.ReflectorsResponse{Time: time.Now().UnixNano()}
	for _, h := range []*lab.Host{g.broker, g.proxy} {
		resp.Tcp = append(resp.Tcp, netip.AddrPortFrom(h.Addr(), 443).String())
		resp.Stun = append(resp.Stun, netip.AddrPortFrom(h.Addr(), 3478).String())
		if h.Addr6().IsValid() {
			resp.Tcp6 = append(resp.Tcp6, netip.AddrPortFrom(h.Addr6(), 443).String())
			resp.Stun6 = append(resp.Stun6, netip.AddrPortFrom(h.Addr6(), 3478).String())
		}
	}
	return resp, nil
}

func (g *labGrid) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (resp *controlpb.CallBackResponse, err error) {
	target, err := reflector.ParseTarget(req, false)
	if err != nil {
		return nil, err
	}
	if !g.seen.Has(target.To.Addr(), time.Now()) {
		return nil, fmt.Errorf("%w: %v has not asked", overlay.ErrForbidden, target.To.Addr())
	}
	from := g.proxy
	if at, err := netip.ParseAddrPort(req.From); err == nil && (at.Addr() == g.broker.Addr() || at.Addr() == g.broker.Addr6()) {
		from = g.broker
	}
	err = from.Do(func() error { resp = g.points[from].CallBack(ctx, target); return nil })
	return resp, err
}

// cannotTell returns the fields in which a measurement differs from the profile of a preset, with
// the value it must have instead; empty is unknown. The package comment says why.
func cannotTell(preset string, truth overlay.SiteProfile) map[string]string {
	other := map[string]string{}
	base, hidden := strings.CutPrefix(preset, "no-route/")
	if truth.Filter == overlay.FilterStrict {
		other[Filter] = "stateful"
	}
	if truth.Inbound == overlay.InboundOpen {
		other[Refusal] = ""
	}
	other[IdleTCP], other[IdleUDP] = "", "" // see TestIdle
	other[Stripped] = none
	switch preset {
	case "ipv6-only": // properties that are measured over IPv4 alone are unknown
		for _, field := range []string{NATMapping, NATFiltering, NATKeepsPort, NATUDPMapping, NATUDPFiltering, NATUDPKeepsPort, UDPRate, MTU, Stripped} {
			other[field] = ""
		}
	case "wscale-stripped":
		other[Stripped] = "window-scale"
	case "options-stripped":
		other[Stripped] = "window-scale sack timestamps"
	}
	if truth.IPv6Rules.Inbound == overlay.InboundOpen {
		other[IPv6Refusal] = ""
	}
	if preset != "ipv6-only" {
		other[UDPRate] = none // at the rates tried here; see TestRate
	}
	if !truth.UDP {
		for _, field := range []string{UDPRate, MTU, NATUDPMapping, NATUDPFiltering, NATUDPKeepsPort} {
			other[field] = ""
		}
	}
	switch base {
	case "egress-443": // a SYN does not reach a quiet port either
		other[Filter] = ""
	case "http-proxy":
		for _, field := range []string{Inbound, Filter, Refusal, NATMapping, NATFiltering, NATKeepsPort, Stripped} {
			other[field] = ""
		}
	case "nat", "nat-answers", "nat-fullcone", "nat-1to1", "nat-ipv6":
		if hidden { // the gateway translates its own packets to themselves
			other[NATMapping], other[NATFiltering], other[NATKeepsPort] = "none", "none", "false"
			other[NATUDPMapping], other[NATUDPFiltering], other[NATUDPKeepsPort] = "none", "none", "false"
			if base == "nat-1to1" {
				other[Filter] = "none"
			}
		}
	}
	return other
}

// want returns the value of a field of a profile in the form of a finding.
func want(p overlay.SiteProfile, field string) string {
	if strings.HasPrefix(field, "ipv6_rules.") {
		return Value(p, field)
	}
	return map[string]string{
		Inbound: p.Inbound.String(), Filter: p.Filter.String(), Refusal: p.Refusal.String(),
		NATMapping: p.NAT.Mapping.String(), NATFiltering: p.NAT.Filtering.String(), NATKeepsPort: fmt.Sprint(p.NAT.KeepsPort),
		NATUDPMapping: p.DatagramNAT().Mapping.String(), NATUDPFiltering: p.DatagramNAT().Filtering.String(), NATUDPKeepsPort: fmt.Sprint(p.DatagramNAT().KeepsPort),
		Egress: p.Egress.String(), UDP: fmt.Sprint(p.UDP), MTU: bound{value: uint64(p.MTU)}.String(),
		IPv6: fmt.Sprint(p.IPv6), IPv6Only: fmt.Sprint(p.IPv6Only), Privileged: fmt.Sprint(p.Privileged), HighPortsOnly: "false",
	}[field]
}

// TestPresets measures every kind of gateway of the lab, from a node or from the gateway itself,
// and compares with the preset's profile.
func TestPresets(t *testing.T) {
	spec := lab.Spec{
		WAN:   lab.WAN{Default: wan.Shape{Delay: 5 * time.Millisecond}},
		Sites: []lab.Site{{Name: "pub", Preset: lab.Public, Nodes: []string{"broker", "proxy"}}},
	}
	presets := lab.Presets()
	truths := map[string]overlay.SiteProfile{}
	for _, preset := range presets {
		truth, err := lab.Profile(preset)
		if err != nil {
			t.Fatal(err)
		}
		truths[preset] = truth
	}
	checkPresets(t, spec, presets, truths)
}

// checkPresets brings up a site of each preset and measures it.
func checkPresets(t *testing.T, spec lab.Spec, presets []string, truths map[string]overlay.SiteProfile) {
	for i, preset := range presets {
		spec.Sites = append(spec.Sites, lab.Site{Name: fmt.Sprintf("s%d", i), Preset: preset, Nodes: lab.Nodes(1)})
	}
	l, err := lab.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	g := newLabGrid(t, l)
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, 12) // all at once would be too much for a busy machine
	for i, preset := range presets {
		site := fmt.Sprintf("s%d", i)
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			checkPreset(t, l, g, site, preset, truths[preset])
		})
	}
}

// repeats is how often a measurement is made again whose result was wrong: it takes a late answer for
// none, and some of fifty sites at once are late on a busy machine.
const repeats = 2

func checkPreset(t *testing.T, l *lab.Lab, g *labGrid, site, preset string, truth overlay.SiteProfile) {
	host := l.Host(site + "/n1")
	if truth.GatewayOnly {
		host = l.Host(site + "/gw")
	}
	opts := Options{Grid: g, Ports: truth.Ports, Do: host.Do, Rates: rates[:2], Raw: traverse.Available, Port443: simopen.MayBind443}
	if l.Proxy(site) != nil {
		opts.HTTPProxy = carrier.HTTPProxy{Addr: net.JoinHostPort(l.Host(site+"/proxy").Addr().String(), "3128")}
	}
	var r Result
	for more := repeats; ; more-- {
		o, err := Measure(t.Context(), opts)
		if err != nil {
			t.Errorf("%s: %v", preset, err)
			return
		}
		r = Infer(o)
		faults := differences(g, preset, truth, o, r)
		if len(faults) == 0 {
			break
		}
		if more == 0 {
			t.Errorf("%s: %s\n%+v", preset, strings.Join(faults, "\n"), o)
			break
		}
		t.Logf("%s, measured again: %s", preset, strings.Join(faults, "\n"))
	}
	text := preset + ":"
	for _, f := range r.Findings {
		text += fmt.Sprintf("\n  %-14s %-22s %s", f.Field, f.Value, f.How)
	}
	t.Log(text)
}

// differences returns what a measurement got wrong about a site of a preset.
func differences(g *labGrid, preset string, truth overlay.SiteProfile, o Observations, r Result) (faults []string) {
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, v := range slices.Concat(o.TCP, o.UDP) {
		if v.Socket == 0 && v.To.Addr() != g.broker.Addr() {
			wrong("the socket that strangers call has asked %v, too", v.To)
		}
	}
	other := cannotTell(preset, truth)
	if !g.broker.Addr6().IsValid() {
		other[IPv6] = ""
	}
	for _, field := range Fields() {
		expected := want(truth, field)
		if v, ok := other[field]; ok {
			expected = v
		}
		if f := r.Finding(field); f.Value != expected || f.How == "" {
			wrong("%s is %q, want %q: %s", field, f.Value, expected, f.How)
		}
	}
	if udp := r.Profile.NATUDP; udp != truth.NATUDP {
		wrong("nat_udp is %+v, want %+v", udp, truth.NATUDP)
	}
	if r.Profile.Ports != truth.Ports && r.Finding(Inbound).Value == want(truth, Inbound) {
		wrong("ports %v", r.Profile.Ports)
	}
	return faults
}

// newLab brings up sites of the given presets, named s0, s1 and so on, and the
// reflectors, until the test ends.
func newLab(t *testing.T, sites ...lab.Site) (*lab.Lab, *labGrid) {
	t.Helper()
	spec := lab.Spec{
		WAN:   lab.WAN{Default: wan.Shape{Delay: 5 * time.Millisecond}},
		Sites: []lab.Site{{Name: "pub", Preset: lab.Public, Nodes: []string{"broker", "proxy"}}},
	}
	for i, s := range sites {
		s.Name, s.Nodes = fmt.Sprintf("s%d", i), lab.Nodes(1)
		spec.Sites = append(spec.Sites, s)
	}
	l, err := lab.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, newLabGrid(t, l)
}

// TestRate distinguishes what is throttled, and at which rate, from what is not; whether the
// throttle applies to datagrams only, or to everything, makes no difference.
func TestRate(t *testing.T) {
	sites := []lab.Site{
		{Preset: "stateful"}, {Preset: "udp-slow"}, {Preset: "nat", Uplink: 1_000_000}, {Preset: "no-route/udp-slow"},
	}
	l, g := newLab(t, sites...)
	var wg sync.WaitGroup
	for i, s := range sites {
		host := l.Host(fmt.Sprintf("s%d/n1", i))
		if strings.HasPrefix(s.Preset, "no-route/") {
			host = l.Host(fmt.Sprintf("s%d/gw", i))
		}
		wg.Go(func() { checkRate(t, g, host, s, i == 0) })
	}
	wg.Wait()
}

// checkRate measures from host, which is at a free site or at one of 1 Mb/s.
func checkRate(t *testing.T, g *labGrid, host *lab.Host, s lab.Site, free bool) {
	var o Observations
	var f Finding
	right := false
	for more := repeats; ; more-- {
		var err error
		if o, err = Measure(t.Context(), Options{Grid: g, Do: host.Do}); err != nil {
			t.Error(err)
			return
		}
		r := Infer(o)
		rate := float64(r.Profile.UDPRate)
		f = r.Finding(UDPRate)
		right = free == (f.Value == none) && (free || rate >= 1e6/1.5 && rate <= 1e6*1.5)
		if right || more == 0 {
			break
		}
	}
	if !right {
		t.Errorf("%s, uplink %d: udp_rate is %q: %s\n%+v", s.Preset, s.Uplink, f.Value, f.How, o.Rate)
	}
	bytes := 0
	for i, step := range o.Rate {
		if _, size := shape(step.Rate); !accidental(o.Rate, i) {
			bytes += step.Sent * size
		}
	}
	if bytes > 530_000 {
		t.Errorf("%s: %d bytes were sent", s.Preset, bytes)
	}
	t.Logf("%s, uplink %d: %s, %d bytes: %s", s.Preset, s.Uplink, f.Value, bytes, f.How)
}

// accidental reports whether a step showed a limit that the next one at its rate did not: a moment in
// which the machine was busy, for which Measure sends that rate once more.
func accidental(steps []RateStep, i int) bool {
	same := func(s RateStep) bool { return s.Rate == steps[i].Rate && s.Echoed == steps[i].Echoed }
	next := slices.IndexFunc(steps[i+1:], same)
	return steps[i].limited() && next >= 0 && !steps[i+1+next].limited()
}

// TestIdle leaves mappings idle for longer than gateways keep them, which are configured to three
// seconds, and for less.
func TestIdle(t *testing.T) {
	t.Parallel()
	sites := []lab.Site{
		{Preset: "open"}, {Preset: "stateful"}, {Preset: "nat"}, {Preset: "nat-symmetric"},
		{Preset: "egress-443"}, {Preset: "no-route/stateful"},
	}
	wants := []string{"5+ 5+", "2 2", "2 2", "2 2", "2 ", "2 2"}
	l, g := newLab(t, sites...)
	var wg sync.WaitGroup
	for i, s := range sites {
		gateway, host := l.Host(fmt.Sprintf("s%d/gw", i)), l.Host(fmt.Sprintf("s%d/n1", i))
		if strings.HasPrefix(s.Preset, "no-route/") {
			host = gateway
		}
		if s.Preset != "open" {
			forgetful(t, gateway, "3")
		}
		wg.Go(func() {
			o, err := MeasureIdle(t.Context(), Options{Grid: g, Do: host.Do}, []time.Duration{time.Second, 2 * time.Second, 5 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			f := o.Findings()
			if got := f[0].Value + " " + f[1].Value; got != wants[i] {
				t.Errorf("%s: idle TCP and UDP %q, want %q\n%+v", s.Preset, got, wants[i], o)
			}
			t.Logf("%s: %+v", s.Preset, f)
		})
	}
	wg.Wait()
}

// forgetful sets how long a gateway keeps idle state.
func forgetful(t *testing.T, gateway *lab.Host, seconds string) {
	t.Helper()
	err := gateway.Do(func() error {
		for _, key := range []string{"udp_timeout", "udp_timeout_stream", "tcp_timeout_established"} {
			if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_"+key, []byte(seconds), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestToldMTU: where a router reports the maximum packet size, the result is exact to the byte,
// unlike where large packets vanish (mtu-1400, among TestPresets).
func TestToldMTU(t *testing.T) {
	t.Parallel()
	l, g := newLab(t, lab.Site{Preset: "stateful"})
	if err := l.Host("s0/gw").Do(func() error { return lab.SetMTU("wan0", 1410) }); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ host, want, word string }{
		{"s0/n1", "1410", "router"},
		{"s0/gw", none, "interface of 1410"}, // which knows it without a router
	} {
		o, err := Measure(t.Context(), Options{Grid: g, Do: l.Host(tc.host).Do, Rates: rates[:1]})
		if err != nil {
			t.Fatal(err)
		}
		if f := Infer(o).Finding(MTU); f.Value != tc.want || !strings.Contains(f.How, tc.word) {
			t.Errorf("%s: %+v, %+v", tc.host, f, o.Sizes)
		}
	}
}

// TestDoubleNATForgets: the timeout of a carrier's NAT counts, not the gateway before it.
func TestDoubleNATForgets(t *testing.T) {
	t.Parallel()
	l, g := newLab(t, lab.Site{Preset: "nat-double", UDPLife: 3 * time.Second})
	o, err := MeasureIdle(t.Context(), Options{Grid: g, Do: l.Host("s0/n1").Do}, []time.Duration{time.Second, 2 * time.Second, 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if f := o.Findings(); f[0].Value != "5+" || f[1].Value != "2" {
		t.Errorf("%+v", f)
	}
}

// A cancelled measurement ends at once, and reports nothing that it does not know.
func TestIdleEndsWithItsContext(t *testing.T) {
	l, g := newLab(t, lab.Site{Preset: "open"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	scheduled := make(chan struct{}, 2)
	done := make(chan IdleObservations, 1)
	go func() {
		o, err := MeasureIdle(ctx, Options{Grid: reporting{g, scheduled}, Do: l.Host("s0/n1").Do}, []time.Duration{reflector.MaxAfter})
		if err != nil {
			t.Error(err)
		}
		done <- o
	}()
	for range 2 {
		select {
		case <-scheduled:
		case <-ctx.Done():
			t.Fatal("no delayed answer was asked for")
		}
	}
	cancel()
	o := <-done
	for _, f := range o.Findings() {
		if f.HasValue() || !strings.Contains(f.How, "ended early") {
			t.Errorf("%+v", f)
		}
	}
}

// reporting reports each delayed answer.
type reporting struct {
	*labGrid
	made chan struct{}
}

func (p reporting) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	resp, err := p.labGrid.CallBack(ctx, req)
	p.made <- struct{}{}
	return resp, err
}
