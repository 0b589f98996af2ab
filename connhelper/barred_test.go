package connhelper

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/connhelper/race"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A step that failed several times is tried last, but not by who looks for a better path than its own.
func TestBarredSteps(t *testing.T) {
	const direct, reversed, punching, relay = overlay.Direct, overlay.Reversed, overlay.HolePunching, overlay.Relay
	follow := &race.Slot{Winner: race.DialResult{Technique: relay}, Follow: true}
	type list []overlay.Technique
	for _, tc := range []struct {
		name             string
		plan             list
		barred, inferior list
		ways             overlay.Ways
		slot             *race.Slot
		steps, last      list
		skipped          []string
	}{
		{name: "none is barred", plan: list{direct, relay}, steps: list{direct, relay}},
		{name: "one of two", plan: list{direct, relay}, barred: list{direct}, steps: list{relay}, last: list{direct}},
		{name: "the only one", plan: list{direct}, barred: list{direct}, steps: list{direct}},
		{name: "all", plan: list{direct, reversed}, barred: list{direct, reversed}, steps: list{direct, reversed}},
		{name: "for a better path", plan: list{direct, punching, relay}, barred: list{direct}, ways: overlay.DirectOnly, steps: list{punching},
			skipped: []string{"direct: not tried: it failed", "relay: not tried: a way without a relay is looked for"}},
		{name: "the only one, for a better path", plan: list{direct}, barred: list{direct}, ways: overlay.DirectOnly, skipped: []string{"direct: not tried: it failed"}},
		{name: "beside another dial", plan: list{direct, relay}, barred: list{direct}, ways: overlay.AllWays | overlay.SmallPackets, steps: list{relay},
			skipped: []string{"direct: not tried: it failed"}},
		{name: "the other one is slow", plan: list{direct, punching}, barred: list{direct}, inferior: list{punching}, steps: list{punching}, last: list{direct}},
		{name: "slow and barred", plan: list{direct, punching}, barred: list{direct}, inferior: list{direct}, steps: list{punching}, last: list{direct}},
		{name: "the slow before the barred", plan: list{direct, reversed, relay}, barred: list{direct}, inferior: list{reversed}, steps: list{relay}, last: list{reversed, direct}},
		{name: "what others try comes before both", plan: list{direct, reversed, punching, relay}, barred: list{direct}, inferior: list{reversed}, slot: follow, steps: list{relay}, last: list{punching, reversed, direct}},
	} {
		to := target{ways: tc.ways, memory: memory{barred: map[overlay.Technique]string{}, inferior: map[overlay.Technique]string{}}}
		for _, s := range tc.plan {
			to.plan.Steps = append(to.plan.Steps, overlay.Step{Technique: s})
		}
		for _, b := range tc.barred {
			to.memory.barred[b] = "it failed"
		}
		for _, b := range tc.inferior {
			to.memory.inferior[b] = "it is slow"
		}
		if tc.slot == nil {
			tc.slot = new(race.Slot)
		}
		named := func(steps []overlay.Step) (l list) {
			for _, s := range steps {
				l = append(l, s.Technique)
			}
			return l
		}
		steps, last, skipped := to.eligible(tc.slot)
		if !slices.Equal(named(steps), tc.steps) || !slices.Equal(named(last), tc.last) || !slices.Equal(skipped, tc.skipped) {
			t.Errorf("%s: %v, last %v, skipped %q; want %v, %v, %q", tc.name, named(steps), named(last), skipped, tc.steps, tc.last, tc.skipped)
		}
	}
}

// A dial that has no other way takes the barred one, and its error names what it tried and what it
// had no time to try.
func TestBarredIsTriedLast(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct, overlay.Reversed, overlay.Relay)
	f.memory = &controlpb.Memory{Barred: []*controlpb.Barred{{Technique: uint32(overlay.Direct), Reason: "failed 3 times in a row"}}}
	f.fails = map[overlay.Technique]error{overlay.Reversed: overlay.ErrTimeout, overlay.Relay: overlay.ErrUnreachable}
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	path, c := r0.dialled(1)
	_, in := r1.incoming()
	joined(t, c, in)
	if path.Technique != overlay.Direct {
		t.Errorf("path %+v", path)
	}
	f.mu.Lock()
	name := overlay.ProcessName{Job: key.ID(), Rank: 1}
	point := f.points[name]
	point.Local = netip.AddrPort{} // cannot be dialled
	f.points[name] = point
	f.mu.Unlock()
	r0.failedAs(1, 3*time.Second, wire.CodeUnreachable, "reversed: "+overlay.ErrTimeout.Error(), "relay: "+overlay.ErrUnreachable.Error(), "direct: unreachable")
	to := target{memory: memory{barred: map[overlay.Technique]string{overlay.Direct: "failed 3 times in a row"}}}
	entries := race.LineUp([]overlay.Step{{Technique: overlay.Relay}}, []overlay.Step{{Technique: overlay.Direct}}, race.DialResult{})
	if got := to.untried(entries, []race.Outcome[readyConn]{{Entry: 0}}); !slices.Equal(got, []string{"direct: no time was left to try it, because it is tried last: failed 3 times in a row"}) {
		t.Errorf("what was not tried: %q", got)
	}
}

// A call of another site's process is reported to the frontal, once for many, and so is a full NAT.
func TestCallsAreReported(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	s1, stop := f.helper("a1")
	later := time.Now().Add(time.Hour)
	f.last.reports.calls.due("sited", reportPause, later)
	f.last.outbound.proxies.NATFull(7)
	f.last.reports.fullNAT.due("", fullReportEvery, later)
	f.last.outbound.proxies.NATFull(8)
	key := newKey(t)
	r0 := join(t, s1, key, 0)
	name := overlay.ProcessName{Job: key.ID(), Rank: 0}
	f.mu.Lock()
	addr := f.points[name].Local.String()
	f.mu.Unlock()
	for _, intro := range []wire.Intro{
		{From: overlay.NodeID{Site: "sitea", Name: "a2"}, Technique: overlay.Direct},
		{From: overlay.NodeID{Site: "siteb", Name: "b1"}, Technique: overlay.SimultaneousOpen}, // through a gateway
		{From: overlay.NodeID{Site: "sited", Name: "d1"}, Technique: overlay.PortRange},        // reported already
		{From: overlay.NodeID{Site: "sitec", Name: "c1"}, Technique: overlay.PortRange},
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		intro.Kind, intro.Job = wire.IntroProcess, key.ID()
		if _, err := c.Write(wire.Append(nil, &intro)); err != nil {
			t.Fatal(err)
		}
		r0.incoming()
	}
	testkit.Until(t, "both are reported", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.reports) > 0 && len(f.full) > 0
	})
	stop() // waits for other reports
	want := &controlpb.ReportRequest{Target: control.ProcessToPB(name), Generation: 1, TargetSite: "sitec", Called: uint32(overlay.PortRange)}
	if len(f.reports) != 1 || !proto.Equal(f.reports[0], want) {
		t.Errorf("reports %v, want %v", f.reports, want)
	}
	if !slices.Equal(f.full, []uint32{7}) {
		t.Errorf("a full NAT with %v connections is reported", f.full)
	}
}

func TestReportTimes(t *testing.T) {
	var c reportTimes
	t0 := time.Unix(1_000_000, 0)
	for _, tc := range []struct {
		site  string
		after time.Duration
		want  bool
	}{
		{"b", 0, true}, {"b", 0, false}, {"c", 0, true}, {"b", reportPause - 1, false}, {"b", reportPause, true}, {"c", reportPause, true}, {"b", 2*reportPause - 1, false},
	} {
		if got := c.due(tc.site, reportPause, t0.Add(tc.after)); got != tc.want {
			t.Errorf("%s after %v: %v", tc.site, tc.after, got)
		}
	}
	for i := range 3 * maxReportTimes {
		c.due(fmt.Sprint(i), reportPause, t0)
	}
	if len(c.last) > maxReportTimes {
		t.Errorf("%d sites are remembered", len(c.last))
	}
}

// A dial waits longer for an answer, or for a daemon to come back, than for a path.
func TestPatienceWith(t *testing.T) {
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{overlay.ErrTimeout, longPersistence},
		{overlay.ErrUnreachable, persistence},
		{&attemptsError{[]string{"relay: away"}, fmt.Errorf("frontal a: %w", overlay.ErrNoSession)}, longPersistence},
		{fmt.Errorf("frontal b: %w", overlay.ErrUnknownSite), longPersistence},
	} {
		if got := patienceWith(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// The report of a relay that failed names the proxy, so that another one is chosen.
func TestFailedProxyIsReported(t *testing.T) {
	for _, tc := range []struct {
		cause error
		want  string
	}{
		{nil, ""}, {overlay.ErrTimeout, ""}, {fmt.Errorf("relay: %w", &proxyError{"p1", overlay.ErrTimeout}), "p1"},
	} {
		r := reportOf(target{}, overlay.Relay, time.Second, tc.cause)
		if r.Proxy != tc.want || (r.Fault != nil) != (tc.cause != nil) {
			t.Errorf("%v: %v", tc.cause, r)
		}
	}
}
