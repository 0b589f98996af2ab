package policy

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The oracle: regular expressions instead of globs, an iteration over the minutes of a calendar
// instead of arithmetic, and nothing shared with Evaluate.

func like(pattern, name string) bool {
	text := regexp.QuoteMeta(pattern)
	text = strings.ReplaceAll(strings.ReplaceAll(text, `\*`, `.*`), `\?`, `.`)
	return name != "" && regexp.MustCompile("^"+text+"$").MatchString(name)
}

func likeAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if like(p, name) {
			return true
		}
	}
	return len(patterns) == 0
}

// holds iterates from each possible start, today's and yesterday's, to the end of the span and
// checks whether it includes now.
func holds(h Hours, now time.Time) bool {
	for back := range 2 {
		begin := time.Date(now.Year(), now.Month(), now.Day()-back, int(h.From)/60, int(h.From)%60, 0, 0, time.UTC)
		mine := len(h.Days) == 0
		for _, d := range h.Days {
			for w := d.first; ; w = (w + 1) % 7 {
				mine = mine || w == begin.Weekday()
				if w == d.last {
					break
				}
			}
		}
		for m := begin; mine; m = m.Add(time.Minute) {
			if m.Equal(now) {
				return true
			}
			if next := m.Add(time.Minute); next.Hour()*60+next.Minute() == int(h.To)%day {
				break
			}
		}
	}
	return false
}

func oracle(p *Policy, q Question) (rule string, allow bool) {
	for _, r := range p.Rules {
		open := len(r.Hours) == 0
		for _, h := range r.Hours {
			open = open || holds(h, q.At)
		}
		ends := 0
		for _, w := range q.Who {
			if likeAny(r.Users, w.User) && likeAny(r.Projects, w.Project) {
				ends++
			}
		}
		named := len(r.Users)+len(r.Projects) > 0
		who := !named || r.Effect == "deny" && ends > 0 || r.Effect == "allow" && ends == len(q.Who) && ends > 0
		if open && who && likeAny(r.Sites, string(q.Peer)) && likeAny(r.Jobs, q.Job) {
			return r.Name, r.Effect == "allow"
		}
	}
	return "", false
}

func some[T any](rnd *rand.Rand, most int, one func() T) []T {
	var all []T
	for range rnd.IntN(most + 1) {
		all = append(all, one())
	}
	return all
}

// random returns a policy of words that often match.
func random(rnd *rand.Rand) *Policy {
	pattern := func() string {
		return []string{"a", "b", "ab", "*", "a*", "*b", "?", "a?", "*a*b", "?*"}[rnd.IntN(10)]
	}
	p := &Policy{Mode: Enforce, Contact: "x", Zone: Zone{time.UTC}}
	for i := range 1 + rnd.IntN(4) {
		r := Rule{Name: fmt.Sprint("r", i), Effect: []string{Allow, Deny}[rnd.IntN(2)]}
		r.Sites, r.Projects, r.Users, r.Jobs = some(rnd, 1, pattern), some(rnd, 2, pattern), some(rnd, 1, pattern), some(rnd, 1, pattern)
		r.Hours = some(rnd, 1, func() Hours {
			h := Hours{From: Clock(rnd.IntN(day)), To: Clock(rnd.IntN(day) + 1)}
			h.Days = some(rnd, 2, func() Day { return Day{time.Weekday(rnd.IntN(7)), time.Weekday(rnd.IntN(7))} })
			return h
		})
		if len(r.Hours) > 0 && r.Hours[0].Check() != nil {
			r.Hours = nil
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

// effort returns the seed of a comparison and of how many policies it is.
func effort() (seed uint64, policies int) {
	if testload.Full() {
		return rand.Uint64(), 2000
	}
	return 1, 200
}

func TestEvaluateIsTheOracles(t *testing.T) {
	seed, policies := effort()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	name := func() string { return []string{"", "a", "b", "ab", "aab", "ba"}[rnd.IntN(6)] }
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	fits, allowed := 0, 0
	for range policies {
		p := random(rnd)
		for range 5 {
			q := Question{Peer: overlay.SiteID([]string{"a", "b", "ab"}[rnd.IntN(3)]), Job: "ab", At: start.Add(time.Duration(rnd.IntN(2*week)) * time.Minute)}
			q.Who = some(rnd, 2, func() Who { return Who{User: name(), Project: name()} })
			rule, allow := oracle(p, q)
			d := p.Evaluate(q)
			if d.Rule != rule || d.Allow != allow || d.Refuse == allow {
				t.Fatalf("%+v\n%s\n%+v, the oracle: rule %q, allow %v", q, p.Text(), d, rule, allow)
			}
			if rule != "" {
				fits++
			}
			if allow {
				allowed++
			}
		}
	}
	if fits < policies/2 || allowed < policies/4 {
		t.Errorf("only %d questions fit a rule, %d were allowed: this compares nothing", fits, allowed)
	}
}

// A rule that Examine calls unreachable never decides.
func TestShadowedRulesNeverDecide(t *testing.T) {
	seed, policies := effort()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	name := func() string { return []string{"", "a", "b", "ab", "aab", "ba"}[rnd.IntN(6)] }
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	shadowed := 0
	for range policies {
		p := random(rnd)
		dead := map[string]bool{}
		_, faults, doubts := Examine("p", p.Text())
		if len(faults) > 0 {
			t.Fatalf("%v\n%s", faults, p.Text())
		}
		for _, d := range doubts {
			var i int
			if _, err := fmt.Sscanf(d.Key, "rules[%d]", &i); err == nil && strings.Contains(d.Error(), "never reached") {
				dead[p.Rules[i].Name] = true
				shadowed++
			}
		}
		for range 10 {
			q := Question{Peer: "ab", Job: "ab", At: start.Add(time.Duration(rnd.IntN(week)) * time.Minute)}
			q.Who = some(rnd, 2, func() Who { return Who{User: name(), Project: name()} })
			if d := p.Evaluate(q); dead[d.Rule] {
				t.Fatalf("%+v is decided by %q, which is said to be unreachable:\n%s", q, d.Rule, p.Text())
			}
		}
	}
	if shadowed < policies/50 {
		t.Errorf("only %d rules were shadowed: this compares nothing", shadowed)
	}
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile(sample)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("contact: x\nrules:\n- {name: a, effect: allow, hours: [{days: [sun-mon], to: \"00:01\"}], limits: {rate: 1.5Gbit/s}}")
	f.Add("a: &a [*a, *a]")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("f", []byte(text))
		if err != nil {
			return
		}
		again, err := Parse("sent", p.Text())
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Text())
		}
		q := Question{Peer: "siteb", Job: "j", Who: []Who{{User: "alice", Project: "p"}}, At: time.Unix(1795000000, 0)}
		if a, b := p.Evaluate(q), again.Evaluate(q); a.Text != b.Text {
			t.Fatalf("%+v, after sending %+v", a, b)
		}
		if len(p.Text()) < 16<<10 {
			Examine("f", []byte(text))
		}
	})
}
