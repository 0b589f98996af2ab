package policy

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

const sample = "../../deploy/config/policy.yaml"

func mustParse(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	when, err := time.Parse("2006-01-02 15:04 MST", text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestSample(t *testing.T) {
	text, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	p, faults, doubts := Examine(sample, text)
	if len(faults)+len(doubts) > 0 {
		t.Fatalf("%v\n%v", faults, doubts)
	}
	again, err := Parse("sent", p.Text())
	if err != nil || string(again.Text()) != string(p.Text()) || again.Zone.String() != "Europe/Berlin" {
		t.Errorf("%v\n%s", err, p.Text())
	}
}

func TestMistakesAreNamed(t *testing.T) {
	rule := func(keys string) string { return "contact: x\nrules:\n- {name: a, effect: allow, " + keys + "}" }
	for _, c := range []struct{ text, want string }{
		{"contact: x\nrule: []", "p.yaml:2:1: rule: unknown key; did you mean rules?"},
		{"rules: []", "contact: needs a value"},
		{"contact: x\nmode: dryrun", `mode: "dryrun" is not one of enforce, dry-run; did you mean dry-run?`},
		{"contact: x\nzone: Europe/Berlim", `p.yaml:2:7: zone: "Europe/Berlim": no such time zone`},
		{"contact: x\nzone: Local", "no such time zone"},
		{"contact: \"a\\nb\"", "one line"},
		{"contact: x\nrules:\n- {effect: allow}", "rules[0].name: needs a value"},
		{"contact: x\nrules:\n- {name: a}", "rules[0].effect: needs a value"},
		{"contact: x\nrules:\n- {name: a, effect: allow}\n- {name: a, effect: deny}", `p.yaml:4:10: rules[1].name: "a" is the name of rules[0] already`},
		{rule("site: [b]"), "p.yaml:3:28: rules[0].site: unknown key; did you mean sites?"},
		{rule("sites: [SiteB]"), "rules[0].sites[0]"},
		{rule("projects: [\"\"]"), "pattern of 0 bytes"},
		{rule("users: [\"a\\x1bb\"]"), "cannot be part of a name"},
		{rule("techniques: [direkt]"), `"direkt": unknown technique`},
		{rule("limits: {rate: 100}"), "is not a rate; write a number and a unit"},
		{rule("limits: {rate: 10MB}"), "is not a rate; write a number and a unit"},
		{rule("limits: {bytes_month: 2Tbit}"), "rules[0].limits.bytes_month"},
		{rule("limits: {links: -1}"), "less than 0"},
		{rule("hours: [{days: [monday]}]"), "want one of mon"},
		{rule("hours: [{from: \"25:00\"}]"), "time of day"},
		{rule("hours: [{from: \"1:00\"}]"), "time of day"},
		{rule("hours: [{from: \"08:60\"}]"), "time of day"},
		{rule("hours: [{from: \"08:00\", to: \"08:00\"}]"), "is also from"},
		{rule("hours: [{from: \"24:00\", to: \"08:00\"}]"), "no minute of the day"},
		{rule("hours: [{days: [fri], from: \"20:00\", to: \"06:00\"}, {days: [sat], to: \"06:01\"}]"), "rules[0].hours[1]: overlaps hours[0]"},
		{rule("sites: &s [b]") + "\n- {name: b, effect: deny, sites: *s}", "line 4: *s repeats"},
		{"contact: x\nrules:\n- {name: a, effect: deny, techniques: [relay]}", "rules[0].techniques: a rule that denies"},
		{"contact: x\nrules:\n- {name: a, effect: deny, limits: {links: 1}}", "rules[0].limits: a rule that denies"},
		{strings.Repeat("#", MaxText+1), "at most"},
	} {
		_, err := Parse("p.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n  %v\n  want %s", c.text, err, c.want)
		}
	}
}

func TestDoubts(t *testing.T) {
	rules := func(lines ...string) string { return "contact: x\nrules:\n- " + strings.Join(lines, "\n- ") }
	for _, c := range []struct{ text, want string }{ // want "": no doubt
		{"contact: x", "every link with another site is refused"},
		{"mode: dry-run\n" + rules("{name: a, effect: allow}"), "p.yaml:1:7: mode: dry-run: nothing is refused"},
		{rules("{name: a, effect: allow}", "{name: b, effect: deny, sites: [x]}"), `p.yaml:4:3: rules[1]: rule "b" is never reached: "a" before it`},
		{rules("{name: a, effect: allow, sites: [\"x*\"]}", "{name: b, effect: deny, sites: [xy, \"x?z\"]}"), "never reached"},
		{rules("{name: a, effect: allow, sites: [\"x*\"]}", "{name: b, effect: deny, sites: [xy, y]}"), ""},
		{rules("{name: a, effect: allow, sites: [\"x?\"]}", "{name: b, effect: deny, sites: [\"x*\"]}"), ""},
		{rules("{name: a, effect: allow, projects: [\"*\"]}", "{name: b, effect: allow}"), ""}, // those without a project
		{rules("{name: a, effect: allow, projects: [\"*\"]}", "{name: b, effect: allow, projects: [p]}"), "never reached"},
		{rules("{name: a, effect: allow, projects: [\"*\"]}", "{name: b, effect: deny, projects: [p]}"), ""}, // the other end has none
		{rules("{name: a, effect: deny, projects: [\"*\"]}", "{name: b, effect: deny, projects: [p], users: [u]}"), "never reached"},
		{rules("{name: a, effect: allow, hours: [{from: \"08:00\"}]}", "{name: b, effect: allow}"), ""},
		{rules("{name: a, effect: allow, hours: [{to: \"12:00\"}, {from: \"12:00\"}]}", "{name: b, effect: allow}"), "never reached"},
		{rules("{name: a, effect: allow, hours: [{days: [sun-fri]}]}", "{name: b, effect: allow, hours: [{days: [fri-sat], from: \"23:00\", to: \"01:00\"}]}"), ""},
		{rules("{name: a, effect: allow, hours: [{days: [fri-sun]}]}", "{name: b, effect: allow, hours: [{days: [fri-sat], from: \"23:00\", to: \"01:00\"}]}"), "never reached"},
		{rules("{name: a, effect: allow, limits: {links: 3}}"), ""},
		{rules("{name: a, effect: allow, techniques: [direct], limits: {links: 3}}"), "p.yaml:3:58: rules[0].limits: only a relay can keep limits"},
	} {
		_, faults, doubts := Examine("p.yaml", []byte(c.text))
		if len(faults) > 0 || c.want == "" && len(doubts) > 0 || c.want != "" && (len(doubts) != 1 || !strings.Contains(doubts.Error(), c.want)) {
			t.Errorf("%s\n  faults %v\n  doubts %v\n  want %s", c.text, faults, doubts, c.want)
		}
	}
}

func TestEvaluate(t *testing.T) {
	p := mustParse(t, `
contact: ops
zone: Europe/Berlin
rules:
- {name: never-mallory, effect: deny, users: [mallory, "mallory@*"]}
- {name: no-to-c, effect: deny, sites: [sitec], jobs: ["test-*"]}
- {name: p, effect: allow, projects: [p], techniques: [relay], limits: {links: 5, rate: 1Gbit/s}}
- {name: locals, effect: allow, users: ["*@sitea", "*@siteb"], sites: [siteb], hours: [{days: [fri], from: "20:00", to: "06:00"}]}
`)
	alice, bob, mallory := Who{User: "alice", Project: "p"}, Who{User: "bob@siteb"}, Who{User: "mallory@siteb"}
	friday, saturday, noon := "2026-11-20 19:30 UTC", "2026-11-21 04:59 UTC", "2026-11-21 05:00 UTC" // Berlin is UTC+1
	for _, c := range []struct {
		name, peer, job, at string
		who                 []Who
		rule, text          string
		refuse              bool
	}{
		{"by its grant", "siteb", "j", noon, []Who{alice}, "p", "allows", false},
		{"both ends must fit what allows", "siteb", "j", noon, []Who{alice, bob}, "", "no rule allows it", true},
		{"one end is enough to deny", "siteb", "j", friday, []Who{mallory, bob}, "never-mallory", "denies", true},
		{"in its hours", "siteb", "j", friday, []Who{bob}, "locals", "allows", false},
		{"after midnight", "siteb", "j", saturday, []Who{bob}, "locals", "allows", false},
		{"at their end", "siteb", "j", noon, []Who{bob}, "", `rule "locals" would, fri 20:00-06:00 Europe/Berlin`, true},
		{"another site", "sitec", "j", friday, []Who{bob}, "", "no rule allows it", true},
		{"the job's name", "sitec", "test-1", friday, []Who{alice}, "no-to-c", "denies", true},
		{"nobody known", "siteb", "j", friday, nil, "", "no rule allows it", true},
		{"an unknown user", "siteb", "j", friday, []Who{{}}, "", "no rule allows it", true},
	} {
		d := p.Evaluate(Question{Peer: overlay.SiteID(c.peer), Job: c.job, Who: c.who, At: at(t, c.at)})
		if d.Refuse != c.refuse || d.Allow == c.refuse || d.Rule != c.rule || !strings.Contains(d.Text, c.text) {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestBothMustAgree(t *testing.T) {
	a := Side{Site: "sitea", Policy: mustParse(t, "contact: opsa\nrules:\n- {name: x, effect: allow, techniques: [direct, relay], limits: {links: 5, rate: 1Gbit/s}}")}
	b := Side{Site: "siteb", Policy: mustParse(t, "contact: opsb\nrules:\n- {name: no-q, effect: deny, projects: [q]}\n- {name: y, effect: allow, techniques: [reversed, relay], limits: {rate: 2Gbit/s, bytes_month: 1TB}}")}
	c := Side{Site: "sitec", Policy: mustParse(t, "contact: opsc\nrules:\n- {name: z, effect: allow, techniques: [hole-punching]}")}
	dry := Side{Site: "dry", Policy: mustParse(t, "mode: dry-run\ncontact: opsd\nrules:\n- {name: no-q, effect: deny, projects: [q]}\n- {name: w, effect: allow, techniques: [direct, relay]}")}
	none := Side{Site: "none", EvaluatedElsewhere: true}
	p, q := []Who{{User: "alice", Project: "p"}}, []Who{{User: "alice", Project: "q"}}
	now := time.Now()

	g := Agree(a, b, "j", p, now)
	if g.Err() != nil || !reflect.DeepEqual(g.Techniques, []overlay.Technique{overlay.Relay}) || g.Limits != (Limits{Links: 5, Rate: 1e9, BytesMonth: 1e12}) {
		t.Errorf("%+v", g)
	}
	if why := g.Without(overlay.Direct); !strings.Contains(why, "sitea limits it (5 links at a time, 1Gbit/s)") || !strings.Contains(why, `"x"`) {
		t.Error(why)
	}
	if why := g.Without(overlay.HolePunching); !strings.Contains(why, "sitea does not allow it") {
		t.Error(why)
	}
	if got, want := g.Within(), `rule "x" of sitea: 5 links at a time, 1Gbit/s; ask opsa, rule "y" of siteb: 2Gbit/s, 1TB a month; ask opsb`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := g.Allowances("j", [2]Who{p[0], {User: "bob@siteb"}}), []overlay.Allowance{
		{Site: "sitea", Rule: "x", Owner: "project p", Contact: "opsa", Links: 5, Rate: 1e9},
		{Site: "siteb", Rule: "y", Owner: "user bob@siteb", Contact: "opsb", Rate: 2e9, Month: 1e12},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := g.Rule(); got != "sitea/x siteb/y" {
		t.Error(got)
	}
	back := Agree(b, a, "j", p, now)
	if !reflect.DeepEqual(back.Techniques, g.Techniques) || back.Limits != g.Limits {
		t.Errorf("the other way: %+v", back)
	}

	g = Agree(a, b, "j", q, now)
	want := `not permitted: the policy of siteb refuses links of job j, user alice (project q) with sitea: rule "no-q" denies it; ask opsb`
	if err := g.Err(); !errors.Is(err, overlay.ErrForbidden) || err.Error() != want || len(g.Techniques) > 0 {
		t.Errorf("%v", err)
	}

	if got := g.Rule(); got != "siteb/no-q" {
		t.Error(got)
	}

	g = Agree(a, c, "j", p, now)
	if err := g.Err(); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "no technique in common; ask opsa or opsc") {
		t.Errorf("%v", err)
	}

	unkept := Side{Site: "sitee", Policy: mustParse(t, "contact: opse\nrules:\n- {name: v, effect: allow, techniques: [direct], limits: {links: 1}}")}
	g = Agree(none, unkept, "j", p, now)
	if err := g.Err(); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), `rule "v" of sitee limits`) {
		t.Errorf("%v", err)
	}

	g = Agree(none, dry, "j", q, now)
	if err := g.Err(); err != nil || len(g.Techniques) != len(overlay.Techniques()) || len(g.Would()) != 1 || !strings.Contains(g.Would()[0], "would refuse") {
		t.Errorf("%v %+v %q", err, g, g.Would())
	}
	if got := g.Rule(); got != "dry/no-q" {
		t.Error(got)
	}
	g = Agree(none, dry, "j", p, now)
	if len(g.Would()) != 1 || !strings.Contains(g.Would()[0], "without port-range, reversed") {
		t.Errorf("%q", g.Would())
	}
	g = Agree(none, Side{Site: "other", EvaluatedElsewhere: true}, "j", nil, now)
	if g.Err() != nil || len(g.Techniques) != len(overlay.Techniques()) || g.Key() != "" || g.Rule() != "" {
		t.Errorf("%+v", g)
	}
}

// A site without a policy refuses every other site, whatever that permits, and the error says what
// to write.
func TestNoPolicyPermitsNothing(t *testing.T) {
	open := Side{Site: "siteb", Policy: mustParse(t, "contact: opsb\nrules: [{name: all, effect: allow}]")}
	dry := Side{Site: "siteb", Policy: mustParse(t, "contact: opsb\nmode: dry-run")}
	bare := Side{Site: "sitea"}
	for _, peer := range []Side{open, dry, {Site: "siteb"}, {Site: "siteb", EvaluatedElsewhere: true}} {
		for _, g := range []Agreement{Agree(bare, peer, "j", nil, time.Now()), Agree(peer, bare, "j", nil, time.Now())} {
			err := g.Err()
			if !errors.Is(err, overlay.ErrForbidden) || g.Allow || len(g.Techniques) > 0 {
				t.Errorf("%+v: %v", peer, err)
			} else if peer.Policy != nil && (!strings.Contains(err.Error(), "site sitea refuses links of job j with siteb: it has no policy") || g.Rule() != "sitea/no-policy") {
				t.Errorf("%+v: %s: %v", peer, g.Rule(), err)
			}
		}
	}
	p, err := Parse("smallest", []byte(Example("sitea", "siteb")))
	if err != nil {
		t.Fatal(err)
	}
	told := Side{Site: "sitea", Policy: p}
	if g := Agree(told, open, "j", nil, time.Now()); g.Err() != nil || len(g.Techniques) != len(overlay.Techniques()) {
		t.Errorf("with %s: %v", Example("sitea", "siteb"), g.Err())
	}
	if g := Agree(told, Side{Site: "sitec", EvaluatedElsewhere: true}, "j", nil, time.Now()); g.Err() == nil {
		t.Error("it permits another site, too")
	}
}
