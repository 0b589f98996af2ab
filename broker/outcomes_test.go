package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func TestOutcomes(t *testing.T) {
	var o outcomes
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	o.note("b", "a", overlay.Relay, 40, 0, "", at(1))
	o.note("a", "b", overlay.Relay, 41, 0, "", at(2))
	o.note("a", "b", overlay.Direct, 0, wire.CodeTimeout, "silence", at(3))
	o.note("a", "b", overlay.Direct, 20, 0, "", at(4))
	want := []OutcomeStatus{
		{"a", "b", overlay.Direct, 1, 1, 20, "silence", at(4), at(3)},
		{"a", "b", overlay.Relay, 1, 0, 41, "", at(2), time.Time{}},
		{"b", "a", overlay.Relay, 1, 0, 40, "", at(1), time.Time{}},
	}
	got := o.status()
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if l := o.latest("a", "b"); len(l) != 3 || l[0].At != at(4) || l[2].At != at(2) {
		t.Errorf("latest: %+v", l)
	}
	for i := range int64(maxLatest) {
		o.note("c", "d", overlay.Direct, 0, wire.CodeTimeout, strings.Repeat("ü", maxReason), at(10+i))
	}
	if l := o.latest("a", "b"); l != nil {
		t.Errorf("not forgotten: %+v", l)
	}
	l := o.latest("c", "d")
	if len(l) != maxRows || l[0].At != at(9+maxLatest) || l[1].At != at(8+maxLatest) || len(l[0].Reason) > maxReason {
		t.Errorf("%d latest, the first of %v, of %d bytes", len(l), l[0].At, len(l[0].Reason))
	}
}

// Outcomes of sites that are not known any more are removed, and what is kept of a long reason is a copy.
func TestOutcomesAreDropped(t *testing.T) {
	var o outcomes
	long := strings.Repeat("x", 64<<10)
	o.note("a", "b", overlay.Direct, 0, wire.CodeTimeout, long, time.Unix(1, 0))
	o.note("b", "c", overlay.Direct, 20, 0, "", time.Unix(1, 0))
	o.note("d", "a", overlay.Direct, 20, 0, "", time.Unix(1, 0))
	if r := o.status()[0].Reason; len(r) != maxReason || unsafe.StringData(r) == unsafe.StringData(long) {
		t.Errorf("a reason of %d bytes, in the memory of the one that was reported", len(r))
	}
	o.drop(func(site overlay.SiteID) bool { return site == "a" || site == "b" })
	if s := o.status(); len(s) != 1 || s[0].Asker != "a" || s[0].Target != "b" {
		t.Errorf("%+v", s)
	}
}

// A frontal cannot make the broker keep what it invents: reports about sites of no grid, and counts
// of bytes to them.
func TestInventedSites(t *testing.T) {
	g := newGrid(t)
	g.start()
	a, _ := g.frontal(openA, nil), g.frontal(closedB, nil)
	report := func(site string) {
		t.Helper()
		if _, err := a.directory.Report(g.ctx(), &controlpb.ReportRequest{
			Target: control.ProcessToPB(rank(0)), TargetSite: site, Technique: uint32(overlay.Direct), Fault: &controlpb.Fault{Code: 5, Text: strings.Repeat("x", 32<<10)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		report(fmt.Sprint("made-up", i))
	}
	report("siteb")
	if s := g.b.Status().Outcomes; len(s) != 1 || s[0].Target != "siteb" || s[0].Failed != 1 || len(s[0].Reason) > maxReason {
		t.Errorf("%d outcomes: %.300v", len(s), s)
	}
	if n := len(g.b.outcomes.ring); n != 1 {
		t.Errorf("%d latest outcomes", n)
	}
	counts := &controlpb.TrafficRequest{Life: 1, Pairs: []*controlpb.PairTraffic{{From: "sitea", To: "siteb", Bytes: 5}}}
	for i := range 100 {
		counts.Pairs = append(counts.Pairs, &controlpb.PairTraffic{From: "sitea", To: fmt.Sprint("made-up", i), Bytes: 1})
	}
	if _, err := controlpb.NewTrafficClient(a.s.Conn()).Report(g.ctx(), counts); err != nil {
		t.Fatal(err)
	}
	if f := g.b.Status().Traffic; len(f) != 2 || f[0].To != "-" || f[0].From != "sitea" || f[0].Bytes != 100 || f[1].Bytes != 5 {
		t.Errorf("%+v", f)
	}
	if log := g.logs.String(); strings.Count(log, "made-up99") > 1 || len(log) > 1<<20 {
		t.Errorf("%d bytes are logged", len(log))
	}
}

// A call with many refused items is some lines in the log and a count.
func TestRefusedItemsAreCounted(t *testing.T) {
	g := newGrid(t)
	g.start()
	a := g.frontal(openA, nil)
	register, publish := &controlpb.RegisterRequest{}, &controlpb.PublishRequest{}
	for range 300 {
		register.Points = append(register.Points, &controlpb.AccessPoint{})
		publish.Names = append(publish.Names, &controlpb.Publication{})
	}
	points, err := a.directory.Register(g.ctx(), register)
	if err != nil || len(points.Faults) != 300 {
		t.Errorf("%d faults, %v", len(points.GetFaults()), err)
	}
	names, err := a.directory.Publish(g.ctx(), publish)
	if err != nil || len(names.Faults) != 300 {
		t.Errorf("%d faults, %v", len(names.GetFaults()), err)
	}
	log := g.logs.String()
	for _, want := range []string{"access point refused", "name refused"} {
		if n := strings.Count(log, want); n != maxLogged {
			t.Errorf("%d lines of %q", n, want)
		}
	}
	for _, want := range []string{"more access points refused", "more names refused"} {
		if strings.Count(log, want) != 1 {
			t.Errorf("no line of %q with a count", want)
		}
	}
}

// What the broker counts by technique, it counts of one more.
func TestAddedTechniqueIsCounted(t *testing.T) {
	const added overlay.Technique = overlay.MaxTechniques - 1
	defer overlay.Register(added, "test", overlay.AskerDials, 25)()
	var o outcomes
	var c counters
	o.note("a", "b", overlay.HolePunching, 20, 0, "", time.Unix(1, 0))
	o.note("a", "b", added, 20, 0, "", time.Unix(1, 0))
	if s := o.status(); len(s) != 2 || s[0].Technique != added {
		t.Errorf("outcomes %+v, want the preferred one first", s)
	}
	c.byTech[added].asked.Add(1)
	if s := c.status(0).Signalling; s[added].Asked != 1 {
		t.Errorf("counters %v", s)
	}
}

// A proxy that did not carry a node's links, as the node says, gets none of them while there is another, whatever capacity
// it claims, and none of its site once a second node says so.
func TestFailedProxy(t *testing.T) {
	g := newGrid(t)
	g.start()
	a, _ := g.frontal(openA, nil), g.frontal(closedB, nil)
	g.proxy("p1", "192.0.2.1:443")
	g.proxy("p2", "192.0.2.2:443")
	report := func(technique overlay.Technique, node string, fault error) error {
		t.Helper()
		req := &controlpb.ReportRequest{Target: control.ProcessToPB(rank(0)), TargetSite: "siteb", Technique: uint32(technique), Proxy: "p1", Node: node}
		if fault != nil {
			req.Fault = control.Fault(fault)
		}
		_, err := a.directory.Report(g.ctx(), req)
		return err
	}
	avoids := func(when string, want bool, nodes ...overlay.NodeID) {
		t.Helper()
		for _, node := range nodes {
			count := 0
			for range 4 {
				p, err := g.b.proxies.Assign(registry.LeastLoaded, registry.Need{Site: node.Site, Node: node.Name, Now: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				if p.Name == "p1" {
					count++
				}
			}
			if want != (count == 0) {
				t.Errorf("%s: of 4 links of %v, p1 is assigned %d", when, node, count)
			}
		}
	}
	a1, a2, a3, b1 := overlay.NodeID{Site: "sitea", Name: "a1"}, overlay.NodeID{Site: "sitea", Name: "a2"}, overlay.NodeID{Site: "sitea", Name: "a3"}, overlay.NodeID{Site: "siteb", Name: "b1"}
	for _, c := range []struct {
		technique   overlay.Technique
		node        string
		fault       error
		avoid, take []overlay.NodeID
	}{
		{overlay.Relay, "a1", nil, nil, []overlay.NodeID{a1, a2, a3, b1}},
		{overlay.Direct, "a1", overlay.ErrTimeout, nil, []overlay.NodeID{a1, a2, a3, b1}},
		{overlay.Relay, "a1", overlay.ErrTimeout, []overlay.NodeID{a1}, []overlay.NodeID{a2, a3, b1}},
		{overlay.Relay, "a2", overlay.ErrTimeout, []overlay.NodeID{a1, a2, a3}, []overlay.NodeID{b1}},
	} {
		if err := report(c.technique, c.node, c.fault); err != nil {
			t.Fatal(err)
		}
		when := fmt.Sprintf("after %s says of %v: %v", c.node, c.technique, c.fault)
		avoids(when, true, c.avoid...)
		avoids(when, false, c.take...)
	}
	if err := control.FromStatus(report(overlay.Relay, "A 1", overlay.ErrTimeout)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a node with no name for one: %v", err)
	}
}

// Whose failures count for a link is the node at which its asker is registered.
func TestFailedProxyOfAskersNode(t *testing.T) {
	g, b, _ := pairGrid(t, events(accepted, connected), nil)
	g.proxy("p1", "192.0.2.7:443")
	g.proxy("p2", "192.0.2.8:443")
	if _, err := b.directory.Report(g.ctx(), &controlpb.ReportRequest{
		Target: control.ProcessToPB(rank(1)), TargetSite: "sitec", Technique: uint32(overlay.Relay), Fault: control.Fault(overlay.ErrTimeout), Proxy: "p1", Node: "n1",
	}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if list, err := signal(g.ctx(), b, relayRequest()); err != nil || list[0].Relay.Proxy != "p2" {
			t.Fatalf("%v, %v", list, err)
		}
	}
	if p, err := g.b.proxies.Assign(registry.LeastLoaded, registry.Need{Site: "siteb", Node: "n2", Now: time.Now()}); err != nil || p.Name != "p1" {
		t.Errorf("another node gets %s, %v", p.Name, err)
	}
}

// An asker in doubt about a proxy gets another one.
func TestOtherProxyIsAssigned(t *testing.T) {
	g, b, _ := pairGrid(t, events(accepted, connected), nil)
	g.proxy("p1", "192.0.2.7:443")
	g.proxy("p2", "192.0.2.8:443")
	for range 4 {
		req := relayRequest()
		req.OtherThan = "p1"
		if list, err := signal(g.ctx(), b, req); err != nil || list[0].Relay.Proxy != "p2" {
			t.Fatalf("%v, %v", list, err)
		}
	}
	req := relayRequest()
	req.OtherThan = "P1\n"
	if err := control.FromStatus(signalErr(g.ctx(), b, req)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("other than no name: %v", err)
	}
}
