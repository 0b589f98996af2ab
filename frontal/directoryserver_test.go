package frontal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// hold makes the broker's answers wait for the returned function.
func (b *fakeBroker) hold() (release func()) {
	gate := make(chan struct{})
	b.locked(func() {
		inner := b.resolve
		b.resolve = func(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
			select {
			case <-gate:
				return inner(ctx, req)
			case <-ctx.Done():
				return nil, control.Status(ctx.Err()) // an answer might still be in time by the asker's clock
			}
		}
	})
	return sync.OnceFunc(func() { close(gate) })
}

// askAll lets p processes of the site look up one peer at once and returns how many got the
// expected generation.
func askAll(t *testing.T, h *fakeHelper, p int, generation uint64) (right int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range p {
		wg.Go(func() {
			a, err := h.ask(9, false)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if a.Point.Generation == generation && a.PlanIfNew.GetDigest() == a.Plan && a.Plan != 0 {
				right++
			}
		})
	}
	wg.Wait()
	return right
}

// TestOneQuestionForTheSite: P ranks look up the same peer at once, and the broker gets one
// question; the peer restarts, and it gets one more.
func TestOneQuestionForTheSite(t *testing.T) {
	const p = 64
	r := newRig(t, nil)
	h := r.helper("a1")
	release := r.broker.hold()
	go func() {
		r.until("all have asked", func() bool { c := r.f.resolver.Counters(); return c.Misses+c.Shared == p })
		release()
	}()
	if right := askAll(t, h, p, 1); right != p {
		t.Errorf("%d of %d got the answer", right, p)
	}
	if n := r.broker.calls(); n != 1 {
		t.Fatalf("the broker was asked %d times, want 1", n)
	}
	if right := askAll(t, h, p, 1); right != p || r.broker.calls() != 1 {
		t.Errorf("warm: %d answers, %d calls", right, r.broker.calls())
	}
	if c := r.f.resolver.Counters(); c.Misses != 1 || c.Shared != p-1 || c.Hits != p || c.Calls != 1 || c.Entries != 1 || c.Plans != 1 {
		t.Errorf("counters %+v", c)
	}

	r.broker.locked(func() { r.broker.resolve = r.broker.everybodyAtSiteB(2) })
	for range p { // every rank finds the old address dead
		if _, err := h.dir.Report(h.ctx(), &controlpb.ReportRequest{Target: control.ProcessToPB(proc(9)), Generation: 1, Technique: uint32(overlay.Direct), Fault: control.Fault(overlay.ErrRefused)}); err != nil {
			t.Fatal(err)
		}
		if a, err := h.ask(9, false); err != nil || a.Point.Generation != 2 {
			t.Fatalf("after the restart: %v, %v", a, err)
		}
	}
	if n := r.broker.calls(); n != 2 {
		t.Errorf("the broker was asked %d times in all, want 2", n)
	}
	r.broker.mu.Lock()
	second := r.broker.resolves[1]
	r.broker.mu.Unlock()
	if len(second.CachedPlans) != 1 {
		t.Errorf("the second question knows plans %v, want one", second.CachedPlans)
	}
	if c := r.f.resolver.Counters(); c.Dropped != 1 {
		t.Errorf("%d entries were dropped, want 1", c.Dropped)
	}
	r.until("the broker has the reports", func() bool {
		r.broker.mu.Lock()
		defer r.broker.mu.Unlock()
		return len(r.broker.reports) == p
	})
}

// TestQuestionsGather: questions that arrive during a call go into one next call.
func TestQuestionsGather(t *testing.T) {
	const k = 50
	r := newRig(t, nil)
	h := r.helper("a1")
	release := r.broker.hold()
	var wg sync.WaitGroup
	wg.Go(func() { h.ask(100, false) })
	r.until("the first question is under way", func() bool { return r.broker.calls() == 1 })
	for i := range k {
		wg.Go(func() {
			if a, err := h.ask(uint32(i), false); err != nil || a.Point.Process.Rank != uint32(i) {
				t.Errorf("rank %d: %v, %v", i, a, err)
			}
		})
	}
	r.until("all have asked", func() bool { return r.f.resolver.Counters().Misses == k+1 })
	release()
	wg.Wait()
	if n := r.broker.calls(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

func TestFreshReplaces(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.ask(9, false)
	r.broker.locked(func() { r.broker.resolve = r.broker.everybodyAtSiteB(2) })
	if a, err := h.ask(9, false); err != nil || a.Point.Generation != 1 {
		t.Errorf("from the cache: %v, %v", a, err)
	}
	if a, err := h.ask(9, true); err != nil || a.Point.Generation != 2 {
		t.Errorf("fresh: %v, %v", a, err)
	}
	if a, err := h.ask(9, false); err != nil || a.Point.Generation != 2 {
		t.Errorf("from the cache afterwards: %v, %v", a, err)
	}
	if n := r.broker.calls(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
	r.broker.locked(func() {
		if !r.broker.resolves[1].Questions[0].Fresh {
			t.Error("the broker was not told that the question is fresh")
		}
	})
}

// TestFreshDoesNotJoinACallUnderWay: its answer may be older than the reason for the fresh
// question.
func TestFreshDoesNotJoinACallUnderWay(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	release := r.broker.hold()
	var wg sync.WaitGroup
	wg.Go(func() { h.ask(9, false) })
	r.until("a call is under way", func() bool { return r.broker.calls() == 1 })
	wg.Go(func() { h.ask(9, true) })
	r.until("both have asked", func() bool { return r.f.resolver.Counters().Misses == 2 })
	release()
	wg.Wait()
	if n := r.broker.calls(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// TestFaultsAndLies: a fault is not cached, and an answer that cannot be right is a fault.
func TestFaultsAndLies(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	for _, tc := range []struct {
		what   string
		answer *controlpb.Answer
		plan   *controlpb.Plan
		class  error
		text   string
	}{
		{"fault", &controlpb.Answer{Fault: control.Fault(fmt.Errorf("broker main: %w: rank 9", overlay.ErrUnknownProcess))}, nil, overlay.ErrUnknownProcess, "broker main: process is not registered: rank 9"},
		{"another process", &controlpb.Answer{Point: pointAt(8, 1, "siteb", "b1")}, nil, overlay.ErrRefused, "it is about rank 8"},
		{"no plan", &controlpb.Answer{Point: pointAt(9, 1, "siteb", "b1"), Plan: 0xabc}, nil, overlay.ErrRefused, "it names a plan (0000000000000abc) that was never sent"},
		{"a plan for others", &controlpb.Answer{Point: pointAt(9, 1, "siteb", "b1"), Plan: planTo("sitec", "").Digest}, planTo("sitec", ""), overlay.ErrRefused, "its plan is for sitea to sitec"},
		{"no point", &controlpb.Answer{}, nil, overlay.ErrRefused, "the broker's answer about rank 9"},
	} {
		before := r.broker.calls()
		r.broker.locked(func() {
			r.broker.resolve = func(context.Context, *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
				resp := &controlpb.ResolveResponse{Answers: []*controlpb.Answer{tc.answer}}
				if tc.plan != nil {
					resp.Plans = append(resp.Plans, tc.plan)
				}
				return resp, nil
			}
		})
		for range 2 {
			if _, err := h.ask(9, false); !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%s: %v, want %q", tc.what, err, tc.text)
			}
		}
		if n := r.broker.calls() - before; n != 2 {
			t.Errorf("%s: the broker was asked %d times by two questions", tc.what, n)
		}
	}
	r.broker.locked(func() {
		r.broker.resolve = func(context.Context, *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
			return &controlpb.ResolveResponse{}, nil
		}
	})
	if _, err := h.ask(9, false); err == nil || !strings.Contains(err.Error(), "the broker gave 0 answers to 1 questions") {
		t.Errorf("no answers: %v", err)
	}
}

func TestMalformedQuestionsHaveTheirOwnFault(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	resp, err := h.dir.Resolve(h.ctx(), &controlpb.ResolveRequest{Questions: []*controlpb.Question{
		{Process: &controlpb.Process{Job: "no such form"}}, {Process: control.ProcessToPB(proc(3))}, {},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if a := resp.Answers; !errors.Is(control.FaultErr(a[0].Fault), wire.ErrMalformed) || a[1].Fault != nil || a[2].Fault == nil {
		t.Errorf("answers %v", a)
	}
}

// TestOwnProcessesNeedNoBroker: the site's own processes are known here.
func TestOwnProcessesNeedNoBroker(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(5)
	a, err := h.ask(5, false)
	if err != nil || a.Point.Local != h.ln.Addr().String() || a.Plan != 0 || r.broker.calls() != 0 {
		t.Errorf("%v, %v, %d calls", a, err, r.broker.calls())
	}
}

// away matches the error that a helper gets while the broker is unreachable.
func away(r *rig) *regexp.Regexp {
	return regexp.MustCompile(`^frontal sitea has no session with the broker at ` + regexp.QuoteMeta(r.broker.addr) + ` since \d\d:\d\d:\d\d: .+`)
}

// TestBrokerAway: cached answers remain usable, the rest fails with the cause, processes register
// nevertheless, and a new broker gets everything.
func TestBrokerAway(t *testing.T) {
	r := newRig(t, func(c *Config) { c.CacheAge = 1 }) // answers expire at once, and are still better than none
	h := r.helper("a1")
	h.register(1, 2)
	if _, err := h.ask(9, false); err != nil {
		t.Fatal(err)
	}
	r.broker.stop()
	r.until("the session is lost", func() bool { return !r.f.up.Up() })

	if _, err := h.ask(9, false); err != nil {
		t.Errorf("cached: %v", err)
	}
	_, err := h.ask(8, false)
	if !errors.Is(err, overlay.ErrUnreachable) || !away(r).MatchString(err.Error()) {
		t.Errorf("not cached: %v, want %v", err, away(r))
	}
	r.until("a try has failed", func() bool { return strings.Contains(r.f.up.Away().Error(), "nothing listens there") })
	_, err = h.signal(&controlpb.SignalRequest{Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(proc(1)), Target: control.ProcessToPB(proc(9))})
	if !errors.Is(err, overlay.ErrUnreachable) || !away(r).MatchString(err.Error()) {
		t.Errorf("signal: %v, want %v", err, away(r))
	}
	if err := h.await(8, 20*time.Millisecond); !errors.Is(err, overlay.ErrUnreachable) || !away(r).MatchString(err.Error()) {
		t.Errorf("await: %v", err)
	}
	h.register(3)
	if _, err := h.dir.Withdraw(h.ctx(), &controlpb.WithdrawRequest{Processes: []*controlpb.Withdrawal{{Process: control.ProcessToPB(proc(2)), Generation: 1}}}); err != nil {
		t.Errorf("withdraw: %v", err)
	}

	r.broker.locked(func() { clear(r.broker.registered) })
	r.broker.start()
	r.waitUp()
	r.until("all is registered again", func() bool { return r.broker.has(1) && r.broker.has(3) })
	if r.broker.has(2) {
		t.Error("a process that was withdrawn meanwhile is registered")
	}
	if _, err := h.ask(8, false); err != nil {
		t.Errorf("after the return: %v", err)
	}
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	if n := len(r.broker.joins); n != 2 || !r.broker.joins[1].Profile.GatewayOnly {
		t.Errorf("%d joins", n)
	}
	if p := r.broker.registered[1]; p.Public != r.f.gateway.PublicAddr.String() {
		t.Errorf("public address %q, want the gateway's %v", p.Public, r.f.gateway.PublicAddr)
	}
}

// TestShortOutagesAreWaitedFor: with some patience a restart causes no error.
func TestShortOutagesAreWaitedFor(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Patience = patience })
	h := r.helper("a1")
	r.broker.stop()
	r.until("the session is lost", func() bool { return !r.f.up.Up() })
	asked := make(chan error)
	go func() { _, err := h.ask(8, false); asked <- err }()
	r.until("the question waits", func() bool { return r.f.resolver.Counters().Calls == 1 })
	r.broker.start()
	if err := <-asked; err != nil {
		t.Error(err)
	}
}

// TestBrokerDiesUnderAQuestion: the question is sent to the next session.
func TestBrokerDiesUnderAQuestion(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Patience = patience })
	h := r.helper("a1")
	release := r.broker.hold()
	defer release()
	asked := make(chan error)
	go func() { _, err := h.ask(8, false); asked <- err }()
	r.until("the question is under way", func() bool { return r.broker.calls() == 1 })
	r.broker.stop()
	r.broker.locked(func() { r.broker.resolve = r.broker.everybodyAtSiteB(1) })
	r.broker.start()
	if err := <-asked; err != nil || r.broker.calls() != 2 {
		t.Errorf("%v, %d calls", err, r.broker.calls())
	}
}

// TestAwaitIsSharedToo: many wait for one process, the broker gets one call.
func TestAwaitIsSharedToo(t *testing.T) {
	const p = 40
	r := newRig(t, nil)
	h := r.helper("a1")
	started := make(chan struct{})
	r.broker.locked(func() { r.broker.resolve = r.broker.startsWhen(started, make(chan struct{}, p)) })
	err := h.await(9, 5*time.Millisecond)
	if want := `^frontal sitea: process is not registered: rank 9 of job \S+ did not start within \d+`; !errors.Is(err, overlay.ErrUnknownProcess) || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("not started: %v, want %s", err, want)
	}
	r.until("the call is given up when nobody waits", func() bool {
		return r.f.awaits.Waiters(proc(9)) == 0
	})
	before := r.broker.waits()
	var wg sync.WaitGroup
	for range p {
		wg.Go(func() {
			if err := h.await(9, patience); err != nil {
				t.Error(err)
			}
		})
	}
	r.until("all wait", func() bool {
		return r.f.awaits.Waiters(proc(9)) == p
	})
	close(started)
	wg.Wait()
	if n := r.broker.waits() - before; n != 1 {
		t.Errorf("the broker was asked %d times, want 1", n)
	}
	if err := h.await(9, 5*time.Millisecond); err != nil || r.broker.waits() != before+1 {
		t.Errorf("once known: %v, %d calls", err, r.broker.waits()-before)
	}
	a, err := h.dir.Await(h.ctx(), &controlpb.AwaitRequest{Process: control.ProcessToPB(proc(9)), WaitMs: 5})
	if err != nil || a.GetPoint().GetNode() != "b1" || a.PlanIfNew == nil {
		t.Errorf("asked by an older helper: %v, %v", a, err)
	}
}

// TestAwaitOutlivesABrokerRestart: the waiters notice nothing.
func TestAwaitOutlivesABrokerRestart(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	arrived := make(chan struct{}, 10)
	r.broker.locked(func() { r.broker.resolve = r.broker.startsWhen(nil, arrived) })
	got := make(chan error)
	go func() { got <- h.await(9, patience) }()
	testkit.Receive(t, "the question at the broker", arrived)
	r.broker.stop()
	r.broker.locked(func() { r.broker.resolve = r.broker.everybodyAtSiteB(1) })
	r.broker.start()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestBrokerThatDoesNotWait: one of the version before, or for which too many wait, is asked now and then.
func TestBrokerThatDoesNotWait(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	r.broker.locked(func() { r.broker.resolve = nobody })
	if err := h.await(9, time.Second); !errors.Is(err, overlay.ErrUnknownProcess) {
		t.Error(err)
	}
	if n := r.broker.waits(); n == 0 || n > 4 {
		t.Errorf("the broker was asked %d times", n)
	}
	r.f.waits.SetMax(1, 1)
	if err := r.f.waits.Take("a1", 1); err != nil {
		t.Fatal(err)
	}
	if err := h.await(9, patience); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "limits.waiting") {
		t.Errorf("too many wait here: %v", err)
	}
	r.f.waits.Give("a1", 1)
	began := r.broker.waits()
	r.broker.locked(func() {
		r.broker.resolve = func(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
			if r.broker.waits() > began+1 {
				return r.broker.everybodyAtSiteB(1)(ctx, req)
			}
			resp, err := nobody(ctx, req)
			if req.WaitMs > 0 {
				resp.Answers[0].Fault = control.Fault(overlay.ErrOverloaded)
			}
			return resp, err
		}
	})
	if err := h.await(9, patience); err != nil {
		t.Errorf("too many wait at first: %v", err)
	}
}

// TestHelperGone: its processes stay for the grace, then they are removed.
func TestHelperGone(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Grace = 200 * time.Millisecond })
	h := r.helper("a1")
	h.register(1, 2)
	r.until("the broker has them", func() bool { return r.broker.has(1) && r.broker.has(2) })
	h.s.Close()
	r.until("they are withdrawn", func() bool { return !r.broker.has(1) && !r.broker.has(2) })
	if s := r.f.status(); len(s.Helpers) != 0 || len(s.Jobs) != 0 {
		t.Errorf("left: %+v, %v", s.Helpers, s.Jobs)
	}
	if !strings.Contains(r.log.String(), "process dropped: its helper did not register it again in time") {
		t.Error("nothing in the log")
	}
}

// TestSecondSessionOfAProcessReplacesTheFirst: and what it registers stays.
func TestSecondSessionOfAProcessReplacesTheFirst(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(1)
	first := h.s
	h.join()
	h.register(1)
	select {
	case <-first.Done():
	case <-time.After(patience):
		t.Fatal("the first session was not ended")
	}
	h.signalTarget = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
	}
	events, err := r.broker.signalTarget(&controlpb.Signal{Technique: uint32(overlay.Relay), Target: control.ProcessToPB(proc(1)), TargetGeneration: 1})
	if err != nil || len(events) != 1 {
		t.Errorf("%v, %v", events, err)
	}
}

// Two hosts with one helper's certificate: the first stays the node's helper, and the second is refused
// whatever it calls, until the first is gone. The list of hosts and the status say so.
func TestTwoHostsWithOneCertificate(t *testing.T) {
	r := newRig(t, nil)
	id := control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"}
	first := r.helper("a1")
	first.register(1)
	if _, err := first.nodes.Enter(first.ctx(), &controlpb.EnterRequest{Offer: &controlpb.HostOffer{}}); err != nil {
		t.Fatal(err)
	}
	s, err := r.dialAs(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"Enter": func() error {
			_, err := controlpb.NewNodesClient(s.Conn()).Enter(first.ctx(), &controlpb.EnterRequest{})
			return err
		}(),
		"Register": func() error {
			_, err := controlpb.NewDirectoryClient(s.Conn()).Register(first.ctx(), &controlpb.RegisterRequest{})
			return err
		}(),
	} {
		err = control.FromStatus(err)
		for _, want := range []string{first.s.LocalAddr().String() + " keeps its session", s.LocalAddr().String() + " is refused", id.String()} {
			if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", what, err, want)
			}
		}
	}
	first.signalTarget = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
	}
	if events, err := r.broker.signalTarget(&controlpb.Signal{Technique: uint32(overlay.Relay), Target: control.ProcessToPB(proc(1)), TargetGeneration: 1}); err != nil || len(events) != 1 {
		t.Errorf("the first host is asked: %v, %v", events, err)
	}
	if own := r.f.hosts.Own(); len(own) != 1 || !strings.Contains(own[0].Note, "two hosts present the certificate of "+id.String()) {
		t.Errorf("hosts %+v", own)
	}
	if st := r.f.status().Helpers; len(st) != 1 || st[0].Contested == "" {
		t.Errorf("status %+v", st)
	}
	first.s.Close()
	r.until("the first host has gone", func() bool { return r.f.registry.Helpers()[0].Session == nil })
	r.helper("a1")
}

// TestRegisterRefusals: faults are in the order of their points, and refused points are not stored.
func TestRegisterRefusals(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	stale := fmt.Errorf("broker main: %w: rank 4", overlay.ErrStale)
	r.broker.locked(func() {
		r.broker.refuse = func(p *controlpb.AccessPoint) *controlpb.Fault {
			if p.Process.Rank == 4 {
				return control.Fault(stale)
			}
			return nil
		}
	})
	other, loopback, bad := h.point(2, 1), h.point(3, 1), h.point(6, 1)
	foreign, user, vouched := h.point(7, 1), h.point(8, 1), h.point(5, 1)
	foreign.Principal, user.Principal = control.PrincipalToPB(overlay.AccountAt("alice", "siteb")), control.PrincipalToPB(overlay.Principal{User: "alice", Project: "climate"})
	vouched.Principal = control.PrincipalToPB(overlay.AccountAt("alice", "sitea"))
	other.Node, loopback.Local, bad.Local = "a2", "169.254.169.254:80", "nowhere"
	resp, err := h.dir.Register(h.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{h.point(1, 1), other, loopback, h.point(4, 1), vouched, bad, foreign, user}})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		class error
		text  string
	}{
		{overlay.ErrForbidden, "frontal sitea: not permitted: helper sitea/a1 may not register a process of node sitea/a2"},
		{overlay.ErrForbidden, "at 169.254.169.254:80, a link-local address that is not its own"},
		{overlay.ErrStale, stale.Error()},
		{wire.ErrMalformed, "local address of rank 6"},
		{overlay.ErrForbidden, "not permitted: sitea vouches for accounts of its own, ACCOUNT@sitea, not for alice@siteb"},
		{overlay.ErrForbidden, "not permitted: sitea vouches for accounts of its own, ACCOUNT@sitea, not for alice for climate"},
	}
	if len(resp.Faults) != len(want) {
		t.Fatalf("%d faults, want %d: %v", len(resp.Faults), len(want), resp.Faults)
	}
	for i, w := range want {
		if err := control.FaultErr(resp.Faults[i]); !errors.Is(err, w.class) || !strings.Contains(err.Error(), w.text) {
			t.Errorf("fault %d: %v, want %q", i, err, w.text)
		}
	}
	kept, serves := ranks(r.f.registry.Points()), r.f.registry.Principal(proc(7), proc(5))
	if serves != overlay.AccountAt("alice", "sitea") {
		t.Errorf("rank 5 works for %v", serves)
	}
	if kept != "[1 5]" {
		t.Errorf("kept: %s", kept)
	}
}

// TestWhoMayCallWhat: unauthenticated peers are refused, and others may only do what their role
// permits.
func TestWhoMayCallWhat(t *testing.T) {
	r := newRig(t, nil)
	for _, tc := range []struct {
		id   control.Identity
		text string
	}{
		{control.Identity{Role: control.RoleHelper, Site: "siteb", Name: "b1"}, "frontal sitea: helper siteb/b1 belongs to another site than frontal sitea"},
		{control.Identity{Role: control.RoleFrontal, Site: "siteb"}, "frontal siteb has no business with frontal sitea"},
		{control.Identity{Role: control.RoleBroker, Name: "evil"}, "broker evil has no business with frontal sitea"},
		{control.Identity{Role: control.RoleProxy, Name: "p1"}, "proxy p1 has no business with frontal sitea"},
	} {
		if _, err := r.dialAs(tc.id, nil); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v: %v, want %q", tc.id, err, tc.text)
		}
	}
	h := r.helper("a1")
	_, err := controlpb.NewAdminClient(h.s.Conn()).Status(h.ctx(), &controlpb.StatusRequest{})
	if err = control.FromStatus(err); !errors.Is(err, overlay.ErrForbidden) || err.Error() != "frontal sitea: not permitted: helper sitea/a1 may not call Status; an admin may" {
		t.Errorf("status by a helper: %v", err)
	}
	_, err = eventsOf(t, func(ctx context.Context) (grpc.ServerStreamingClient[controlpb.SignalEvent], error) {
		return controlpb.NewTargetClient(h.s.Conn()).Signal(ctx, &controlpb.Signal{})
	})
	if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "helper sitea/a1 may not call Signal; the broker may") {
		t.Errorf("signalled by a helper: %v", err)
	}
	s, err := r.dialAs(control.Identity{Role: control.RoleAdmin, Name: "root"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := controlpb.NewDirectoryClient(s.Conn())
	nodes := controlpb.NewNodesClient(s.Conn())
	for call, err := range map[string]error{
		"Register": second(dir.Register(h.ctx(), &controlpb.RegisterRequest{})),
		"Withdraw": second(dir.Withdraw(h.ctx(), &controlpb.WithdrawRequest{})),
		"Resolve":  second(dir.Resolve(h.ctx(), &controlpb.ResolveRequest{})),
		"Report":   second(dir.Report(h.ctx(), &controlpb.ReportRequest{})),
		"Enter":    second(nodes.Enter(h.ctx(), &controlpb.EnterRequest{})),
		"Carry":    second(nodes.Carry(h.ctx(), &controlpb.CarryRequest{})),

		"SessionLimit": second(nodes.SessionLimit(h.ctx(), &controlpb.SessionLimitRequest{})),
	} {
		if err = control.FromStatus(err); !errors.Is(err, overlay.ErrForbidden) || err.Error() != "frontal sitea: not permitted: admin root may not call "+call+"; helpers of sitea may" {
			t.Errorf("%s by an admin: %v", call, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestEnter(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	e, err := h.nodes.Enter(h.ctx(), &controlpb.EnterRequest{Software: "test"})
	if err != nil || e.Site != "sitea" || !e.Profile.GatewayOnly || e.DataAddress != r.f.gateway.DataAddr.String() || e.Epoch != r.f.epoch || e.Epoch == 0 || e.Nodes != 1 {
		t.Errorf("%v, %v", e, err)
	}
	if e, err := r.helper("a2").nodes.Enter(h.ctx(), &controlpb.EnterRequest{}); err != nil || e.Nodes != 2 {
		t.Errorf("the second helper: %v, %v", e, err)
	}
}

// The broker learns in which private networks the site looks for others.
func TestPrivateIsDeclared(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Private = []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")} })
	if p := r.f.joinRequest().Profile; !p.PrivateGiven || len(p.Private) != 1 || p.Private[0] != "10.64.0.0/10" {
		t.Errorf("%v, %v", p.PrivateGiven, p.Private)
	}
}

// What the helper of a site's only node reports of a full NAT is in the profile from then on, and what one of several
// does once another says so.
func TestReportOfFullNAT(t *testing.T) {
	for _, alone := range []bool{true, false} {
		r := newRig(t, nil)
		h := r.helper("a1")
		says := []*fakeHelper{h}
		if !alone {
			says = append(says, r.helper("a2"))
		}
		for i, by := range says {
			if _, err := by.nodes.SessionLimit(h.ctx(), &controlpb.SessionLimitRequest{Connections: 1 << 30}); err != nil {
				t.Fatal(err)
			}
			want := uint32(maxSessions)
			if i < len(says)-1 {
				want = 0
			}
			e, err := h.nodes.Enter(h.ctx(), &controlpb.EnterRequest{})
			if err != nil || e.Profile.Sessions != want {
				t.Errorf("%d of %d helpers say so: %v, %v", i+1, len(says), e, err)
			}
			if p := r.f.joinRequest().Profile; p.Sessions != want {
				t.Errorf("%d of %d helpers say so: the broker is told %d", i+1, len(says), p.Sessions)
			}
		}
	}
}

func TestOnlyTheSitesFrontal(t *testing.T) {
	r := newRig(t, nil)
	for _, id := range []control.Identity{{Role: control.RoleFrontal, Site: "siteb"}, {Role: control.RoleHelper, Site: "sitea", Name: "a1"}} {
		_, err := New(*r.f.config(), r.creds(id), r.f.log)
		if want := "site is sitea, but the certificate is that of " + id.String() + "; it must be that of frontal sitea"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
