package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/broker/decide"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

var (
	openA    = overlay.SiteProfile{Site: "sitea", Inbound: overlay.InboundOpen}
	closedB  = overlay.SiteProfile{Site: "siteb", Filter: overlay.FilterStateful}
	closedC  = overlay.SiteProfile{Site: "sitec", Filter: overlay.FilterStateful}
	frontalA = control.Identity{Role: control.RoleFrontal, Site: "sitea"}
	linkID   = []byte("0123456789abcdef")
	secretID = []byte("fedcba9876543210")
)

func wantFault(t *testing.T, what string, f *controlpb.Fault, class error, text string) {
	t.Helper()
	if f == nil {
		t.Errorf("%s: no fault", what)
		return
	}
	wantErr(t, what, control.FaultErr(f), class, text)
}

func wantStatus(t *testing.T, what string, err, class error, text string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	wantErr(t, what, control.FromStatus(err), class, text)
}

func question(names ...overlay.ProcessName) *controlpb.ResolveRequest {
	req := &controlpb.ResolveRequest{}
	for _, n := range names {
		req.Questions = append(req.Questions, &controlpb.Question{Process: control.ProcessToPB(n)})
	}
	return req
}

func TestResolve(t *testing.T) {
	g := newGrid(t)
	g.start()
	a, b := g.frontal(openA, nil), g.frontal(closedB, nil)
	g.register(a, pointOf("sitea", rank(0), 1))
	g.register(b, pointOf("siteb", rank(1), 4), pointOf("siteb", rank(2), 1))
	req := question(rank(1), rank(0), rank(9), rank(2))
	resp, err := a.directory.Resolve(g.ctx(), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Answers) != 4 || len(resp.Plans) != 1 {
		t.Fatalf("%d answers, %d plans", len(resp.Answers), len(resp.Plans))
	}
	point, err := control.PointFromPB(resp.Answers[0].Point)
	want := pointOf("siteb", rank(1), 4)
	want.Local = netip.AddrPort{} // that is for its own site only
	if err != nil || point != want {
		t.Errorf("point %+v, %v", point, err)
	}
	if resp.Answers[1].Plan != 0 || resp.Answers[1].Point.Site != "sitea" {
		t.Errorf("same site: %v", resp.Answers[1])
	}
	wantFault(t, "nobody", resp.Answers[2].Fault, overlay.ErrUnknownProcess,
		fmt.Sprintf("process is not registered: rank 9 of job %s is not known to broker main", testJob))
	plan, err := control.PlanFromPB(resp.Plans[0])
	if want := decide.Decide(openA, closedB, nil); err != nil || fmt.Sprint(plan) != fmt.Sprint(want) {
		t.Errorf("plan %v, %v, want %v", plan, err, want)
	}
	if resp.Answers[0].Plan != resp.Plans[0].Digest || resp.Answers[3].Plan != resp.Plans[0].Digest {
		t.Error("the answers name another plan")
	}
	req.CachedPlans = []uint64{resp.Plans[0].Digest}
	if resp, err = a.directory.Resolve(g.ctx(), req); err != nil || len(resp.Plans) != 0 {
		t.Errorf("a known plan was sent again: %v, %v", resp, err)
	}

	// The profile changes: another plan, on the same session.
	opened := overlay.SiteProfile{Site: "siteb", Inbound: overlay.InboundOpen}
	if _, err := b.sites.Join(g.ctx(), joining(opened)); err != nil {
		t.Fatal(err)
	}
	resp, err = a.directory.Resolve(g.ctx(), req)
	if err != nil || len(resp.Plans) != 1 || resp.Plans[0].Steps[0].Technique != uint32(overlay.Direct) {
		t.Errorf("after the change: %v, %v", resp.GetPlans(), err)
	}

	_, err = a.directory.Withdraw(g.ctx(), &controlpb.WithdrawRequest{Processes: []*controlpb.Withdrawal{{Process: control.ProcessToPB(rank(0)), Generation: 1}}})
	if err != nil || lookup(g.b.registry, rank(0)).Site != nil {
		t.Errorf("withdrawn: %v", err)
	}
}

func TestResolveRefusals(t *testing.T) {
	g := newGrid(t)
	g.start()
	p := g.peer(frontalA, nil)
	_, err := p.directory.Resolve(g.ctx(), question(rank(0)))
	wantStatus(t, "before joining", err, overlay.ErrUnknownSite, "site is not connected: sitea has not joined; does its frontal run, and reach the broker?")
	g.frontal(closedB, nil)
	a := g.frontal(openA, nil)
	_, err = a.directory.Resolve(g.ctx(), question(make([]overlay.ProcessName, maxQuestions+1)...))
	wantStatus(t, "too many", err, overlay.ErrOverloaded, "overloaded: 1025 questions in one call, at most 1024 are answered; ask in several calls")
	resp, err := a.directory.Resolve(g.ctx(), question(overlay.ProcessName{Job: "no id", Rank: 1}))
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, "no job id", resp.Answers[0].Fault, overlay.ErrUnknownProcess, "process is not registered: rank 1 of job no id is not known to broker main")
	_, err = a.directory.Withdraw(g.ctx(), &controlpb.WithdrawRequest{Processes: []*controlpb.Withdrawal{{}}})
	wantStatus(t, "withdraw nothing", err, wire.ErrMalformed, `malformed frame: job id "": want NAME-<32 hexadecimal digits>`)
	_, err = a.sites.Join(g.ctx(), &controlpb.JoinRequest{Profile: &controlpb.Profile{Inbound: 9}})
	wantStatus(t, "lying profile", err, wire.ErrMalformed, "malformed frame: profile of sitea: unknown inbound rule 9")
}

// Faults of refused points are in the order of the points.
func TestRegisterFaults(t *testing.T) {
	g := newGrid(t)
	g.cfg.AllowLoopback = false
	g.start()
	a := g.frontal(openA, nil)
	public := func(text string) *controlpb.AccessPoint {
		p := pointOf("sitea", rank(9), 1)
		p.Public = netip.MustParseAddrPort(text)
		return control.RegistrationToPB(signed(p))
	}
	name := rank(9).String()
	for _, tc := range []struct {
		point *controlpb.AccessPoint
		class error
		text  string
	}{
		{public("127.0.0.1:1"), overlay.ErrForbidden, "not permitted: public address of " + name + " 127.0.0.1:1 is a loopback address, which other hosts cannot dial (allow_loopback permits it, for a grid on one machine)"},
		{public("169.254.169.254:80"), overlay.ErrForbidden, "not permitted: public address of " + name + " 169.254.169.254:80 is link-local"},
		{public("[::ffff:169.254.169.254]:80"), overlay.ErrForbidden, "not permitted: public address of " + name + " [::ffff:169.254.169.254]:80 is link-local"},
		{public("[fe80::1]:80"), overlay.ErrForbidden, "not permitted: public address of " + name + " [fe80::1]:80 is link-local"},
		{public("0.0.0.0:80"), overlay.ErrForbidden, "not permitted: public address of " + name + " 0.0.0.0:80 is no host's address"},
		{public("[::ffff:0.0.0.0]:80"), overlay.ErrForbidden, "not permitted: public address of " + name + " [::ffff:0.0.0.0]:80 is no host's address"},
		{public("224.0.0.1:80"), overlay.ErrForbidden, "not permitted: public address of " + name + " 224.0.0.1:80 is not one host's address"},
		{public("255.255.255.255:80"), overlay.ErrForbidden, "not permitted: public address of " + name + " 255.255.255.255:80 is not one host's address"},
		{public("192.0.2.1:0"), overlay.ErrForbidden, "not permitted: public address of " + name + " 192.0.2.1:0 has no port"},
		{&controlpb.AccessPoint{}, wire.ErrMalformed, `malformed frame: job id "": want NAME-<32 hexadecimal digits>`},
		{&controlpb.AccessPoint{Process: control.ProcessToPB(rank(9)), Site: "sitea", Node: "n1", Principal: &controlpb.Principal{User: "alice", Project: "climate"}},
			overlay.ErrForbidden, name + ": not permitted: sitea vouches for accounts of its own, ACCOUNT@sitea, not for alice for climate"},
	} {
		good, stale := control.RegistrationToPB(signed(pointOf("sitea", rank(0), 2))), control.RegistrationToPB(signed(pointOf("sitea", rank(0), 1)))
		resp, err := a.directory.Register(g.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{good, stale, tc.point, good, stale}})
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Faults) != 3 || wire.Code(resp.Faults[0].Code) != wire.CodeStale || wire.Code(resp.Faults[2].Code) != wire.CodeStale {
			t.Errorf("faults %v", resp.Faults)
			continue
		}
		wantFault(t, tc.text, resp.Faults[1], tc.class, tc.text)
	}
}

// With wait_ms Resolve waits for all processes, and older frontals call Await.
func TestResolveWaits(t *testing.T) {
	g := newGrid(t)
	g.start()
	a, b := g.frontal(openA, nil), g.frontal(closedB, nil)
	g.register(a, pointOf("sitea", rank(0), 1)) // the process that asks
	req := question(rank(0), rank(3), overlay.ProcessName{Job: "no id", Rank: 1}, rank(4))
	req.WaitMs = 1
	resp, err := a.directory.Resolve(g.ctx(), req)
	if err != nil || resp.Answers[0].Fault != nil {
		t.Fatalf("%v, %v", resp, err)
	}
	wantFault(t, "nobody came", resp.Answers[1].Fault, overlay.ErrUnknownProcess, fmt.Sprintf("process is not registered: rank 3 of job %s is not known to broker main", testJob))
	req.WaitMs = 60_000
	got := make(chan *controlpb.ResolveResponse, 1)
	go func() {
		resp, _ := a.directory.Resolve(g.ctx(), req)
		got <- resp
	}()
	older := make(chan *controlpb.Answer, 1)
	go func() {
		answer, _ := a.directory.Await(g.ctx(), &controlpb.AwaitRequest{Process: control.ProcessToPB(rank(4)), WaitMs: 60_000})
		older <- answer
	}()
	testkit.Until(g.t, "both wait", func() bool { return g.b.Status().Waiting == 2 })
	g.register(b, pointOf("siteb", rank(3), 1))
	g.register(b, pointOf("siteb", rank(4), 1))
	if resp := <-got; resp == nil || resp.Answers[1].GetPoint().GetSite() != "siteb" || resp.Answers[3].GetPoint().GetSite() != "siteb" || len(resp.Plans) != 1 || resp.Answers[3].Plan != resp.Plans[0].Digest {
		t.Errorf("answers %v", resp)
	}
	if answer := <-older; answer.GetPoint().GetSite() != "siteb" || answer.PlanIfNew.GetDigest() != answer.Plan {
		t.Errorf("answer %v", answer)
	}
	if c := g.b.Status().Counters; c.Resolves != 0 || c.Awaits != 3 {
		t.Errorf("counted %d and %d calls", c.Resolves, c.Awaits)
	}
	g.b.waits.SetMax(0, 1)
	if err := g.b.waits.Take("sitea", 1); err != nil {
		t.Fatal(err)
	}
	if resp, err = a.directory.Resolve(g.ctx(), &controlpb.ResolveRequest{Questions: question(rank(5)).Questions, WaitMs: 60_000}); err != nil {
		t.Fatal(err)
	}
	if err := control.FaultErr(resp.Answers[0].Fault); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "limits.waiting_per_site") {
		t.Errorf("too many wait: %v", err)
	}
}

// The roles that may make each call.
func TestRoles(t *testing.T) {
	g := newGrid(t)
	g.start()
	frontal := g.frontal(openA, nil)
	proxy, admin := g.proxy("p1", "127.0.0.1:443"), g.adminPeer()
	ctx := g.ctx()
	for who, calls := range map[*peer][]func() error{
		frontal: {
			func() error { _, err := frontal.relays.Offer(ctx, offerOf("p1", "127.0.0.1:443")); return err },
			func() error { _, err := frontal.admin.Status(ctx, &controlpb.StatusRequest{}); return err },
			func() error { _, err := frontal.admin.Decide(ctx, &controlpb.DecideRequest{}); return err },
		},
		proxy: {
			func() error { _, err := proxy.sites.Join(ctx, &controlpb.JoinRequest{}); return err },
			func() error { _, err := proxy.directory.Resolve(ctx, question(rank(0))); return err },
			func() error { _, err := proxy.admin.Status(ctx, &controlpb.StatusRequest{}); return err },
		},
		admin: {
			func() error { _, err := admin.sites.Join(ctx, &controlpb.JoinRequest{}); return err },
			func() error { _, err := admin.directory.Register(ctx, &controlpb.RegisterRequest{}); return err },
			func() error { _, err := admin.directory.Withdraw(ctx, &controlpb.WithdrawRequest{}); return err },
			func() error { _, err := admin.directory.Resolve(ctx, question(rank(0))); return err },
			func() error { _, err := admin.directory.Await(ctx, &controlpb.AwaitRequest{}); return err },
			func() error { _, err := admin.directory.Report(ctx, &controlpb.ReportRequest{}); return err },
			func() error { return signalErr(ctx, admin, relayRequest()) },
		},
	} {
		for i, call := range calls {
			err := control.FromStatus(call())
			if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "and this session is that of "+who.id.String()) {
				t.Errorf("%v, call %d: %v", who.id, i, err)
			}
		}
	}
	for _, id := range []control.Identity{{Role: control.RoleHelper, Site: "sitea", Name: "n1"}, {Role: control.RoleBroker, Name: "other"}} {
		_, err := g.dial(id, nil)
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), id.String()+" is not for the broker to serve") {
			t.Errorf("%v: %v", id, err)
		}
	}
}

func TestSessionLimit(t *testing.T) {
	g := newGrid(t)
	g.cfg.Limits.Sessions = 1
	g.start()
	g.frontal(openA, nil)
	_, err := g.dial(control.Identity{Role: control.RoleAdmin, Name: "root"}, nil)
	if err == nil || !strings.Contains(err.Error(), "overloaded: the broker has 1 sessions, its limit") {
		t.Errorf("a second session: %v", err)
	}
}

// relayRequest is from rank 0 (siteb) to rank 1 (sitec), both closed.
func relayRequest() *controlpb.SignalRequest {
	return &controlpb.SignalRequest{Link: linkID, Technique: uint32(overlay.Relay),
		Asker: control.ProcessToPB(rank(0)), Target: control.ProcessToPB(rank(1)), TargetGeneration: 3, AskerNode: "forged"}
}

// signal makes the call and returns its events and final error.
func signal(ctx context.Context, p *peer, req *controlpb.SignalRequest) ([]*controlpb.SignalEvent, error) {
	stream, err := p.directory.Signal(ctx, req)
	if err != nil {
		return nil, err
	}
	var events []*controlpb.SignalEvent
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

func signalErr(ctx context.Context, p *peer, req *controlpb.SignalRequest) error {
	_, err := signal(ctx, p, req)
	return err
}

func kinds(events []*controlpb.SignalEvent) string {
	var names []string
	for _, e := range events {
		names = append(names, e.Kind.String())
	}
	return strings.Join(names, " ")
}

// events returns a target's side that sends kinds and returns.
func events(kinds ...controlpb.SignalEvent_Kind) targetFunc {
	return func(_ *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		for _, k := range kinds {
			if err := s.Send(&controlpb.SignalEvent{Kind: k}); err != nil {
				return err
			}
		}
		return nil
	}
}

const (
	assigned  = controlpb.SignalEvent_ASSIGNED
	accepted  = controlpb.SignalEvent_ACCEPTED
	connected = controlpb.SignalEvent_CONNECTED
)

// pairGrid is a grid with ranks 0 at siteb and 1 at sitec, both closed.
func pairGrid(t *testing.T, target targetFunc, tune func(*Broker)) (*grid, *peer, *peer) {
	g := newGrid(t)
	g.tune = tune
	g.start()
	b, c := g.frontal(closedB, nil), g.frontal(closedC, target)
	g.register(b, pointOf("siteb", rank(0), 1))
	g.register(c, pointOf("sitec", rank(1), 3))
	return g, b, c
}

func TestSignalByRelay(t *testing.T) {
	told := make(chan *controlpb.Signal, 10)
	next := events(assigned, accepted, connected) // the asker does not get a target's ASSIGNED
	g, b, _ := pairGrid(t, func(in *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		told <- in
		return next(in, s)
	}, nil)
	g.proxy("p1", "192.0.2.7:443")
	list, err := signal(g.ctx(), b, relayRequest())
	if err != nil || kinds(list) != "ASSIGNED ACCEPTED CONNECTED" {
		t.Fatalf("%s, %v\n%s", kinds(list), err, g.logs)
	}
	in := <-told
	if in.AskerSite != "siteb" || in.AskerNode != "n1" || in.Reason == "" || in.TargetGeneration != 3 || string(in.Link) != string(linkID) {
		t.Errorf("the target was told %v", in)
	}
	checker := ticket.NewChecker("p1", 100, ticket.Key(offerOf("", "").TicketKey))
	for end, a := range []*controlpb.Assignment{list[0].Relay, in.Relay} {
		if a.Proxy != "p1" || len(a.Addresses) != 1 || a.Addresses[0] != "192.0.2.7:443" {
			t.Errorf("end %d: %v", end, a)
		}
		frame, err := wire.Read(strings.NewReader(string(a.Ticket)))
		if err != nil {
			t.Fatal(err)
		}
		tk := frame.(*wire.Ticket)
		if tk.End != uint8(end) || string(tk.Link[:]) != string(linkID) || tk.Job != testJob || tk.Asker != 0 || tk.Target != 1 {
			t.Errorf("end %d: ticket %+v", end, tk)
		}
		if err := checker.Check(tk, proxyClock()); err != nil {
			t.Errorf("end %d: %v", end, err)
		}
	}
	if c := g.b.Status().Counters.Signalling[overlay.Relay]; c.Asked != 1 || c.Connected != 1 {
		t.Errorf("counters %+v", c)
	}
	if logs := g.logs.String(); !strings.Contains(logs, "msg=signalling") || !strings.Contains(logs, "proxy=p1 link=30313233343536373839616263646566 result=connected") {
		t.Errorf("no line about the signalling request in:\n%s", logs)
	}
}

// The asker gets its relay before the target's side answers.
func TestAssignedComesAtOnce(t *testing.T) {
	goOn := make(chan struct{})
	g, b, _ := pairGrid(t, func(in *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		select {
		case <-goOn:
		case <-s.Context().Done():
		}
		return events(connected)(in, s)
	}, nil)
	g.proxy("p1", "192.0.2.7:443")
	stream, err := b.directory.Signal(g.ctx(), relayRequest())
	if err != nil {
		t.Fatal(err)
	}
	e, err := stream.Recv()
	close(goOn)
	if err != nil || e.Kind != assigned {
		t.Errorf("%v, %v", e, err)
	}
	if e, err := stream.Recv(); err != nil || e.Kind != connected {
		t.Errorf("%v, %v", e, err)
	}
}

func TestSignalReversed(t *testing.T) {
	told := make(chan *controlpb.Signal, 10)
	g := newGrid(t)
	g.start()
	a := g.frontal(openA, nil)
	b := g.frontal(closedB, func(in *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		told <- in
		return events(connected)(in, s)
	})
	inside := pointOf("sitea", rank(2), 1)
	inside.Public = netip.AddrPort{}
	g.register(a, pointOf("sitea", rank(0), 1), inside)
	g.register(b, pointOf("siteb", rank(1), 3))
	req := relayRequest()
	req.Technique, req.ConnectAddress, req.ConnectId = uint32(overlay.Reversed), "192.0.2.1:5555", secretID
	list, err := signal(g.ctx(), a, req)
	if err != nil || kinds(list) != "ASSIGNED CONNECTED" || list[0].Relay != nil {
		t.Fatalf("%v, %v", list, err)
	}
	if in := <-told; in.ConnectAddress != req.ConnectAddress || string(in.ConnectId) != string(secretID) || in.Relay != nil {
		t.Errorf("the target was told %v", in)
	}
	for what, change := range map[string]func(*controlpb.SignalRequest){
		"malformed frame: a connect id of 3 bytes, want 16": func(r *controlpb.SignalRequest) { r.ConnectId = []byte("abc") },
		"not permitted: the connect address 192.0.2.2:22 is not on the host of rank 0 of job " + string(testJob) + ", which registered 192.0.2.1:4001": func(r *controlpb.SignalRequest) {
			r.ConnectAddress = "192.0.2.2:22"
		},
		"not permitted: the connect address 192.0.2.1:5555 of rank 2 of job " + string(testJob) + ": sitea registered no address of it for other sites": func(r *controlpb.SignalRequest) {
			r.Asker = control.ProcessToPB(rank(2))
		},
		`malformed frame: connect address: no colon at end of name "gateway"`: func(r *controlpb.SignalRequest) { r.ConnectAddress = "gateway" },
	} {
		bad := fieldsOf(req)
		change(bad)
		err := signalErr(g.ctx(), a, bad)
		if err = control.FromStatus(err); err == nil || !strings.HasPrefix(err.Error(), strings.Split(what, " no colon")[0]) {
			t.Errorf("got %v, want %s", err, what)
		}
	}
}

// Within a site the target may dial the asker's address there, and no other host.
func TestSignalReversedInside(t *testing.T) {
	g := newGrid(t)
	g.start()
	b := g.frontal(closedB, events(connected))
	g.register(b, pointOf("siteb", rank(0), 1), pointOf("siteb", rank(1), 3))
	req := relayRequest()
	req.Technique, req.ConnectAddress, req.ConnectId = uint32(overlay.Reversed), "10.1.0.1:5555", secretID
	if list, err := signal(g.ctx(), b, req); err != nil || kinds(list) != "ASSIGNED CONNECTED" {
		t.Errorf("%v, %v", list, err)
	}
	req.ConnectAddress = "10.1.0.2:22"
	wantStatus(t, "another host", signalErr(g.ctx(), b, req), overlay.ErrForbidden,
		"not permitted: the connect address 10.1.0.2:22 is not on the host of rank 0 of job "+string(testJob)+", which registered 10.1.0.1:4001")
}

// fieldsOf copies a request's fields.
func fieldsOf(r *controlpb.SignalRequest) *controlpb.SignalRequest {
	return &controlpb.SignalRequest{Link: r.Link, Technique: r.Technique, Asker: r.Asker, Target: r.Target,
		TargetGeneration: r.TargetGeneration, ConnectAddress: r.ConnectAddress, ConnectId: r.ConnectId}
}

func TestSignalRefusals(t *testing.T) {
	g, b, c := pairGrid(t, events(connected), nil)
	err := signalErr(g.ctx(), b, relayRequest())
	wantStatus(t, "no proxy", err, overlay.ErrNoRelay, "no proxy is available: no proxy has a session with the broker; start one, or look at its log")
	g.proxy("p1", "192.0.2.7:8443")
	otherName := overlay.ProcessName{Job: otherJob, Rank: 1}
	g.register(c, pointOf("sitec", otherName, 1))
	job := string(testJob)
	for _, tc := range []struct {
		what   string
		change func(*controlpb.SignalRequest)
		class  error
		text   string
	}{
		{"link", func(r *controlpb.SignalRequest) { r.Link = nil }, wire.ErrMalformed, "malformed frame: a link id of 0 bytes, want 16"},
		{"asker", func(r *controlpb.SignalRequest) { r.Asker = nil }, wire.ErrMalformed, `malformed frame: asker: job id "": want NAME-<32 hexadecimal digits>`},
		{"target", func(r *controlpb.SignalRequest) { r.Target = nil }, wire.ErrMalformed, `malformed frame: target: job id "": want NAME-<32 hexadecimal digits>`},
		{"technique", func(r *controlpb.SignalRequest) { r.Technique = 99 }, wire.ErrMalformed, "malformed frame: unknown technique 99"},
		{"direct", func(r *controlpb.SignalRequest) { r.Technique = uint32(overlay.Direct) }, wire.ErrMalformed, "malformed frame: technique direct needs no signalling"},
		{"other job", func(r *controlpb.SignalRequest) { r.Target = control.ProcessToPB(otherName) }, overlay.ErrForbidden,
			"not permitted: rank 0 of job " + job + " asks for rank 1 of job " + string(otherJob) + ", which is a process of another job"},
		{"unregistered asker", func(r *controlpb.SignalRequest) { r.Asker = control.ProcessToPB(rank(7)) }, overlay.ErrUnknownProcess,
			"process is not registered: the asker, rank 7 of job " + job + ", is not known to broker main; it must register before it dials"},
		{"foreign asker", func(r *controlpb.SignalRequest) { r.Asker, r.Target = r.Target, r.Asker }, overlay.ErrForbidden,
			"not permitted: rank 1 of job " + job + " is a process of sitec, not of siteb"},
		{"unregistered target", func(r *controlpb.SignalRequest) { r.Target = control.ProcessToPB(rank(7)) }, overlay.ErrUnknownProcess,
			"process is not registered: rank 7 of job " + job + " is not known to broker main"},
		{"stale target", func(r *controlpb.SignalRequest) { r.TargetGeneration = 2 }, overlay.ErrStale,
			"access point is stale: rank 1 of job " + job + " is in generation 3, the asker knows generation 2; resolve it again"},
		{"not in the plan", func(r *controlpb.SignalRequest) {
			r.Technique, r.ConnectId, r.ConnectAddress = uint32(overlay.Reversed), secretID, "192.0.2.1:1"
		}, overlay.ErrNoPath, "no technique connects the sites: siteb to sitec by reversed: sitec cannot dial back: siteb lets no connection in"},
		{"itself", func(r *controlpb.SignalRequest) { r.Target, r.TargetGeneration = r.Asker, 1 }, wire.ErrMalformed,
			"malformed frame: rank 0 of job " + job + " asks for itself"},
	} {
		req := relayRequest()
		tc.change(req)
		list, err := signal(g.ctx(), b, req)
		wantStatus(t, tc.what, err, tc.class, tc.text)
		if len(list) != 0 {
			t.Errorf("%s: %s before the refusal", tc.what, kinds(list))
		}
	}
	// A site that lets only port 443 out cannot use a proxy elsewhere.
	narrow := closedB
	narrow.Egress = overlay.Egress443
	if _, err := b.sites.Join(g.ctx(), joining(narrow)); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "proxy on another port", signalErr(g.ctx(), b, relayRequest()), overlay.ErrNoRelay,
		"no proxy is available: no proxy offers an address of port 443, and a site lets only that out; add one to a proxy's advertise")
	c.close()
	testkit.Until(g.t, "sitec is away", func() bool { return g.b.Status().Sites[1].Connected == false })
	since := g.b.Status().Sites[1].Since.UTC().Format(time.RFC3339)
	wantStatus(t, "frontal away", signalErr(g.ctx(), b, relayRequest()), overlay.ErrUnknownSite,
		"site is not connected: the frontal of sitec has no session with broker main since "+since)
}

// A failure on the target's side after ASSIGNED is a FAILED event.
func TestSignalFailures(t *testing.T) {
	hangs := func(_ *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		<-s.Context().Done()
		return s.Context().Err()
	}
	for _, tc := range []struct {
		what   string
		target targetFunc
		kinds  string
		class  error
		text   string
	}{
		{"helper says no", func(_ *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			s.Send(&controlpb.SignalEvent{Kind: accepted})
			return s.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(fmt.Errorf("helper sitec/n1: %w: 192.0.2.7:443", overlay.ErrUnreachable))})
		}, "ASSIGNED ACCEPTED FAILED", overlay.ErrUnreachable, "helper sitec/n1: unreachable: 192.0.2.7:443"},
		{"no reason", events(controlpb.SignalEvent_FAILED), "ASSIGNED FAILED", overlay.ErrRefused, "refused: frontal sitec gave no reason"},
		{"no result", events(accepted), "ASSIGNED ACCEPTED FAILED", overlay.ErrUnreachable, "unreachable: frontal sitec ended the signalling request without a result"},
		{"frontal says no", func(*controlpb.Signal, grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			return control.Status(fmt.Errorf("%w: helper sitec/n1 is away", overlay.ErrUnknownProcess))
		}, "ASSIGNED FAILED", overlay.ErrUnknownProcess, "frontal sitec: process is not registered: helper sitec/n1 is away"},
		{"says nothing", hangs, "ASSIGNED FAILED", overlay.ErrTimeout, "timed out: waited 50ms for frontal sitec to do its part of the link"},
		{"knows no such call", nil, "ASSIGNED FAILED", wire.ErrVersion, "frontal sitec: unknown protocol version: the peer does not know this call: unknown service isthmus.control.v1.Target"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			g, b, _ := pairGrid(t, tc.target, func(b *Broker) {
				if tc.class == overlay.ErrTimeout {
					b.signallingMax = 50 * time.Millisecond
				}
			})
			g.proxy("p1", "192.0.2.7:443")
			list, err := signal(g.ctx(), b, relayRequest())
			if err != nil || kinds(list) != tc.kinds {
				t.Fatalf("%s, %v", kinds(list), err)
			}
			wantFault(t, tc.what, list[len(list)-1].Fault, tc.class, tc.text)
		})
	}
}

// The target's frontal dies during the signalling request.
func TestSignalFrontalDies(t *testing.T) {
	var c *peer
	g, b, c := pairGrid(t, func(*controlpb.Signal, grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		c.s.Close()
		return nil
	}, nil)
	g.proxy("p1", "192.0.2.7:443")
	list, err := signal(g.ctx(), b, relayRequest())
	if err != nil || kinds(list) != "ASSIGNED FAILED" {
		t.Fatalf("%s, %v", kinds(list), err)
	}
	if err := control.FaultErr(list[1].Fault); !errors.Is(err, overlay.ErrUnreachable) || !strings.HasPrefix(err.Error(), "frontal sitec: unreachable: ") {
		t.Errorf("fault %v", err)
	}
}

func TestSignallingIsBounded(t *testing.T) {
	g := newGrid(t)
	g.cfg.Limits.Signalling, g.cfg.Limits.SignallingPerSite = 2, 1
	g.start()
	b := g.frontal(closedB, nil)
	own := overlay.SiteID(closedB.Site)
	g.b.signalling.Take(own, 1)
	wantStatus(t, "no place", signalErr(g.ctx(), b, relayRequest()), overlay.ErrOverloaded, "overloaded: the limit of 1 signalling requests in flight for siteb is reached (limits.signalling_per_site); try again later")
	g.b.signalling.Give(own, 1)
	g.b.signalling.Take("another", 1)
	if err := signalErr(g.ctx(), b, relayRequest()); errors.Is(control.FromStatus(err), overlay.ErrOverloaded) {
		t.Errorf("another site's are in the way: %v", err)
	}
}

func TestOfferRefusals(t *testing.T) {
	g := newGrid(t)
	g.cfg.AllowLoopback, g.cfg.ProxyNetworks = false, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	g.start()
	p := g.proxy("p1", "192.0.2.7:443")
	for _, tc := range []struct {
		change func(*controlpb.OfferRequest)
		class  error
		text   string
	}{
		{func(r *controlpb.OfferRequest) { r.Name = "p2" }, overlay.ErrForbidden, `not permitted: the certificate names proxy p1, the offer proxy "p2"`},
		{func(r *controlpb.OfferRequest) { r.Capacity = 0 }, wire.ErrMalformed, "malformed frame: proxy p1 offers room for 0 links; set its capacity"},
		{func(r *controlpb.OfferRequest) { r.Addresses = nil }, wire.ErrMalformed, "malformed frame: proxy p1 offers 0 addresses, want 1 to 8"},
		{func(r *controlpb.OfferRequest) { r.Addresses = []string{"p1"} }, wire.ErrMalformed, `malformed frame: proxy p1 offers address "p1": not an ip:port`},
		{func(r *controlpb.OfferRequest) { r.Addresses = []string{"127.0.0.1:443"} }, overlay.ErrForbidden, "not permitted: proxy p1: address 127.0.0.1:443 is a loopback address, which other hosts cannot dial (allow_loopback permits it, for a grid on one machine)"},
		{func(r *controlpb.OfferRequest) { r.TicketKey = []byte("short") }, wire.ErrMalformed, "malformed frame: proxy p1: ticket key of 5 bytes, want 32"},
	} {
		req := offerOf("p1", "192.0.2.7:443")
		tc.change(req)
		_, err := p.relays.Offer(g.ctx(), req)
		wantStatus(t, tc.text, err, tc.class, tc.text)
	}
}

// A frontal that connects again takes over from its own earlier session, which is ended.
func TestSecondSessionOfAFrontal(t *testing.T) {
	g := newGrid(t)
	g.start()
	first := g.frontal(openA, nil)
	s, err := first.end.Dial(context.Background(), g.dialConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // before its endpoint is closed, which waits for it
	if _, err := controlpb.NewSitesClient(s.Conn()).Join(g.ctx(), joining(openA)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.s.Done():
	case <-time.After(patience):
		t.Fatal("the first session goes on")
	}
	second := *first
	second.s, second.directory = s, controlpb.NewDirectoryClient(s.Conn())
	g.register(&second, pointOf("sitea", rank(0), 1))
}

// Two hosts with one certificate, a frontal's or a proxy's: the first stays, the second is refused, and
// hosts and status say so.
func TestTwoHostsWithOneCertificate(t *testing.T) {
	g := newGrid(t)
	g.start()
	site, proxy := g.frontal(openA, nil), g.proxy("p1", "192.0.2.7:443")
	if _, err := site.sites.Hosts(g.ctx(), offer.ListToPB([]offer.Host{
		{Node: overlay.NodeID{Site: "sitea", Name: "a1"}, State: offer.Up}, {Node: overlay.NodeID{Site: "sitea", Name: "a2"}, State: offer.Up},
	})); err != nil {
		t.Fatal(err)
	}
	again, alike := g.peer(site.id, nil), g.peer(proxy.id, nil)
	_, joinErr := again.sites.Join(g.ctx(), joining(openA))
	_, offerErr := alike.relays.Offer(g.ctx(), offerOf("p1", "192.0.2.8:443"))
	for _, c := range []struct {
		err           error
		first, second *peer
	}{{joinErr, site, again}, {offerErr, proxy, alike}} {
		err := control.FromStatus(c.err)
		for _, want := range []string{c.first.s.LocalAddr().String() + " keeps its session", c.second.s.LocalAddr().String() + " is refused", c.first.id.String()} {
			if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
		select {
		case <-c.first.s.Done():
			t.Errorf("the first session of %v has ended", c.first.id)
		default:
		}
	}
	list, err := site.directory.Hosts(g.ctx(), &controlpb.HostsRequest{})
	if err != nil || len(list.Hosts) != 2 || !strings.Contains(list.Hosts[0].Note, "two hosts present the certificate of frontal sitea") || list.Hosts[1].Note != "" {
		t.Errorf("hosts %v, %v", list, err)
	}
	st := g.b.Status()
	if len(st.Sites) != 1 || st.Sites[0].Contested == "" || !st.Sites[0].Connected || len(st.Proxies) != 1 || st.Proxies[0].Contested == "" || st.Proxies[0].Addresses[0] != "192.0.2.7:443" {
		t.Errorf("status %+v, %+v", st.Sites, st.Proxies)
	}
	if !strings.Contains(g.logs.String(), "session refused") {
		t.Error("not a word about it in the log")
	}
}

// The broker dies and restarts: frontals and proxies register everything again, and the new epoch
// shows that the broker is new.
func TestRestart(t *testing.T) {
	g := newGrid(t)
	g.start()
	type life struct {
		epoch uint64
		err   error
	}
	lives := make(chan life, 10)
	end := control.NewEndpoint(g.credentials(frontalA), g.log, nil)
	defer end.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // before end closes
	kept := make(chan error, 1)
	go func() {
		kept <- end.Keep(ctx, g.dialConfig(), func(ctx context.Context, s *control.Session) error {
			resp, err := controlpb.NewSitesClient(s.Conn()).Join(ctx, &controlpb.JoinRequest{Profile: declared(openA)})
			if err == nil {
				_, err = controlpb.NewDirectoryClient(s.Conn()).Register(ctx, &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{control.RegistrationToPB(signed(pointOf("sitea", rank(0), 1)))}})
			}
			lives <- life{resp.GetEpoch(), err}
			return err
		})
	}()
	first := testkit.Receive(t, "the first life", lives)
	g.stop()
	g.start()
	if lookup(g.b.registry, rank(0)).Site != nil {
		t.Error("the new broker knows rank 0 from the old one")
	}
	second := testkit.Receive(t, "the second life", lives)
	for second.err != nil { // it may have reached the old broker as it ended
		second = testkit.Receive(t, "one more life", lives)
	}
	if first.err != nil || first.epoch == 0 || second.epoch == 0 || first.epoch == second.epoch {
		t.Errorf("lives %+v, %+v", first, second)
	}
	if lookup(g.b.registry, rank(0)).Site == nil {
		t.Error("rank 0 was not registered again")
	}
	cancel()
	if err := testkit.Receive(t, "the end of Keep", kept); err != nil {
		t.Error(err)
	}
}

func TestLeaseOnTheWire(t *testing.T) {
	g := newGrid(t)
	g.cfg.Lease = 40 * time.Millisecond
	g.start()
	a := g.frontal(openA, nil)
	g.register(a, pointOf("sitea", rank(0), 1))
	a.close()
	testkit.Until(g.t, "the lease is over", func() bool { return lookup(g.b.registry, rank(0)).Site == nil })
	testkit.Until(g.t, "the site is forgotten", func() bool { return len(g.b.Status().Sites) == 0 })
	if n := g.b.Status().Counters.Expired; n != 1 {
		t.Errorf("%d processes expired", n)
	}
}

func TestAdmin(t *testing.T) {
	g := newGrid(t)
	g.start()
	a, _ := g.frontal(openA, nil), g.frontal(closedB, nil)
	g.proxy("p1", "192.0.2.7:443")
	g.register(a, pointOf("sitea", rank(0), 1))
	a.directory.Resolve(g.ctx(), question(rank(0), rank(1)))
	_, err := a.directory.Report(g.ctx(), &controlpb.ReportRequest{Target: control.ProcessToPB(rank(0)), Generation: 1, Technique: uint32(overlay.Direct), Fault: control.Fault(overlay.ErrTimeout)})
	if err != nil {
		t.Fatal(err)
	}
	root := g.adminPeer()
	resp, err := root.admin.Status(g.ctx(), &controlpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var s Status
	if err := json.Unmarshal(resp.Json, &s); err != nil {
		t.Fatal(err)
	}
	if s.Broker != "main" || s.Epoch == 0 || s.Sessions != 4 || len(s.Sites) != 2 || !s.Sites[0].Connected || s.Sites[0].Processes != 1 ||
		len(s.Jobs) != 1 || s.Jobs[0].Processes["sitea"] != 1 || len(s.Proxies) != 1 || s.Proxies[0].Capacity != 100 ||
		s.Counters.Resolves != 1 || s.Counters.Questions != 2 || s.Counters.Reports != 1 || s.Counters.Sessions != 4 ||
		s.Counters.Faults["process is not registered"] != 1 {
		t.Errorf("status %s", resp.Json)
	}
	if s.Sites[1].Profile.Filter != overlay.FilterStateful {
		t.Errorf("profile %+v", s.Sites[1].Profile)
	}
	plan, err := root.admin.Decide(g.ctx(), &controlpb.DecideRequest{Asker: "siteb", Target: "sitea"})
	if err != nil || plan.Steps[0].Technique != uint32(overlay.Direct) {
		t.Errorf("plan %v, %v", plan, err)
	}
	_, err = root.admin.Decide(g.ctx(), &controlpb.DecideRequest{Asker: "siteb", Target: "sitex"})
	wantStatus(t, "unknown site", err, overlay.ErrUnknownSite, "site is not connected: sitex has not joined; does its frontal run, and reach the broker?")
}

// TestPlansGoByProxies: the relay leaves plans once the broker knows that no proxy joins the two sites, and comes back
// with one that does. A failed dial and the status go by the same.
func TestPlansGoByProxies(t *testing.T) {
	g := newGrid(t)
	g.tune = func(b *Broker) {
		if kinds := b.proxyKinds(b.started); kinds != nil {
			t.Errorf("the broker has just started: %+v", kinds)
		}
		b.started = b.started.Add(-proxiesJoin)
	}
	g.start()
	g.frontal(openA, nil)
	g.frontal(overlay.SiteProfile{Site: "siteb", Filter: overlay.FilterStateful, IPv6: true, IPv6Only: true}, nil)
	root := g.adminPeer()
	check := func(what, against string) {
		t.Helper()
		m, err := root.admin.Decide(g.ctx(), &controlpb.DecideRequest{Asker: "sitea", Target: "siteb"})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := control.PlanFromPB(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range plan.Rejected {
			if r.Technique == overlay.Relay && against != "" && strings.Contains(r.Reason, against) {
				against = "" // as it should be
			} else if r.Technique == overlay.Relay {
				t.Errorf("%s: no relay: %s", what, r.Reason)
			}
		}
		if against != "" {
			t.Errorf("%s: planned %+v, rejected %+v", what, plan.Steps, plan.Rejected)
		}
		if row := rowOfPair(SiteStatus{Profile: openA}, SiteStatus{Profile: overlay.SiteProfile{Site: "siteb", IPv6: true, IPv6Only: true}}, nil, g.b.Status().Kinds); (row.Plan == "") != (len(plan.Steps) == 0) {
			t.Errorf("%s: the status has %q, the plan %+v", what, row.Plan, plan.Steps)
		}
	}
	check("no proxy", "no proxy has a session")
	p := g.proxy("p1", "192.0.2.7:443")
	check("a proxy with IPv4", "advertises an address of each")
	offer := offerOf("p1", "192.0.2.7:443")
	offer.Addresses = append(offer.Addresses, "[2001:db8::7]:443")
	if _, err := p.relays.Offer(g.ctx(), offer); err != nil {
		t.Fatal(err)
	}
	check("it has both", "")
	p.close()
	<-p.s.Done()
	check("it restarts", "")
}

// A call that arrives while its session ends must not register anything that would never be
// removed.
func TestNumberingRefusesEndedSessions(t *testing.T) {
	g := newGrid(t)
	g.start()
	a := g.peer(frontalA, nil)
	a.close()
	<-a.s.Done()
	var table sessions
	_, err := table.holder(a.s)
	wantErr(t, "ended session", err, overlay.ErrUnreachable, "unreachable: the session of broker main has ended")
}

// A session enters the registry only after it has ended and its cleanup has run.
func TestLateCallsLeaveNothing(t *testing.T) {
	for _, id := range []control.Identity{frontalA, {Role: control.RoleProxy, Name: "p1"}} {
		g := newGrid(t)
		g.cfg.Lease = 20 * time.Millisecond
		entering, gone, entered := make(chan struct{}), make(chan struct{}), make(chan struct{})
		g.tune = func(b *Broker) { b.entering = func() { close(entering); <-gone } }
		g.start()
		p := g.peer(id, nil)
		go func() {
			defer close(entered)
			if id.Role == control.RoleProxy {
				p.relays.Offer(g.ctx(), offerOf("p1", "192.0.2.7:443"))
			} else {
				p.sites.Join(g.ctx(), &controlpb.JoinRequest{Profile: declared(openA)})
			}
		}()
		testkit.Receive(t, "the call at the registry", entering)
		p.s.Close()
		testkit.Until(g.t, "the session's end was logged", func() bool { return strings.Contains(g.logs.String(), "session ended") })
		close(gone)
		testkit.Receive(t, "the call's end", entered)
		testkit.Until(g.t, "the late call was refused", func() bool { return g.b.Status().Counters.Faults["unreachable"] == 1 })
		testkit.Until(g.t, "nothing is left", func() bool {
			return len(g.b.registry.Inventory().Sites) == 0 && len(g.b.proxies.List()) == 0
		})
	}
}

// Many sessions, opened and closed, leave nothing behind.
func TestSessionsLeakNothing(t *testing.T) {
	each := 10
	if testload.Full() {
		each = 200
	}
	g := newGrid(t)
	g.cfg.Lease = 20 * time.Millisecond
	g.start()
	var creds []*control.Credentials
	for i := range 10 {
		creds = append(creds, g.credentials(control.Identity{Role: control.RoleFrontal, Site: overlay.SiteID(fmt.Sprintf("site%d", i))}))
	}
	cycle := func(c *control.Credentials, n int) error {
		end := control.NewEndpoint(c, g.log, nil)
		defer end.Close()
		s, err := end.Dial(context.Background(), g.dialConfig())
		if err != nil {
			return err
		}
		defer s.Close()
		site := c.Identity().Site
		if _, err := controlpb.NewSitesClient(s.Conn()).Join(g.ctx(), &controlpb.JoinRequest{Profile: declared(overlay.SiteProfile{Site: site})}); err != nil {
			return err
		}
		_, err = controlpb.NewDirectoryClient(s.Conn()).Register(g.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{control.RegistrationToPB(signed(pointOf(site, rank(uint32(n)), 1)))}})
		return err
	}
	if err := cycle(creds[0], 0); err != nil { // one-time allocations happen here
		t.Fatal(err)
	}
	settled := func() bool { return g.b.sessions.count() == 0 && len(g.b.Status().Sites) == 0 }
	testkit.Until(g.t, "the first session is gone", settled)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var again atomic.Uint64 // tries: on a busy machine a handshake or a call may time out
	for i, c := range creds {
		wg.Go(func() {
			for n := range each {
				for tries := 1; ; tries++ {
					err := cycle(c, 1+i*each+n)
					if err == nil {
						break
					}
					if tries == 5 {
						t.Error(err)
						return
					}
					t.Log(err)
					again.Add(1)
				}
			}
		})
	}
	wg.Wait()
	testkit.Until(g.t, "all sessions are gone", settled)
	testkit.Until(g.t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	s, total := g.b.Status(), uint64(1+len(creds)*each)
	if len(s.Jobs) != 0 || s.Counters.Sessions < total || s.Counters.Sessions > total+again.Load() || len(g.b.sessions.ids) != 0 {
		t.Errorf("left: %d jobs, %d sessions begun, %d numbered", len(s.Jobs), s.Counters.Sessions, len(g.b.sessions.ids))
	}
}

// One call to each service under a foreign CA's certificate: all are refused.
func TestForeignCertificate(t *testing.T) {
	g, foreign := newGrid(t), newGrid(t)
	g.start()
	foreign.addr = g.addr
	_, err := foreign.dial(frontalA, nil)
	if err == nil || !strings.Contains(err.Error(), "not issued by this grid's CA") {
		t.Errorf("got %v", err)
	}
}
