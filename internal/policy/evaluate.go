package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Question is a link from the point of view of one end's site.
type Question struct {
	Peer overlay.SiteID // the other end's site
	Job  string         // the name that the job's user chose
	Who  []Who          // the principals of both ends, each known one once; empty: none is known
	At   time.Time
}

// Decision is a policy's decision about a link.
type Decision struct {
	Allow  bool   `json:"allow"`  // the link is permitted
	Refuse bool   `json:"refuse"` // the rules refuse it; with Allow: in dry-run mode
	Rule   string `json:"rule"`   // the matching rule; empty if none matches
	Text   string `json:"text"`   // the same in a sentence without subject: `rule "x" allows it`

	// Of a rule that allows. In dry-run mode they are not enforced.
	Techniques []overlay.Technique `json:"techniques,omitempty"` // nil: all of them
	Limits     Limits              `json:"limits"`
}

// Evaluate applies the first matching rule. A rule that allows matches when both ends of the link
// match its users and projects; one that denies, when either does. So it does not matter which end
// asks for a link: either end may dial.
func (p *Policy) Evaluate(q Question) Decision {
	q.At = q.At.In(p.Zone.Location)
	asleep := "" // a rule that would allow it at another time
	for _, r := range p.Rules {
		if !r.fits(q) {
			continue
		}
		if !r.appliesAt(q.At) {
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

// refuse makes d a refusal, or the equivalent in dry-run mode.
func (p *Policy) refuse(d Decision) Decision {
	d.Refuse, d.Allow = true, p.Mode == DryRun
	return d
}

// fits reports whether the rule matches the link, apart from the time.
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

// anyFits reports whether one of the patterns matches, or there are none.
func anyFits(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

// appliesAt reports whether the rule applies at t.
func (r Rule) appliesAt(t time.Time) bool {
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
