package quota

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

func allowed(site string, links uint32, rate, month uint64) overlay.Allowance {
	return overlay.Allowance{Site: overlay.SiteID(site), Rule: "r", Owner: "project p", Contact: "ops@" + site, Links: links, Rate: rate, Month: month}
}

func TestAllowedLinks(t *testing.T) {
	q := New(Rules{}, nil, noon)
	o := Owner{User: "alice", Project: "p", Job: "j", Allowances: []overlay.Allowance{allowed("sitea", 2, 0, 0)}}
	first, err := q.Admit(o, noon)
	if err != nil {
		t.Fatal(err)
	}
	other := o
	other.User, other.Job = "bob", "k" // another user of the project
	if _, err := q.Admit(other, noon); err != nil {
		t.Fatal(err)
	}
	_, err = q.Admit(o, noon)
	refused, ok := errors.AsType[*Refused](err)
	if !ok || refused.Key != "policy.links" || !errors.Is(err, overlay.ErrOverloaded) {
		t.Fatalf("%v", err)
	}
	for _, word := range []string{"sitea", `"r"`, "project p", "2 relayed links", "ops@sitea"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %s", err, word)
		}
	}
	another := o
	another.Allowances = []overlay.Allowance{allowed("sitec", 1, 0, 0)}
	if _, err := q.Admit(another, noon); err != nil {
		t.Errorf("another site's policy: %v", err)
	}
	if got := q.Uses(noon).Allowed["sitea/r project p"].Links; got != 2 {
		t.Errorf("%d links are shown", got)
	}
	q.Release(first)
	if _, err := q.Admit(o, noon); err != nil {
		t.Errorf("after one ended: %v", err)
	}
}

// One site's policy is the first of some links' two, and the second of others': its rate applies to
// both together.
func TestAllowedRate(t *testing.T) {
	c := newCrowd(t, Rules{Rate: 4e9})
	a, b, d := allowed("sitea", 0, 1e9, 0), allowed("siteb", 0, 4e8, 0), allowed("sited", 0, 0, 1<<60)
	ab := c.add(Owner{User: "u", Project: "p", Job: "1", Allowances: []overlay.Allowance{a, b}}, 3)
	da := c.add(Owner{User: "u", Project: "p", Job: "2", Allowances: []overlay.Allowance{d, a}}, 3)
	free := c.add(Owner{User: "v", Job: "3"}, 1)
	c.settle()
	c.run(4 * 1e9)
	near(t, "those under sitea's policy", c.sum(ab)+c.sum(da), 4*1e9/8, 0.05)
	near(t, "those under siteb's, too", c.sum(ab), 4*4e8/8, 0.15)
	near(t, "who is under none", c.sum(free), 4*3e9/8, 0.05)
	if rate, by := ab[0].Link().Limit(); rate != 4e8 || by != "policy of siteb/r project p" {
		t.Errorf("limited to %v by %s", rate, by)
	}
	if !ab[0].Link().Paced() {
		t.Error("a limited link need not wait")
	}
}

func TestAllowedMonth(t *testing.T) {
	q := New(Rules{}, nil, noon)
	o := Owner{User: "alice", Project: "p", Job: "j", Allowances: []overlay.Allowance{allowed("sitea", 0, 0, 1000)}}
	l, err := q.Admit(o, noon)
	if err != nil {
		t.Fatal(err)
	}
	if q.Count(o, 999, noon) || l.Paced() {
		t.Error("slowed before the month was used up")
	}
	if !q.Count(o, 1, noon) {
		t.Error("using the month up changed nothing")
	}
	if rate, _ := l.Limit(); rate != DefaultTrickle {
		t.Errorf("it goes on at %v", rate)
	}
	_, err = q.Admit(o, noon)
	if refused, ok := errors.AsType[*Refused](err); !ok || refused.Key != "policy.bytes_month" || !strings.Contains(err.Error(), "until 2026-12-01; ask ops@sitea") {
		t.Errorf("%v", err)
	}
	text, err := json.Marshal(q.Fresh())
	if err != nil {
		t.Fatal(err)
	}
	stored := NewLedger()
	if err := json.Unmarshal(text, stored); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Rules{}, stored, noon).Admit(o, noon); err == nil {
		t.Error("after a restart the month counts from zero")
	}
	december := noon.AddDate(0, 0, 10)
	if !q.Tidy(december) || l.Paced() {
		t.Error("a new month lifts nothing")
	}
	if _, err := q.Admit(o, december); err != nil {
		t.Error(err)
	}
}
