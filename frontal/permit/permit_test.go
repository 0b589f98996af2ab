package permit

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const job = overlay.JobID("demo-0123456789abcdef0123456789abcdef")

// A judged is the Judge of sitea, what it logged, and its audit records.
type judged struct {
	*Judge
	log     bytes.Buffer
	records []audit.Record
}

func judge(t *testing.T, text string) *judged {
	t.Helper()
	j := &judged{}
	j.Judge = New(Options{
		Site: "sitea", Who: "frontal sitea", Log: slog.New(slog.NewTextHandler(&j.log, nil)),
		File:  func() string { return "policy.yaml" },
		Audit: func(r audit.Record) { j.records = append(j.records, r) },
	}, parsed(t, text))
	return j
}

// parsed returns a policy, nil for no text.
func parsed(t *testing.T, text string) *policy.Policy {
	t.Helper()
	if text == "" {
		return nil
	}
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// signal is a request of a process at siteb; names are "USER" or "USER for PROJECT", "" for nobody.
func signal(asker, own string, t overlay.Technique) *controlpb.Signal {
	return &controlpb.Signal{
		AskerSite: "siteb", Technique: uint32(t), Asker: &controlpb.Process{Job: string(job), Rank: 9}, Target: &controlpb.Process{Job: string(job)},
		AskerPrincipal: principal(asker), TargetPrincipal: principal(own),
	}
}

func principal(name string) *controlpb.Principal {
	user, project, _ := strings.Cut(name, " for ")
	return &controlpb.Principal{User: user, Project: project}
}

func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// A site's own rules decide about signalling requests to its processes, whatever the broker says; for
// its accounts its helpers' reports count, not the broker's.
func TestPermit(t *testing.T) {
	j := judge(t, "contact: opsa\nrules:\n- {name: no-eve, effect: deny, users: [eve]}\n- {name: b, effect: allow, sites: [siteb], users: [alice, \"bob@siteb\", \"me@sitea\"], techniques: [relay]}\n")
	here := overlay.AccessPoint{Process: overlay.ProcessName{Job: job}, Principal: overlay.Principal{User: "root@sitea"}}
	mine := here
	mine.Principal.User = "me@sitea"
	elsewhere, inside := signal("alice", "alice", overlay.Relay), signal("eve", "eve", overlay.Direct)
	elsewhere.AskerSite, inside.AskerSite = "sitec", "sitea"
	for _, c := range []struct {
		name          string
		in            *controlpb.Signal
		point         overlay.AccessPoint
		refusal, rule string // the rule is audited
	}{
		{"by grants", signal("alice for p", "alice", overlay.Relay), here, "", ""},
		{"another technique", signal("alice for p", "alice", overlay.Reversed), here, `siteb to sitea by reversed: the policy of sitea does not allow it (rule "b"); ask opsa`, ""},
		{"an unknown technique", signal("alice for p", "alice", 99), here, "technique 99", ""},
		{"another site", elsewhere, here, "refuses links of job demo, user alice (no project) with sitec: no rule allows it; ask opsa", "sitea/default"},
		{"who is denied", signal("eve", "alice", overlay.Relay), here, `rule "no-eve" denies it`, "sitea/no-eve"},
		{"nobody known", signal("", "alice", overlay.Relay), here, "an unknown user", "sitea/default"},
		{"an account here", signal("alice", "me@sitea", overlay.Relay), mine, "", ""},
		{"the broker's word for an account here", signal("alice", "me@sitea", overlay.Relay), here, "no rule allows it", "sitea/default"},
		{"nobody known here, but to the helper", signal("alice", "", overlay.Relay), mine, "", ""},
		{"no asker's name", signal("a b", "alice", overlay.Relay), here, "asker: user name", ""},
		{"no name here", signal("alice", "a b", overlay.Relay), here, "target: user name", ""},
		{"within the site", inside, here, "", ""},
	} {
		j.records = nil
		refused(t, c.name, j.Permit(c.in, c.point), c.refusal)
		audited := ""
		for _, r := range j.records {
			audited += r.Rule
		}
		if audited != c.rule {
			t.Errorf("%s: audited %q, want %q", c.name, audited, c.rule)
		}
	}
}

// A relay is permitted only with a ticket that makes the proxy enforce the limits of the site's
// policy, or tighter ones.
func TestPermitWithinLimits(t *testing.T) {
	j := judge(t, "contact: opsa\nrules:\n- {name: b, effect: allow, limits: {links: 4, bytes_month: 1TB}}\n")
	point := overlay.AccessPoint{Process: overlay.ProcessName{Job: job}}
	good := overlay.Allowance{Site: "sitea", Rule: "b", Owner: "project p", Contact: "opsa", Links: 4, Month: 1e12}
	for name, c := range map[string]struct {
		with func(*overlay.Allowance) // nil: a ticket without any
		ok   bool
	}{
		"its own":             {func(*overlay.Allowance) {}, true},
		"fewer links":         {func(a *overlay.Allowance) { a.Links = 1 }, true},
		"a rate besides":      {func(a *overlay.Allowance) { a.Rate = 1 }, true},
		"more links":          {func(a *overlay.Allowance) { a.Links = 5 }, false},
		"any number of links": {func(a *overlay.Allowance) { a.Links = 0 }, false},
		"more bytes":          {func(a *overlay.Allowance) { a.Month++ }, false},
		"another rule's":      {func(a *overlay.Allowance) { a.Rule = "c" }, false},
		"another site's":      {func(a *overlay.Allowance) { a.Site = "siteb" }, false},
		"another's":           {func(a *overlay.Allowance) { a.Owner = "project q" }, false},
		"none":                {nil, false},
	} {
		tk := &wire.Ticket{Job: job, Proxy: "p1"}
		if c.with != nil {
			a := good
			c.with(&a)
			tk.Allowances[1], tk.Allowances[0] = a, overlay.Allowance{Site: "siteb", Rule: "x", Owner: "project p", Contact: "y", Rate: 5}
		}
		in := signal("alice for p", "alice for p", overlay.Relay)
		in.Relay = &controlpb.Assignment{Proxy: "p1", Ticket: wire.Append(nil, tk)}
		want := `the ticket for proxy p1 does not hold the link to rule "b" of sitea: 4 links at a time, 1TB a month; ask opsa`
		if c.ok {
			want = ""
		}
		refused(t, name, j.Permit(in, point), want)
	}
	in := signal("alice", "alice", overlay.Relay)
	in.Relay = &controlpb.Assignment{Proxy: "p1", Ticket: []byte("IS")}
	refused(t, "no ticket", j.Permit(in, point), "does not hold the link")
}

// In dry-run mode a refusal is only logged.
func TestDryRun(t *testing.T) {
	j := judge(t, "contact: opsa\nmode: dry-run\n")
	if err := j.Permit(signal("alice", "bob", overlay.Direct), overlay.AccessPoint{Process: overlay.ProcessName{Job: job}}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(j.log.String(), "dry-run: the policy of sitea would refuse") {
		t.Errorf("log: %s", &j.log)
	}
}

// Without a policy a site's processes learn nothing of those of other sites, and none of other sites
// is signalled to them. The refusal names the setting that would permit it.
func TestNoPolicy(t *testing.T) {
	j := judge(t, "")
	want := `with siteb: it has no policy (rule "no-policy"), so its links stay inside it; set policy: in its frontal.yaml; the smallest that permits site siteb: ` +
		policy.Example("sitea", "siteb")
	at := func(site string) *controlpb.AccessPoint {
		return &controlpb.AccessPoint{Site: site, Process: &controlpb.Process{Job: string(job)}}
	}
	refused(t, "where one of another site is", j.Inside(at("siteb")), want)
	refused(t, "being signalled", j.Permit(signal("alice", "alice", overlay.Relay), overlay.AccessPoint{Process: overlay.ProcessName{Job: job}}), want)
	refused(t, "where one of the site is", j.Inside(at("sitea")), "")
	if len(j.records) != 2 {
		t.Fatalf("audited: %+v", j.records)
	}
	for _, r := range j.records {
		if r.Event != audit.Decision || r.Effect != audit.Refused || r.Rule != "sitea/no-policy" || r.Job != string(job) {
			t.Errorf("audited: %+v", r)
		}
	}
	if j.Status() != nil || j.Text() != nil {
		t.Errorf("status %+v, text %q", j.Status(), j.Text())
	}
	j.Describe()
	if !strings.Contains(j.log.String(), "the site has no policy") {
		t.Errorf("log: %s", &j.log)
	}

	with := judge(t, "contact: opsa\n")
	refused(t, "with a policy, which the broker has asked", with.Inside(at("siteb")), "")
}

// A change is one of what the policy says, not of its comments, and is audited.
func TestChange(t *testing.T) {
	j := judge(t, "contact: opsa\n")
	if j.Change(parsed(t, "# the same\ncontact: opsa\n")) || len(j.records) != 0 {
		t.Errorf("a comment is a change: %+v", j.records)
	}
	if !j.Change(parsed(t, "contact: opsb\nrules:\n- {name: b, effect: allow}\n")) || len(j.records) != 1 || !strings.Contains(j.records[0].Reason, "mode enforce, 1 rules, SHA-256 ") {
		t.Errorf("another contact: %+v", j.records)
	}
	if s := j.Status(); s == nil || *s != (Status{"policy.yaml", "enforce", 1, "opsb"}) {
		t.Errorf("status %+v", s)
	}
	if !j.Change(nil) || len(j.records) != 2 || !strings.Contains(j.records[1].Reason, "no policy any more") {
		t.Errorf("no policy: %+v", j.records)
	}
}

func TestCheckKept(t *testing.T) {
	const limited = "contact: opsa\nrules:\n- {name: b, effect: allow, limits: {links: 4}}\n"
	for name, c := range map[string]struct {
		policy string
		broker *controlpb.JoinResponse
		want   string
	}{
		"none":                      {"", &controlpb.JoinResponse{}, ""},
		"kept":                      {limited, &controlpb.JoinResponse{Policy: true, Limits: true}, ""},
		"no policies":               {limited, &controlpb.JoinResponse{}, "the broker is older than policies"},
		"no limits":                 {limited, &controlpb.JoinResponse{Policy: true}, "too old for limits"},
		"no limits, none are asked": {"contact: opsa\n", &controlpb.JoinResponse{Policy: true}, ""},
	} {
		j := judge(t, c.policy)
		j.CheckKept(c.broker)
		if got := j.log.String(); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	if p, err := Load(""); p != nil || err != nil {
		t.Error(p, err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if _, err := Load(file); err == nil || !strings.HasPrefix(err.Error(), "policy: ") {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("contact: x\nrule: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "policy.yaml:2:1: rule: unknown key; did you mean rules?") {
		t.Error(err)
	}
}
