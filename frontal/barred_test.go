package frontal

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/frontal/outcomes"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Each kind of news that the frontal hears about another site reaches its memory of techniques.
func TestNewsEndBars(t *testing.T) {
	const direct, relay = overlay.Direct, overlay.Relay
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	pair, plan := outcomes.Pair{Own: "a1", Far: "siteb/b1"}, uint64(0)
	barred := func() bool {
		_, bars := r.f.memory.Advice("siteb", pair, plan, time.Now())
		return len(bars) > 0
	}
	// disturb bars direct until long after the test by failures that began 6 s ago, beside a relay that
	// works. A new plan discards what was there.
	disturb := func() {
		plan++
		now := time.Now()
		r.f.memory.Connected("siteb", pair, plan, relay, time.Millisecond, now)
		for _, after := range []time.Duration{-6, -6, -6, 10, 40, 100, 220, 460} {
			r.f.memory.Failed("siteb", pair, plan, direct, "silence", now.Add(after*time.Second))
		}
		if !barred() {
			t.Fatal("nothing is barred")
		}
	}
	called := func(site string, technique overlay.Technique, last *controlpb.SignalEvent) {
		t.Helper()
		h.signalTarget = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			if err := out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED}); err != nil {
				return err
			}
			return out.Send(last)
		}
		if _, err := r.broker.signalTarget(&controlpb.Signal{
			Link: []byte{7}, Technique: uint32(technique), Asker: control.ProcessToPB(proc(9)), AskerSite: site, AskerNode: "b1", Target: control.ProcessToPB(proc(0)), TargetGeneration: 1,
		}); err != nil {
			t.Fatal(err)
		}
	}
	report := func(req *controlpb.ReportRequest) error {
		_, err := h.dir.Report(h.ctx(), req)
		return control.FromStatus(err)
	}
	connected := &controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED}
	failed := &controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(overlay.ErrTimeout)}
	signal := func(by func(*controlpb.SignalRequest, grpc.ServerStreamingServer[controlpb.SignalEvent]) error) {
		r.broker.locked(func() { r.broker.signal = by })
		h.signal(signalRequest(relay, 0))
	}
	away := func(*controlpb.SignalRequest, grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return control.Status(fmt.Errorf("broker main: %w", overlay.ErrUnknownSite))
	}
	if _, err := h.ask(9, false); err != nil { // so that the frontal knows the site of rank 9
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		news func()
		ends bool
	}{
		{"a call that failed", func() { called("siteb", overlay.Reversed, failed) }, false},
		{"a call by a relay", func() { called("siteb", relay, connected) }, false},
		{"a call of another site", func() { called("sitec", overlay.Reversed, connected) }, false},
		{"a call", func() { called("siteb", overlay.Reversed, connected) }, true},
		{"a call that a helper saw", func() {
			if err := report(&controlpb.ReportRequest{Target: control.ProcessToPB(proc(0)), Generation: 1, TargetSite: "siteb", Called: uint32(direct)}); err != nil {
				t.Error(err)
			}
		}, true},
		{"the broker calls a site that was not away", func() { signal(sendAll(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ASSIGNED})) }, false},
		{"the broker says that the site is away", func() { signal(away) }, false},
		{"the broker calls a site that was away", func() {
			signal(away)
			signal(sendAll(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ASSIGNED}))
		}, true},
		{"the broker is away and back", func() {
			r.broker.stop()
			r.until("the session has ended", func() bool { return !r.f.up.Up() })
			r.broker.start()
			r.until("the bar has ended", func() bool { return !barred() }) // soon after the session is up
		}, true},
	} {
		disturb()
		if tc.news(); barred() == tc.ends {
			t.Errorf("%s: barred %v, want %v", tc.name, tc.ends, !tc.ends)
		}
	}
	r.broker.locked(func() {
		if len(r.broker.reports) > 0 {
			t.Errorf("the broker was told of a call: %v", r.broker.reports)
		}
	})
	if err := report(&controlpb.ReportRequest{Target: control.ProcessToPB(proc(0)), TargetSite: "siteb", Called: 99}); err == nil {
		t.Error("a call by an unknown technique is accepted")
	}
}
