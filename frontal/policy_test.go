package frontal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/frontal/permit"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// withPolicy gives the site a policy.
func withPolicy(t *testing.T, text string) func(*Config) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Policy = daemon.Path(file) }
}

// TestOwnPolicy: regardless of the broker's decision, a site's own rules decide about signalling
// requests to its processes; for its accounts its helpers' reports count, not the broker's.
func TestOwnPolicy(t *testing.T) {
	r := newRig(t, withPolicy(t, "contact: opsa\nrules:\n- {name: no-eve, effect: deny, users: [eve]}\n- {name: b, effect: allow, sites: [siteb], users: [alice, \"bob@siteb\", \"me@sitea\"], techniques: [relay]}\n"))
	h := r.helper("a1")
	h.register(0)
	h.introduced = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
	}
	alice := &controlpb.Principal{User: "alice", Project: "p"}
	me := &controlpb.Principal{User: "me@sitea"}
	for i, c := range []struct {
		name, site  string
		asker, own  *controlpb.Principal
		technique   overlay.Technique
		wantRefusal string
	}{
		{"by grants", "siteb", alice, alice, overlay.Relay, ""},
		{"another technique", "siteb", alice, alice, overlay.Reversed, `siteb to sitea by reversed: the policy of sitea does not allow it (rule "b"); ask opsa`},
		{"another site", "sitec", alice, alice, overlay.Relay, "refuses links of job " + job.Name() + ", user alice (project p) with sitec: no rule allows it; ask opsa"},
		{"who is denied", "siteb", &controlpb.Principal{User: "eve"}, alice, overlay.Relay, `rule "no-eve" denies it`},
		{"nobody known", "siteb", nil, alice, overlay.Relay, "an unknown user"},
		{"the broker's word for an account here", "siteb", alice, me, overlay.Relay, "no rule allows it"},
		{"no principal", "siteb", &controlpb.Principal{User: "a b"}, alice, overlay.Relay, "asker: user name"},
	} {
		addr := fmt.Sprintf("203.0.113.21:%d", 4000+i) // that no other case names
		in := &controlpb.Signal{
			Link: make([]byte, 16), Technique: uint32(c.technique), Asker: control.ProcessToPB(proc(9)), AskerSite: c.site, AskerNode: "b1",
			Target: control.ProcessToPB(proc(0)), TargetGeneration: 1, AskerPrincipal: c.asker, TargetPrincipal: c.own, ConnectAddress: addr,
		}
		_, err := r.broker.introduced(in)
		if c.wantRefusal == "" && err != nil || c.wantRefusal != "" && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), c.wantRefusal)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wantRefusal)
		}
		err = r.f.gateway.Check(addr, time.Now())
		if (err != nil) != (c.wantRefusal != "") {
			t.Errorf("%s: may dial what came with it: %v", c.name, err)
		}
	}
	if s := r.f.status().Policy; s == nil || s.Mode != "enforce" || s.Rules != 2 || s.Contact != "opsa" {
		t.Errorf("status %+v", s)
	}
	if !strings.Contains(r.log.String(), "the broker is older than policies") {
		t.Error("no word of a broker that keeps no policies")
	}
}

// TestNoPolicyKeepsInside: without a policy a site's processes learn nothing of those of other
// sites, and none of other sites is signalled to them, regardless of the broker; processes within
// the site can connect. Each refusal is audited and names the setting that would permit it.
func TestNoPolicyKeepsInside(t *testing.T) {
	r, records := newRigWithTrail(t, func(c *Config) { c.Policy = "" })
	h := r.helper("a1")
	h.register(0, 1)
	h.introduced = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
	}
	refused := func(what string, err error) {
		t.Helper()
		want := `with siteb: it has no policy (rule "no-policy"), so its links stay inside it; set policy: in its frontal.yaml; the smallest that permits site siteb: ` +
			policy.Example("sitea", "siteb")
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	_, err := h.ask(9, false) // the broker has it at siteb
	refused("asking for a process of another site", err)
	in := &controlpb.Signal{
		Link: make([]byte, 16), Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(proc(9)), AskerSite: "siteb", AskerNode: "b1",
		Target: control.ProcessToPB(proc(0)), TargetGeneration: 1, AskerPrincipal: &controlpb.Principal{User: "alice", Project: "p"},
	}
	_, err = r.broker.introduced(in)
	refused("being signalled", err)

	if answer, err := h.ask(1, false); err != nil || answer.Fault != nil {
		t.Errorf("asking for a process of the site: %v, %v", answer, err)
	}
	in.AskerSite, in.AskerNode, in.Asker = "sitea", "a2", control.ProcessToPB(proc(1))
	if _, err := r.broker.introduced(in); err != nil {
		t.Errorf("being signalled within the site: %v", err)
	}

	audited := 0
	for _, rec := range records() {
		if rec.Event == audit.Decision && rec.Effect == audit.Refused && rec.Rule == "sitea/no-policy" && rec.Job == string(job) {
			audited++
		}
	}
	if audited != 2 {
		t.Errorf("%d refusals are audited, want 2", audited)
	}
}

func TestBrokenPolicyIsNotServed(t *testing.T) {
	cfg := daemon.Defaults[Config]()
	cfg.Site = "sitea"
	withPolicy(t, "contact: x\nrule: []\n")(&cfg)
	if _, err := permit.Load(string(cfg.Policy)); err == nil || !strings.Contains(err.Error(), "policy.yaml:2:1: rule: unknown key; did you mean rules?") {
		t.Error(err)
	}
	cfg.Policy = "/nosuch/policy.yaml"
	if _, err := permit.Load(string(cfg.Policy)); err == nil || !strings.HasPrefix(err.Error(), "policy: ") {
		t.Error(err)
	}
}

// TestPolicyIsReadAgain: a reload sends another policy to the broker and drops the answers obtained
// under the one before; an invalid file changes nothing.
func TestPolicyIsReadAgain(t *testing.T) {
	set := withPolicy(t, "contact: before\n")
	r := newRig(t, set)
	r.broker.locked(func() {
		if got := r.broker.joins; len(got) != 1 || !strings.Contains(string(got[0].Policy), "contact: before") {
			t.Errorf("joined with %v", got)
		}
	})
	r.f.resolver.Remember(answerFor(9, 1, "siteb"))
	file := string(r.f.config().Policy)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("contact: after\nrules: 7\n")
	if _, err := r.f.reload(*r.f.config()); err == nil || !strings.Contains(err.Error(), "policy.yaml:2:8: rules: the number 7 where a list belongs") {
		t.Errorf("a broken policy: %v", err)
	}
	if _, ok := r.f.resolver.Cached(proc(9)); !ok {
		t.Error("a broken policy empties the cache")
	}
	write("contact: after\n")
	apply, err := r.f.reload(*r.f.config())
	if err != nil {
		t.Fatal(err)
	}
	apply()
	r.until("the broker to be told", func() bool {
		told := false
		r.broker.locked(func() {
			told = strings.Contains(string(r.broker.joins[len(r.broker.joins)-1].Policy), "contact: after")
		})
		return told
	})
	r.until("the answers to be forgotten", func() bool { _, ok := r.f.resolver.Cached(proc(9)); return !ok })
	next := *r.f.config()
	next.Policy = ""
	if apply, err = r.f.reload(next); err != nil {
		t.Fatal(err)
	}
	apply()
	r.until("the policy to be taken back", func() bool {
		var last *controlpb.JoinRequest
		r.broker.locked(func() { last = r.broker.joins[len(r.broker.joins)-1] })
		return len(last.Policy) == 0 && r.f.status().Policy == nil
	})
}

// TestOwnLimits: a relay is accepted only with a ticket that makes the proxy enforce the limits of
// the site's policy, or tighter ones.
func TestOwnLimits(t *testing.T) {
	r := newRig(t, withPolicy(t, "contact: opsa\nrules:\n- {name: b, effect: allow, limits: {links: 4, bytes_month: 1TB}}\n"))
	h := r.helper("a1")
	h.register(0)
	h.introduced = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
	}
	alice := &controlpb.Principal{User: "alice", Project: "p"}
	good := overlay.Allowance{Site: "sitea", Rule: "b", Owner: "project p", Contact: "opsa", Links: 4, Month: 1e12}
	for _, c := range []struct {
		name string
		with func(*overlay.Allowance) // nil: a ticket without any
		ok   bool
	}{
		{"its own", func(*overlay.Allowance) {}, true},
		{"fewer links", func(a *overlay.Allowance) { a.Links = 1 }, true},
		{"more links", func(a *overlay.Allowance) { a.Links = 5 }, false},
		{"any number of links", func(a *overlay.Allowance) { a.Links = 0 }, false},
		{"more bytes", func(a *overlay.Allowance) { a.Month++ }, false},
		{"another site's", func(a *overlay.Allowance) { a.Site = "siteb" }, false},
		{"another's", func(a *overlay.Allowance) { a.Owner = "project q" }, false},
		{"none", nil, false},
	} {
		tk := &wire.Ticket{Job: job, Proxy: "p1"}
		if c.with != nil {
			a := good
			c.with(&a)
			tk.Allowances[1], tk.Allowances[0] = a, overlay.Allowance{Site: "siteb", Rule: "x", Owner: "project p", Contact: "y", Rate: 5}
		}
		_, err := r.broker.introduced(&controlpb.Signal{
			Link: make([]byte, 16), Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(proc(9)), AskerSite: "siteb", AskerNode: "b1",
			Target: control.ProcessToPB(proc(0)), TargetGeneration: 1, AskerPrincipal: alice, TargetPrincipal: alice,
			Relay: &controlpb.Assignment{Proxy: "p1", Ticket: wire.Append(nil, tk)},
		})
		want := `the ticket for proxy p1 does not hold the link to rule "b" of sitea: 4 links at a time, 1TB a month; ask opsa`
		if c.ok && err != nil || !c.ok && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
