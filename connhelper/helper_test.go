package connhelper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

var open = overlay.SiteProfile{Inbound: overlay.InboundOpen}

func TestSameNode(t *testing.T) {
	f := newFakeFrontal(t, open)
	socket, _ := f.helper("a1")
	key := newKey(t)
	r0, r1 := join(t, socket, key, 0), join(t, socket, key, 1)
	path, c := r0.dialled(1)
	in, d := r1.incoming()
	if path.String() != "same node" || in.String() != "same node" || path.Peer.String() != "sitea/a1" {
		t.Errorf("paths %+v, %+v", path, in)
	}
	joined(t, c, d)
}

func TestDirect(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	path, c := r0.dialled(1)
	if path.Technique != overlay.Direct || path.Peer.String() != "sitea/a2" || path.Reason != "the test says so" || path.Setup <= 0 {
		t.Errorf("path %+v", path)
	}
	in, d := r1.incoming()
	if in.Technique != overlay.Direct || in.Peer.String() != "sitea/a1" {
		t.Errorf("incoming path %+v", in)
	}
	joined(t, c, d)
}

// A technique of one more row is carried out and counted.
func TestAddedTechnique(t *testing.T) {
	const added overlay.Technique = 20
	t.Cleanup(overlay.Register(added, "test", overlay.AskerDials, 5)) // the last to be undone: after the helpers
	attempts[added] = attempts[overlay.Direct]
	t.Cleanup(func() { delete(attempts, added) })
	f := newFakeFrontal(t, open, added, overlay.Direct)
	s1, _ := f.helper("a1")
	asker := f.last
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	path, c := r0.dialled(1)
	in, d := r1.incoming()
	if path.Technique != added || in.Technique != added {
		t.Errorf("paths %+v, %+v", path, in)
	}
	joined(t, c, d)
	if n := asker.delivery.dials.connected[added].Load(); n != 1 {
		t.Errorf("%d dials are counted", n)
	}
}

// TestNoPlanInsideTheSite: the directory gives no plan, and the nodes dial.
func TestNoPlanInsideTheSite(t *testing.T) {
	f := newFakeFrontal(t, open)
	f.noPlan = true
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	path, c := r0.dialled(1)
	_, d := r1.incoming()
	if path.Technique != overlay.Direct || path.Reason != "both processes run at sitea" {
		t.Errorf("path %+v", path)
	}
	joined(t, c, d)
}

func TestReversed(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Reversed)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	path, c := r0.dialled(1)
	in, d := r1.incoming()
	if path.Technique != overlay.Reversed || in.Technique != overlay.Reversed || in.Peer.String() != "sitea/a1" {
		t.Errorf("paths %+v, %+v", path, in)
	}
	joined(t, c, d)
}

// startRelay acts as a proxy: it answers observe frames, reads the tickets of two connections and
// joins them in memory.
func (f *fakeFrontal) startRelay(want wire.Frame) {
	ln := testkit.Listen(f.t)
	f.mu.Lock()
	f.relay = &controlpb.Assignment{Proxy: "p1", Addresses: []string{ln.Addr().String()}, Ticket: wire.Append(nil, want)}
	f.mu.Unlock()
	go func() { // ends with the listener and the test's connections
		var ends []net.Conn
		for len(ends) < 2 {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			got, err := wire.Read(c)
			if err == nil && got.Type() == wire.TypeObserve {
				c.Write(wire.Append(nil, &wire.Observed{From: c.RemoteAddr().(*net.TCPAddr).AddrPort(), Time: time.Now()}))
				continue // the dialler closes it
			}
			if errors.Is(err, io.EOF) {
				f.mu.Lock()
				f.unused++
				f.mu.Unlock()
				continue
			}
			if err != nil || got.Type() != want.Type() {
				f.t.Errorf("the relay read %+v, %v", got, err)
			}
			ends = append(ends, c)
		}
		go io.Copy(ends[0], ends[1])
		io.Copy(ends[1], ends[0])
	}()
}

func TestRelay(t *testing.T) {
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	path, c := r0.dialled(1)
	in, d := r1.incoming()
	if path.String() != "relay through p1" || in.String() != "relay through p1" {
		t.Errorf("paths %v, %v", path, in)
	}
	joined(t, c, d)
}

// TestWays: a process that requests a way other than the best gets it, and its result is not taken
// for the best by others.
func TestWays(t *testing.T) {
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Direct, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	for _, tc := range []struct {
		ways overlay.Ways
		want overlay.Technique
	}{{overlay.RelayOnly, overlay.Relay}, {overlay.DirectOnly, overlay.Direct}, {overlay.AllWays, overlay.Direct}} {
		path, c := r0.dialledBy(1, tc.ways)
		in, d := r1.incoming()
		if path.Technique != tc.want || in.Technique != tc.want {
			t.Errorf("%v: %v, %v", tc.ways, path, in)
		}
		joined(t, c, d)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.reports {
		if overlay.Technique(r.Technique) == overlay.Relay && r.TargetSite != "" {
			t.Errorf("the relay was reported: %v", r)
		}
	}
}

// TestOutcome: a technique has connected when the process reports that the link's handshake is
// done, and failed when it reports a failure; one carrier counts once, and those that the process
// was not handed do not count.
func TestOutcome(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	d, c := r0.dial(1, overlay.AllWays)
	defer c.Close()
	_, in := r1.incoming()
	defer in.Close()
	r1.send(&wire.LocalOutcome{Carrier: d.Carrier, Code: wire.CodeTimeout, Text: "another's"})
	r0.send(&wire.LocalOutcome{Carrier: d.Carrier + 1000, Code: wire.CodeTimeout, Text: "nobody's"})
	r0.send(&wire.LocalOutcome{Carrier: d.Carrier, Code: wire.CodeTimeout, Text: "no proof came"})
	r0.send(&wire.LocalOutcome{Carrier: d.Carrier})
	d, c = r0.dial(1, overlay.AllWays)
	defer c.Close()
	r0.send(&wire.LocalOutcome{Carrier: d.Carrier})
	var faults []string
	for deadline := time.Now().Add(30 * time.Second); len(faults) < 2; runtime.Gosched() {
		f.mu.Lock()
		faults = nil
		for _, r := range f.reports {
			faults = append(faults, r.Fault.GetText())
		}
		f.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("reports of %q", faults)
		}
	}
	slices.Sort(faults) // separate calls report them
	if len(faults) != 2 || faults[0] != "" || !strings.Contains(faults[1], "no proof came") {
		t.Errorf("reports of %q", faults)
	}
}

// TestInferior: a technique that connects and carries far less than another is used when nothing
// else connects, and not before; the path says why, and the report of a process that gives a path
// up after its handshake is accepted, once.
func TestInferior(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct, overlay.Reversed)
	f.memory = &controlpb.Memory{Barred: []*controlpb.Barred{{Technique: uint32(overlay.Direct), Reason: "direct carried 0.3 Mb/s", Inferior: true}}}
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	d, c := r0.dial(1, overlay.AllWays)
	_, in := r1.incoming()
	joined(t, c, in)
	if d.Path.Technique != overlay.Reversed || !strings.HasSuffix(d.Path.Reason, "; direct carried 0.3 Mb/s") {
		t.Errorf("path %+v", d.Path)
	}
	for _, code := range []wire.Code{0, 0, wire.CodeInferior, wire.CodeInferior} {
		r0.send(&wire.LocalOutcome{Carrier: d.Carrier, Code: code, Text: "reversed carried 0.1 Mb/s"})
	}
	var faults []wire.Code
	for deadline := time.Now().Add(30 * time.Second); len(faults) < 2; runtime.Gosched() {
		f.mu.Lock()
		faults = nil
		for _, r := range f.reports {
			faults = append(faults, wire.Code(r.Fault.GetCode()))
			if text := r.Fault.GetText(); r.Fault != nil && text != "reversed carried 0.1 Mb/s" {
				t.Errorf("the fault is %q", text)
			}
		}
		f.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("reports of %v", faults)
		}
	}
	slices.Sort(faults)
	if want := []wire.Code{0, wire.CodeInferior}; !slices.Equal(faults, want) {
		t.Errorf("reports of %v, want %v", faults, want)
	}
	f.mu.Lock()
	f.fails = map[overlay.Technique]error{overlay.Reversed: overlay.ErrRefused}
	f.mu.Unlock()
	d, c = r0.dial(1, overlay.AllWays)
	_, in = r1.incoming()
	joined(t, c, in)
	if d.Path.Technique != overlay.Direct {
		t.Errorf("path %+v", d.Path)
	}
	for budget := time.Second; ; budget *= 10 { // a busy machine may let a short one pass
		failed := r0.failedBy(1, overlay.DirectOnly, budget)
		if strings.Contains(failed.Text, "direct: not tried: direct carried 0.3 Mb/s") {
			break
		}
		if budget > time.Minute {
			t.Errorf("got %q", failed.Text)
			break
		}
	}
}

// TestFallback: a step that fails is reported and the next one taken.
func TestFallback(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct, overlay.Reversed)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	f.mu.Lock()
	name := overlay.ProcessName{Job: key.ID(), Rank: 1}
	point := f.points[name]
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	point.Local = dead.Addr().(*net.TCPAddr).AddrPort()
	dead.Close() // a port without a listener
	f.points[name] = point
	f.mu.Unlock()
	path, c := r0.dialled(1)
	_, d := r1.incoming()
	joined(t, c, d)
	if path.Technique != overlay.Reversed {
		t.Errorf("path %+v", path)
	}
	byTechnique := map[overlay.Technique]*controlpb.ReportRequest{}
	for deadline := time.Now().Add(30 * time.Second); len(byTechnique) < 2; runtime.Gosched() {
		f.mu.Lock()
		for _, r := range f.reports {
			byTechnique[overlay.Technique(r.Technique)] = r
		}
		f.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("reports %v", byTechnique)
		}
	}
	if r := byTechnique[overlay.Direct]; !strings.Contains(r.Fault.GetText(), "refused") || r.TargetSite != "sitea" {
		t.Errorf("report of the failure: %v", r)
	}
	if r := byTechnique[overlay.Reversed]; r.Fault != nil || r.SetupUs == 0 {
		t.Errorf("report of the success: %v", r)
	}
}

// TestBusyIsNotReported: overload of a daemon or process does not count against the technique that
// needed it, and the process gets the other failures as its error.
func TestBusyIsNotReported(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct, overlay.Reversed, overlay.Relay)
	s1, stop := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0 := join(t, s1, key, 0)
	join(t, s2, key, 1)
	f.mu.Lock()
	name := overlay.ProcessName{Job: key.ID(), Rank: 1}
	point := f.points[name]
	point.Local = netip.AddrPort{} // cannot be dialled
	f.points[name] = point
	f.fails = map[overlay.Technique]error{overlay.Reversed: overlay.ErrPortRangeFull, overlay.Relay: overlay.ErrOverloaded}
	f.mu.Unlock()
	r0.failedAs(1, time.Second, wire.CodeUnreachable, "direct: unreachable", "reversed: "+overlay.ErrPortRangeFull.Error(), "relay: "+overlay.ErrOverloaded.Error())
	stop() // waits for reports in flight
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.reports) == 0 {
		t.Error("nothing was reported")
	}
	for _, r := range f.reports {
		if overlay.Technique(r.Technique) != overlay.Direct {
			t.Errorf("reported: %v", r)
		}
	}
}

// TestAside: for which reasons a technique may fail, and whether they count against it.
func TestAside(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, overlay.ErrTimeout)
	defer cancel()
	overTheWire := func(err error) error { return control.FaultErr(control.Fault(err)) }
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{overTheWire(fmt.Errorf("frontal sitea: %w", overlay.ErrNoSession)), true},
		{overTheWire(overlay.ErrUnknownSite), true},
		{overTheWire(overlay.ErrUnknownProcess), true},
		{overTheWire(overlay.ErrStale), true},
		{overTheWire(overlay.ErrOverloaded), true},
		{signalling.Unanswered(ctx, controlpb.SignalEvent_ACCEPTED), true},
		{fmt.Errorf("%w: %w", overlay.ErrTimeout, signalling.Unanswered(ctx, controlpb.SignalEvent_ASSIGNED)), true},
		{overTheWire(overlay.ErrUnreachable), false},
		{overTheWire(overlay.ErrTimeout), false},
		{overTheWire(overlay.ErrRefused), false},
		{overTheWire(overlay.ErrNoPath), false},
	} {
		if got := isSkipped(tc.err); got != tc.want {
			t.Errorf("%v: %t", tc.err, got)
		}
	}
}

// TestGist: a dial is tried again where what failed may pass, also beside techniques for which nothing will change.
func TestGist(t *testing.T) {
	away := fmt.Errorf("relay: %w", overlay.ErrUnknownSite)
	silent := fmt.Errorf("simultaneous-open: %w", overlay.ErrTimeout)
	unplanned := fmt.Errorf("hole-punching: %w", overlay.ErrNoPath)
	busy := fmt.Errorf("relay: %w", overlay.ErrOverloaded)
	for _, tc := range []struct {
		errs []error
		want error
	}{
		{nil, nil},
		{[]error{unplanned}, unplanned},
		{[]error{away, unplanned}, away},
		{[]error{unplanned, away}, away},
		{[]error{away, silent, unplanned}, silent},
		{[]error{silent, away}, silent},
		{[]error{busy, away}, away},
		{[]error{away, busy}, away},
		{[]error{busy, silent}, silent},
	} {
		if got := gist(tc.errs); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.errs, got, tc.want)
		}
	}
}

// TestLostFrontalIsNotReported: a frontal that goes away in the middle of a signalling request ends
// it, which is not reported as a failure of the technique; the dial continues with the next
// session.
func TestLostFrontalIsNotReported(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Reversed)
	s1, stop1 := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0 := join(t, s1, key, 0)
	join(t, s2, key, 1)
	f.mu.Lock()
	f.ends = 2
	f.mu.Unlock()
	path, c := r0.dialled(1)
	if path.Technique != overlay.Reversed {
		t.Errorf("connected by %v", path)
	}
	c.Close()
	stop1() // waits for reports in flight
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends != 0 {
		t.Errorf("%d sessions were not ended", f.ends)
	}
	for _, r := range f.reports {
		if r.Fault != nil {
			t.Errorf("reported: %v", r)
		}
	}
}

// The end of a session while a process is being registered on it is not a refusal of the process,
// which is registered on the next one.
func TestSessionEndsWhileRegistering(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Reversed)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0 := join(t, s1, key, 0)
	join(t, s2, key, 1)
	f.mu.Lock()
	f.ends, f.endsAgain = 1, 2
	f.mu.Unlock()
	_, c := r0.dialled(1)
	c.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.endsAgain != 0 {
		t.Errorf("%d registrations did not end their session", f.endsAgain)
	}
}

func TestWaitsForAProcessThatStartsLater(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0 := join(t, s1, key, 0)
	r0.send(&wire.LocalDial{Request: 1, Rank: 1, Budget: 20 * time.Second})
	testkit.Until(t, "the question is there", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.resolves > 1
	})
	r1 := join(t, s2, key, 1)
	frame, c := r0.next()
	if _, ok := frame.(*wire.LocalDialled); !ok {
		t.Fatalf("got %+v", frame)
	}
	_, d := r1.incoming()
	joined(t, c, d)
}

// A process whose socket ends has died, and its diallers learn it at once; one that announced that
// it leaves may come back.
func TestDeathAndLeave(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, dead, left := join(t, s1, key, 0), join(t, s2, key, 1), join(t, s2, key, 2)
	dead.conn.Close()
	left.send(&wire.LocalLeave{})
	left.conn.Close()
	testkit.Until(t, "both are withdrawn", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.points) == 1
	})
	if got := r0.failed(1, time.Minute); got.Code != wire.CodeEnded {
		t.Errorf("to the dead: %+v", got)
	}
	r0.failedAs(2, 300*time.Millisecond, wire.CodeUnknownProcess) // it left
}

// A watcher's report of the dead of a job reaches the job's processes: those that are registered
// and those that register later, until it is forgotten.
func TestDeadAreTold(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	socket, _ := f.helper("a1")
	h := f.last
	key, other := newKey(t), newKey(t)
	r0, stranger := join(t, socket, key, 0), join(t, socket, other, 0)
	many := make([]uint32, wire.MaxDead+1)
	for i := range many {
		many[i] = uint32(i + 10)
	}
	h.Dead(key.ID(), many, "a test says so")
	h.Dead(other.ID(), []uint32{7}, "here, too")
	expect := func(p *rank, want []uint32) {
		t.Helper()
		for len(want) > 0 {
			f, _ := p.next()
			news, ok := f.(*wire.LocalDead)
			if !ok || len(news.Ranks) == 0 || len(news.Ranks) > len(want) || !slices.Equal(news.Ranks, want[:len(news.Ranks)]) {
				t.Fatalf("got %+v, want %d", f, want)
			}
			want = want[len(news.Ranks):]
		}
	}
	expect(r0, many)
	expect(stranger, []uint32{7})
	expect(join(t, socket, key, 1), many)
	h.Forget(key.ID())
	h.Dead(key.ID(), []uint32{8}, "another")
	expect(join(t, socket, key, 2), []uint32{8})
}

// TestFailures: each ends within its budget, with its class and these words.
func TestFailures(t *testing.T) {
	key := newKey(t)
	t.Run("never starts", func(t *testing.T) {
		f := newFakeFrontal(t, open, overlay.Direct)
		s1, _ := f.helper("a1")
		join(t, s1, key, 0).failedAs(9, 100*time.Millisecond, wire.CodeUnknownProcess,
			"for it to start; it has not registered with any helper")
	})
	t.Run("never starts, says a frontal too late", func(t *testing.T) {
		f := newFakeFrontal(t, open, overlay.Direct)
		f.late = true
		s1, _ := f.helper("a1")
		join(t, s1, key, 0).failedAs(9, 500*time.Millisecond, wire.CodeUnknownProcess,
			"for it to start; it has not registered with any helper")
	})
	t.Run("never starts, by a frontal that does not wait", func(t *testing.T) {
		f := newFakeFrontal(t, open, overlay.Direct)
		f.old = true
		s1, _ := f.helper("a1")
		join(t, s1, key, 0).failedAs(9, 500*time.Millisecond, wire.CodeUnknownProcess,
			"for it to start; it has not registered with any helper")
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.resolves > 20 {
			t.Errorf("it was asked %d times", f.resolves)
		}
	})
	t.Run("no broker, and then no answer", func(t *testing.T) {
		f := newFakeFrontal(t, open, overlay.Direct)
		f.away = true
		s1, _ := f.helper("a1")
		join(t, s1, key, 0).failedAs(9, time.Second, wire.CodeNoSession, "the broker is stopped")
	})
	t.Run("itself", func(t *testing.T) {
		f := newFakeFrontal(t, open, overlay.Direct)
		s1, _ := f.helper("a1")
		join(t, s1, key, 0).failedAs(0, time.Second, wire.CodeRefused, "does not dial itself")
	})
	t.Run("no technique", func(t *testing.T) {
		f := newFakeFrontal(t, open)
		f.plan.Rejected = []overlay.Rejection{{Technique: overlay.Relay, Reason: "sitea lets nothing out"}}
		s1, _ := f.helper("a1")
		s2, _ := f.helper("a2")
		r0 := join(t, s1, key, 0)
		join(t, s2, key, 1)
		r0.failedAs(1, time.Second, wire.CodeNoPath, "at sitea/a2: no technique connects the sites: relay: sitea lets nothing out")
	})
	t.Run("nothing but the relay", func(t *testing.T) {
		f := newFakeFrontal(t, open, overlay.Relay)
		f.plan.Rejected = []overlay.Rejection{{Technique: overlay.Direct, Reason: "sitea lets nothing in"}}
		s1, _ := f.helper("a1")
		s2, _ := f.helper("a2")
		r0 := join(t, s1, key, 0)
		join(t, s2, key, 1)
		want := "at sitea/a2: relay: not tried: a way without a relay is looked for; direct: sitea lets nothing in"
		if got := r0.failedBy(1, overlay.DirectOnly, time.Minute); got.Code != wire.CodeNoPath || !strings.HasSuffix(got.Text, want) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("no proxy answers", func(t *testing.T) {
		f := newFakeFrontal(t, open, overlay.Relay)
		f.relay = &controlpb.Assignment{Proxy: "p1", Addresses: []string{nowhere}}
		s1, _ := f.helper("a1")
		s2, _ := f.helper("a2")
		r0 := join(t, s1, key, 0)
		join(t, s2, key, 1)
		r0.failedAs(1, time.Second, wire.CodeRefused, "relay: proxy p1: ", "127.0.0.1:1")
	})
	t.Run("forbidden address", func(t *testing.T) {
		f := newFakeFrontal(t, open, overlay.Relay)
		f.relay = &controlpb.Assignment{Proxy: "p1", Addresses: []string{"169.254.169.254:80"}}
		s1, _ := f.helper("a1")
		s2, _ := f.helper("a2")
		r0 := join(t, s1, key, 0)
		join(t, s2, key, 1)
		if got := r0.failed(1, time.Minute); got.Code != wire.CodeForbidden || !strings.Contains(got.Text, "169.254.169.254:80 is not an address that a helper dials") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("frontal away", func(t *testing.T) {
		f := newFakeFrontal(t, open)
		f.addr = nowhere
		s1, _ := f.helper("a1")
		join(t, s1, key, 0).failedAs(1, 50*time.Millisecond, wire.CodeNoSession,
			"helper sitea/a1 has had no session with its frontal at 127.0.0.1:1 since ")
	})
}

// TestRefusedProcesses: a process that may not register gets the reason.
func TestRefusedProcesses(t *testing.T) {
	f := newFakeFrontal(t, open)
	socket, _ := f.helper("a1")
	key, other := newKey(t), newKey(t)
	stranger := hello(key, 0, 1)
	stranger.Key = other.Auth().Public()
	forger := hello(key, 0, 1)
	forger.auth = other.Auth()
	current := say2helper(t, socket, hello(key, 3, 5))
	current.next()
	for name, tc := range map[string]struct {
		first wire.Frame
		code  wire.Code
		text  string
	}{
		"another job's key":  {stranger, wire.CodeForbidden, fmt.Sprintf("process %d of user %d does not hold the key of job %s", os.Getpid(), os.Getuid(), key.ID())},
		"a forged signature": {forger, wire.CodeForbidden, "the key of the job has not signed that"},
		"a life to come":     {hello(key, 0, 1<<63), wire.CodeForbidden, "generation 9223372036854775808 is no time"},
		"no hello":           {&wire.LocalDial{}, wire.CodeMalformed, "a local dial in place of a local hello"},
		"an older life":      {hello(key, 3, 4), wire.CodeStale, "has started again since (generation 5, not 4)"},
	} {
		got, _ := say2helper(t, socket, tc.first).next()
		refusal, ok := got.(*wire.Refuse)
		if !ok || refusal.Code != tc.code || !strings.Contains(refusal.Text, tc.text) || refusal.By != "helper sitea/a1" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f.mu.Lock()
	f.refuse = fmt.Errorf("%w: job is not welcome", overlay.ErrForbidden)
	f.mu.Unlock()
	got, _ := say2helper(t, socket, hello(key, 7, 1)).next()
	if refusal, ok := got.(*wire.Refuse); !ok || refusal.Code != wire.CodeForbidden || !strings.Contains(refusal.Text, "job is not welcome") {
		t.Errorf("refused by the directory: %+v", got)
	}
}

// TestStrangersAtTheDataPort: garbage, truncated frames and unknown names get a readable refusal,
// and nothing reaches a process.
func TestStrangersAtTheDataPort(t *testing.T) {
	f := newFakeFrontal(t, open)
	socket, _ := f.helper("a1")
	key := newKey(t)
	join(t, socket, key, 0)
	f.mu.Lock()
	addr := f.points[overlay.ProcessName{Job: key.ID(), Rank: 0}].Local.String()
	f.mu.Unlock()
	for name, tc := range map[string]struct {
		say  []byte
		code wire.Code
		text string
	}{
		"HTTP":            {[]byte("GET / HTTP/1.1\r\n\r\n"), wire.CodeMalformed, "not an Isthmus frame: it starts with 47 45"},
		"another version": {[]byte{'I', 'S', 9, 1, 0, 0}, wire.CodeVersion, "the peer speaks version 9, this side 1"},
		"a lying length":  {[]byte{'I', 'S', 1, 1, 0xff, 0xff}, wire.CodeMalformed, "intro says it has 65535 bytes, at most 4096 are allowed"},
		"unknown process": {wire.Append(nil, &wire.Intro{Kind: wire.IntroProcess, Job: key.ID(), Rank: 5}), wire.CodeUnknownProcess, "no rank 5 of job"},
		"old connect-id":  {wire.Append(nil, &wire.Intro{Kind: wire.IntroReverse, Job: key.ID()}), wire.CodeStale, "no process here expects this connection"},
		"carry":           {wire.Append(nil, &wire.Intro{Kind: wire.IntroCarry, Job: key.ID()}), wire.CodeForbidden, "a helper does not relay for others"},
		"a hello":         {wire.Append(nil, &wire.Proof{}), wire.CodeMalformed, "a proof in place of an intro"},
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(tc.say)
		c.SetReadDeadline(time.Now().Add(30 * time.Second))
		got, err := wire.Read(c)
		if refusal, ok := got.(*wire.Refuse); !ok || refusal.Code != tc.code || !strings.Contains(refusal.Text, tc.text) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		c.Close()
	}
}

// TestCarriersOutliveTheHelper: connections live on after the helpers that made them are gone, and
// processes that come back connect again.
func TestCarriersOutliveTheHelper(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	s1, stop1 := f.helper("a1")
	s2, stop2 := f.helper("a2")
	key := newKey(t)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	_, c := r0.dialled(1)
	_, d := r1.incoming()
	stop1()
	stop2()
	joined(t, c, d)
	s1, _ = f.helper("a1")
	s2, _ = f.helper("a2")
	r0, r1 = join(t, s1, key, 0), join(t, s2, key, 1)
	_, c = r0.dialled(1)
	_, d = r1.incoming()
	joined(t, c, d)
}

// TestPortRangeFull: a helper that finds no port in the range opens none outside, and its processes
// can still dial.
func TestPortRangeFull(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	f := newFakeFrontal(t, overlay.SiteProfile{Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: port, Last: port}}, overlay.Direct)
	socket, _ := f.helper("a1")
	key := newKey(t)
	join(t, socket, key, 0)
	f.mu.Lock()
	point := f.points[overlay.ProcessName{Job: key.ID(), Rank: 0}]
	f.mu.Unlock()
	if point.Local.IsValid() || point.Public.IsValid() {
		t.Errorf("registered %+v", point)
	}
	s2, _ := f.helper("a2")
	join(t, s2, key, 1).failedAs(0, time.Second, wire.CodeUnreachable,
		"direct: unreachable: sitea/a1 listens nowhere that this site can dial; its port range may be full")
}

// TestLinksLeakNothing opens and closes many links of every kind and counts goroutines and
// descriptors.
func TestLinksLeakNothing(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	key := newKey(t)
	r0, r1, r2 := join(t, s1, key, 0), join(t, s2, key, 1), join(t, s1, key, 2)
	techniques := []overlay.Technique{overlay.Direct, overlay.Reversed}
	once := func(i int) {
		f.mu.Lock()
		f.plan.Steps = []overlay.Step{{Technique: techniques[i%2]}}
		f.mu.Unlock()
		peer := r1
		to := uint32(1)
		if i%3 == 0 {
			peer, to = r2, 2
		}
		_, c := r0.dialled(to)
		_, d := peer.incoming()
		joined(t, c, d)
		c.Close()
		d.Close()
	}
	for i := range 6 {
		once(i)
	}
	goroutines, descriptors := settle(t, 0, 0)
	for i := range 100 {
		once(i)
	}
	settle(t, goroutines, descriptors)
}

// settle waits until there are no more goroutines and descriptors than given, or, given zero,
// returns how many there are.
func settle(t *testing.T, maxGoroutines, maxDescriptors int) (int, int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		fds, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Fatal(err)
		}
		g, d := runtime.NumGoroutine(), len(fds)
		if maxGoroutines == 0 || g <= maxGoroutines+4 && d <= maxDescriptors+2 {
			return g, d
		}
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines and %d descriptors became %d and %d\n%s", maxGoroutines, maxDescriptors, g, d, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

func TestWrongCertificate(t *testing.T) {
	f := newFakeFrontal(t, open)
	creds, err := f.ca.Credentials(control.Identity{Role: control.RoleProxy, Name: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Credentials: creds}); err == nil || !strings.Contains(err.Error(), "the certificate is that of proxy p1; a helper needs a helper's certificate") {
		t.Errorf("%v", err)
	}
}
