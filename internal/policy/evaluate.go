package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Question is a link as one end's site sees it.
type Question struct {
	Peer overlay.SiteID // the other end's site
	Job  string         // the name that the job's user chose
	Who  []Who          // on whose behalf both ends work, each known once; empty is nobody known
	At   time.Time
}

// Decision is what a policy says about a link.
type Decision struct {
	Allow  bool   `json:"allow"`  // the link may be
	Refuse bool   `json:"refuse"` // the rules refuse it; with Allow: in dry-run mode
	Rule   string `json:"rule"`   // the rule that fits; empty when none does
	Text   string `json:"text"`   // the same in a sentence without subject: `rule "x" allows it`

	// Of a rule that allows. In dry-run mode they bind nobody.
	Techniques []overlay.Technique `json:"techniques,omitempty"` // nil: every one
	Limits     Limits              `json:"limits"`
}

// Evaluate finds the first rule that fits. A rule that allows fits when both
// ends of the link fit its users and projects; one that denies, when either
// does. So it does not matter who asks for a link: either end may dial.
func (p *Policy) Evaluate(q Question) Decision {
	q.At = q.At.In(p.Zone.Location)
	asleep := "" // a rule that would allow it at another time
	for _, r := range p.Rules {
		if !r.fits(q) {
			continue
		}
		if !r.awake(q.At) {
			if r.Effect == Allow && asleep == "" {
				asleep = fmt.Sprintf("; rule %q would, %s", r.Name, r.conditions(p.Zone))
			}
			continue
		}
		d := Decision{Allow: true, Rule: r.Name, Techniques: r.Techniques, Limits: r.Limits, Text: fmt.Sprintf("rule %q allows it", r.Name)}
		if r.Effect == Deny {
			d = p.refuse(Decision{Rule: r.Name, Text: fmt.Sprintf("rule %q denies it", r.Name)})
		}
		return d
	}
	return p.refuse(Decision{Text: "no rule allows it" + asleep})
}

// refuse makes d a refusal, or what dry-run mode makes of one.
func (p *Policy) refuse(d Decision) Decision {
	d.Refuse, d.Allow = true, p.Mode == DryRun
	return d
}

// fits reports whether the rule is about such a link, at whatever time.
func (r Rule) fits(q Question) bool {
	if !anyFits(r.Sites, string(q.Peer)) || !anyFits(r.Jobs, q.Job) {
		return false
	}
	if len(r.Users) == 0 && len(r.Projects) == 0 {
		return true
	}
	end := func(w Who) bool { return anyFits(r.Users, w.User) && anyFits(r.Projects, w.Project) }
	if r.Effect == Deny {
		return slices.ContainsFunc(q.Who, end)
	}
	return len(q.Who) > 0 && !slices.ContainsFunc(q.Who, func(w Who) bool { return !end(w) })
}

// anyFits reports whether one of the patterns fits, or there is none to fit.
func anyFits(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

// awake reports whether the rule holds at t.
func (r Rule) awake(t time.Time) bool {
	return len(r.Hours) == 0 || slices.ContainsFunc(r.Hours, func(h Hours) bool { return h.contain(t) })
}

// conditions describes the rule's hours.
func (r Rule) conditions(zone Zone) string {
	var spans []string
	for _, h := range r.Hours {
		spans = append(spans, h.String())
	}
	return strings.Join(spans, " and ") + " " + zone.String()
}

// permits reports whether the decision leaves a technique.
func (d Decision) permits(t overlay.Technique) bool {
	return len(d.Techniques) == 0 || slices.Contains(d.Techniques, t)
}
