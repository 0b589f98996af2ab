package broker

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// joinWith makes a site join again, with a policy.
func (g *grid) joinWith(p *peer, profile overlay.SiteProfile, text string) {
	g.t.Helper()
	resp, err := p.sites.Join(g.ctx(), &controlpb.JoinRequest{Profile: declared(profile), Policy: []byte(text)})
	if err != nil {
		g.t.Fatal(err)
	}
	if !resp.Policy {
		g.t.Error("the broker does not say that it holds links to policies")
	}
}

func by(p overlay.AccessPoint, user string) overlay.AccessPoint {
	p.Principal.User = user
	return p
}

// first returns the answer to one question.
func (g *grid) first(p *peer, name overlay.ProcessName) (*controlpb.Answer, []*controlpb.Plan) {
	g.t.Helper()
	resp, err := p.directory.Resolve(g.ctx(), question(name))
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.Answers[0], resp.Plans
}

// Policies decide about resolution and signalling; if one process of a job is refused, no process
// of the job at that site gets the address.
func TestPolicies(t *testing.T) {
	g := newGrid(t)
	g.start()
	a, b := g.frontal(openA, nil), g.frontal(closedB, nil)
	g.register(a, by(pointOf("sitea", rank(0), 1), "alice@sitea"))
	g.register(b, by(pointOf("siteb", rank(1), 1), "bob@siteb"))
	if answer, plans := g.first(b, rank(0)); answer.Fault != nil || plans[0].Steps[0].Technique != uint32(overlay.Direct) {
		t.Fatalf("with policies that permit all: %v %v", answer, plans)
	}

	g.joinWith(a, openA, "contact: opsa\nrules:\n- {name: no-mallory, effect: deny, users: [\"mallory@*\"]}\n- {name: slow, effect: allow, users: [\"*@site?\"], techniques: [relay]}\n")
	answer, plans := g.first(b, rank(0))
	if answer.Fault != nil || len(plans) != 1 || len(plans[0].Steps) != 1 || plans[0].Steps[0].Technique != uint32(overlay.Relay) {
		t.Fatalf("relay only: %v %v", answer, plans)
	}
	if want := `the policy of sitea does not allow it (rule "slow"); ask opsa`; plans[0].Rejected[0].Reason != want {
		t.Errorf("no technique is left out because %s: %v", want, plans)
	}
	req := relayRequest()
	req.Asker, req.Target = control.ProcessToPB(rank(1)), control.ProcessToPB(rank(0))
	req.TargetGeneration = 1
	req.Technique, req.ConnectId, req.ConnectAddress = uint32(overlay.Reversed), secretID, "127.0.0.1:1"
	wantStatus(t, "by another technique", signalErr(g.ctx(), b, req), overlay.ErrForbidden, `not permitted: siteb to sitea by reversed: the policy of sitea does not allow it (rule "slow"); ask opsa`)

	g.register(b, by(pointOf("siteb", rank(2), 1), "mallory@siteb"))
	refusal := `not permitted: the policy of sitea refuses links of job ` + testJob.Name() + `, user alice@sitea (no project), user bob@siteb (no project), user mallory@siteb (no project) with siteb: rule "no-mallory" denies it; ask opsa`
	answer, _ = g.first(b, rank(0))
	wantFault(t, "with mallory in the job", answer.Fault, overlay.ErrForbidden, refusal)
	answer, err := b.directory.Await(g.ctx(), &controlpb.AwaitRequest{Process: control.ProcessToPB(rank(0)), WaitMs: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if f := answer.GetFault(); f == nil || !strings.HasPrefix(f.Text, refusal) {
		t.Errorf("await: %v", answer)
	}
	// The first process that gets the refusal leaves; the others do not wait for it to come back.
	if _, err := a.directory.Withdraw(g.ctx(), &controlpb.WithdrawRequest{Processes: []*controlpb.Withdrawal{{Process: control.ProcessToPB(rank(0)), Generation: 1}}}); err != nil {
		t.Fatal(err)
	}
	answer, _ = g.first(b, rank(0))
	wantFault(t, "of one that left", answer.Fault, overlay.ErrForbidden, refusal)
	if answer, err = b.directory.Await(g.ctx(), &controlpb.AwaitRequest{Process: control.ProcessToPB(rank(0)), WaitMs: 60_000}); err != nil {
		t.Fatal(err)
	}
	wantFault(t, "await of one that left", answer.Fault, overlay.ErrForbidden, refusal)
	answer, _ = g.first(a, rank(0)) // the process may return to a's own site
	if err := control.FaultErr(answer.Fault); !errors.Is(err, overlay.ErrUnknownProcess) {
		t.Errorf("of one that left the same site: %v", err)
	}
	g.register(a, by(pointOf("sitea", rank(0), 1), "alice@sitea"))
	req.Asker, req.Technique, req.ConnectId, req.ConnectAddress = control.ProcessToPB(rank(2)), uint32(overlay.Relay), nil, ""
	wantStatus(t, "mallory", signalErr(g.ctx(), b, req), overlay.ErrForbidden,
		`not permitted: the policy of sitea refuses links of job `+testJob.Name()+`, user alice@sitea (no project), user mallory@siteb (no project) with siteb: rule "no-mallory" denies it; ask opsa`)
	if !strings.Contains(g.logs.String(), `msg="link refused by policy"`) {
		t.Error("no refusal in the log")
	}

	// The other side's dry-run mode counts and logs.
	g.joinWith(a, openA, "")
	answer, _ = g.first(b, rank(0))
	wantFault(t, "without a policy of sitea", answer.Fault, overlay.ErrForbidden, `not permitted: site sitea refuses links of job `+testJob.Name()+
		`, user alice@sitea (no project), user bob@siteb (no project), user mallory@siteb (no project) with siteb: it has no policy (rule "no-policy"), `+
		`so its links stay inside it; set policy: in its frontal.yaml; the smallest that permits site siteb: `+policy.Example("sitea", "siteb"))
	if s := g.b.policies.status("sitea"); s != nil {
		t.Errorf("sitea still has a policy: %+v", s)
	}
	g.joinWith(a, openA, openPolicy)
	g.joinWith(b, closedB, "mode: dry-run\ncontact: opsb\n")
	if answer, plans := g.first(b, rank(0)); answer.Fault != nil || plans[0].Steps[0].Technique != uint32(overlay.Direct) {
		t.Errorf("dry run: %v %v", answer, plans)
	}
	var siteb *PolicyStatus
	for _, s := range g.b.Status().Sites {
		if s.Profile.Site == "siteb" {
			siteb = s.Policy
		}
	}
	if siteb == nil || siteb.Would != 1 || siteb.Refused != 0 || siteb.Mode != policy.DryRun {
		t.Errorf("status %+v", siteb)
	}
	if want := "dry-run: the policy of siteb would refuse links of job"; !strings.Contains(g.logs.String(), want) {
		t.Errorf("not logged: %s", want)
	}
	g.joinWith(b, closedB, "mode: dry-run\ncontact: opsb\n")
	if got := g.b.policies.status("siteb"); got.Would != 1 {
		t.Errorf("joining again with the same policy: %+v", got)
	}

	// The asker must be known.
	g.joinWith(b, closedB, "contact: opsb\n")
	c := g.frontal(closedC, nil)
	answer, _ = g.first(c, rank(1))
	wantFault(t, "nobody of the job at sitec", answer.Fault, overlay.ErrUnknownProcess, "process is not registered: no process of job "+string(testJob)+" at sitec, so that policies cannot determine its principal; a process must register before it dials")
}

// A policy that the broker cannot parse completely is rejected, because it could not be enforced.
func TestPolicyRefused(t *testing.T) {
	g := newGrid(t)
	g.start()
	a := g.frontal(openA, nil)
	_, err := a.sites.Join(g.ctx(), &controlpb.JoinRequest{Profile: declared(openA), Policy: []byte("contact: x\nrules:\n- {name: a, effect: allow, weekdays: [mon]}\n")})
	wantStatus(t, "a key of tomorrow", err, wire.ErrMalformed,
		"malformed frame: this broker cannot read the policy; is it older than the site's frontal? policy of sitea:3:28: rules[0].weekdays: unknown key; known here: name, effect, sites, projects, users, jobs, hours, techniques, limits")
}

func TestAdminAsksPolicies(t *testing.T) {
	g := newGrid(t)
	g.start()
	a := g.frontal(openA, nil)
	g.frontal(closedB, nil)
	g.joinWith(a, openA, "contact: opsa\nrules:\n- {name: days, effect: allow, projects: [p], techniques: [relay], hours: [{from: \"08:00\", to: \"18:00\"}]}\n")
	admin := g.adminPeer()
	ask := func(project string, hour int) (*controlpb.Plan, policy.Explanation) {
		t.Helper()
		plan, err := admin.admin.Decide(g.ctx(), &controlpb.DecideRequest{Asker: "siteb", Target: "sitea", Job: "j", Who: []*controlpb.Principal{{User: "alice", Project: project}},
			At: time.Date(2026, 11, 20, hour, 0, 0, 0, time.UTC).Unix()})
		if err != nil {
			t.Fatal(err)
		}
		var e policy.Explanation
		if err := json.Unmarshal(plan.Policy, &e); err != nil {
			t.Fatal(err)
		}
		return plan, e
	}
	if plan, e := ask("p", 12); len(plan.Steps) != 1 || e.Error != "" || e.Sides[1].Rule != "days" || e.Sides[0].Rule != "all" {
		t.Errorf("%v\n%+v", plan, e)
	}
	for project, hour := range map[string]int{"p": 20, "q": 12} {
		if plan, e := ask(project, hour); len(plan.Steps) != 0 || !strings.Contains(e.Error, "no rule allows it") || !strings.Contains(plan.Rejected[0].Reason, "ask opsa") {
			t.Errorf("%s at %d: %v\n%+v", project, hour, plan, e)
		}
	}
	plan, err := admin.admin.Decide(g.ctx(), &controlpb.DecideRequest{Asker: "siteb", Target: "sitea"})
	if err != nil || plan.Policy != nil || plan.Steps[0].Technique != uint32(overlay.Direct) {
		t.Errorf("without who: %v, %v", plan, err)
	}
	_, err = admin.admin.Decide(g.ctx(), &controlpb.DecideRequest{Asker: "siteb", Target: "sitea", Job: "J J"})
	wantStatus(t, "no job name", err, wire.ErrMalformed, `malformed frame: job name "J J": byte 0 is 'J'; allowed are a-z, 0-9 and, after the first, '-', '_' and '.'`)
}

// Policy allowances are put into the tickets for a proxy that enforces them, and no other proxy is
// assigned.
func TestLimitsAreInTheTickets(t *testing.T) {
	told := make(chan *controlpb.Signal, 10)
	next := events(accepted, connected)
	g := newGrid(t)
	g.start()
	b := g.frontal(closedB, nil)
	c := g.frontal(openC(), func(in *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		told <- in
		return next(in, s)
	})
	g.register(b, by(pointOf("siteb", rank(0), 1), "bob@siteb"))
	g.register(c, by(pointOf("sitec", rank(1), 3), "carol@sitec"))
	g.joinWith(b, closedB, "contact: opsb\nrules:\n- {name: all, effect: allow}\n")
	g.joinWith(c, openC(), "contact: opsc\nrules:\n- {name: guests, effect: allow, limits: {links: 4, rate: 1Gbit/s, bytes_month: 2TB}}\n")
	proxy := g.proxy("p1", "192.0.2.7:443")
	_, err := signal(g.ctx(), b, relayRequest())
	wantStatus(t, "by a proxy that keeps no limits", err, overlay.ErrNoRelay, "no proxy is available: a policy limits the link, and the 1 proxies that it could use are older than such limits")
	offer := offerOf("p1", "192.0.2.7:443")
	offer.LimitedTickets = true
	if _, err := proxy.relays.Offer(g.ctx(), offer); err != nil {
		t.Fatal(err)
	}
	list, err := signal(g.ctx(), b, relayRequest())
	if err != nil {
		t.Fatalf("%v\n%s", err, g.logs)
	}
	in := <-told
	if want := `, within rule "guests" of sitec: 4 links at a time, 1Gbit/s, 2TB a month; ask opsc`; !strings.HasSuffix(in.Reason, want) {
		t.Errorf("the reason is %q, want at its end %q", in.Reason, want)
	}
	want := overlay.Allowance{Site: "sitec", Rule: "guests", Owner: "user carol@sitec", Contact: "opsc", Links: 4, Rate: 1e9, Month: 2e12}
	for _, a := range []*controlpb.Assignment{list[0].Relay, in.Relay} {
		frame, err := wire.Read(strings.NewReader(string(a.Ticket)))
		if err != nil {
			t.Fatal(err)
		}
		tk := frame.(*wire.Ticket)
		if err := ticket.NewChecker("p1", 1, ticket.Key(offer.TicketKey)).Check(tk, proxyClock()); err != nil || tk.Allowances != [2]overlay.Allowance{want} {
			t.Errorf("%v, the ticket has %+v", err, tk.Allowances)
		}
	}
	// The open site's processes are reachable only through the relay.
	answer, plans := g.first(b, rank(1))
	if answer.Fault != nil || len(plans[0].Steps) != 1 || plans[0].Steps[0].Technique != uint32(overlay.Relay) {
		t.Errorf("%v %v", answer, plans)
	}
	if want := `rule "guests" of sitec limits it (4 links at a time, 1Gbit/s, 2TB a month), which only a relay can keep; ask opsc`; plans[0].Rejected[0].Reason != want {
		t.Errorf("direct is left out: %s", plans[0].Rejected[0].Reason)
	}
}

// openC is sitec without a firewall.
func openC() overlay.SiteProfile {
	p := openA
	p.Site = "sitec"
	return p
}
