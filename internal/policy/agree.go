package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Side is one end's site.
type Side struct {
	Site   overlay.SiteID
	Policy *Policy // nil: it has none, and permits nothing

	// EvaluatedElsewhere means that this site's policy is not known here, and that others evaluate it:
	// here it refuses nothing.
	EvaluatedElsewhere bool
}

// NoPolicy is the rule that refuses the links of a site without a policy.
const NoPolicy = "no-policy"

// Example returns, on one line, the smallest policy that permits site all links with peer.
func Example(site, peer overlay.SiteID) string {
	return fmt.Sprintf("{contact: grid@%s.example.org, rules: [{name: %s, effect: allow, sites: [%s]}]}", site, peer, peer)
}

// missing returns the decision of a site without a policy about links with peer.
func missing(site, peer overlay.SiteID) Decision {
	return Decision{Refuse: true, Rule: NoPolicy, Text: fmt.Sprintf("it has no policy (rule %q), so its links stay inside it; set policy: in its frontal.yaml; "+
		"the smallest that permits site %s: %s", NoPolicy, peer, Example(site, peer))}
}

// Agreement is the result of two sites' policies for a link: it is permitted when both permit it,
// by the techniques that both allow, within the limits of each. A rule with limits leaves no
// technique except the relay, because nothing on the path of the others can enforce limits.
type Agreement struct {
	Sides [2]Opinion `json:"sides"`

	Allow      bool                `json:"allow"`
	Techniques []overlay.Technique `json:"techniques"` // remaining ones, in order of preference
	Limits     Limits              `json:"limits"`     // the smaller of each side's, which apply together

	link string // the link in question, for errors
}

// Opinion is one site's part of an agreement.
type Opinion struct {
	Site    overlay.SiteID `json:"site"`
	Policy  bool           `json:"policy"` // it has one
	DryRun  bool           `json:"dry_run,omitempty"`
	Contact string         `json:"contact,omitempty"`
	Decision
}

// Agree evaluates both sites' policies for a link of a job between them, on behalf of all in who.
// It is symmetric in a and b. Policies do not apply within one site: a and b must differ.
func Agree(a, b Side, job string, who []Who, at time.Time) Agreement {
	g := Agreement{Allow: true, link: describe(job, who)}
	for i, pair := range [2][2]Side{{a, b}, {b, a}} {
		own, peer := pair[0], pair[1]
		o := &g.Sides[i]
		o.Site = own.Site
		if own.Policy == nil {
			o.Decision = Decision{Allow: true, Text: "it is not asked here"}
			if !own.EvaluatedElsewhere {
				o.Decision, g.Allow = missing(own.Site, peer.Site), false
			}
			continue
		}
		o.Policy, o.Contact, o.DryRun = true, own.Policy.Contact, own.Policy.Mode == DryRun
		o.Decision = own.Policy.Evaluate(Question{Peer: peer.Site, Job: job, Who: who, At: at})
		g.Allow = g.Allow && o.Allow
	}
	for _, t := range overlay.Techniques() {
		if g.Allow && g.refusingSide(t) == nil {
			g.Techniques = append(g.Techniques, t)
		}
	}
	for _, o := range g.Sides {
		if o.limits() {
			g.Limits = g.Limits.tighter(o.Limits)
		}
	}
	return g
}

// refusingSide returns the side that does not allow a technique, or nil.
func (g *Agreement) refusingSide(t overlay.Technique) *Opinion {
	for i := range g.Sides {
		if o := &g.Sides[i]; o.Policy && !o.DryRun && (!o.permits(t) || o.limits() && t != overlay.Relay) {
			return o
		}
	}
	return nil
}

// limits reports whether the side's policy limits the link.
func (o *Opinion) limits() bool {
	return o.Policy && !o.DryRun && !o.Refuse && o.Limits != (Limits{})
}

// Allowances returns the limits of each side that sets any, for the daemon that carries the link.
// ends are the principals at each of Sides.
func (g *Agreement) Allowances(job overlay.JobID, ends [2]Who) []overlay.Allowance {
	var all []overlay.Allowance
	for i := range g.Sides {
		if o := &g.Sides[i]; o.limits() {
			all = append(all, overlay.Allowance{
				Site: o.Site, Rule: o.Rule, Owner: ends[i].Owner(job), Contact: o.Contact,
				Links: uint32(min(o.Limits.Links, math.MaxUint32)), Rate: uint64(o.Limits.Rate), Month: uint64(o.Limits.BytesMonth),
			})
		}
	}
	return all
}

// common reports whether both sides allow a common technique, apart from limits.
func (g *Agreement) common() bool {
	return slices.ContainsFunc(overlay.Techniques(), func(t overlay.Technique) bool {
		return !slices.ContainsFunc(g.Sides[:], func(o Opinion) bool { return o.Policy && !o.DryRun && !o.permits(t) })
	})
}

// Err returns nil if the link is permitted, else an overlay.ErrForbidden that names the site, its
// rule and whom to ask.
func (g *Agreement) Err() error {
	for _, o := range g.Sides {
		if !o.Allow && !o.Policy {
			return fmt.Errorf("%w: site %s refuses %s with %s: %s", overlay.ErrForbidden, o.Site, g.link, g.otherSite(o.Site), o.Text)
		}
		if !o.Allow {
			return fmt.Errorf("%w: the policy of %s refuses %s with %s: %s; ask %s",
				overlay.ErrForbidden, o.Site, g.link, g.otherSite(o.Site), o.Text, o.Contact)
		}
	}
	if len(g.Techniques) == 0 {
		a, b := g.Sides[0], g.Sides[1]
		for i := range g.Sides {
			if o := &g.Sides[i]; o.limits() && g.common() {
				return fmt.Errorf("%w: rule %q of %s limits %s with %s (%v), which only a relay can keep, and a policy does not allow relays; ask %s or %s",
					overlay.ErrForbidden, o.Rule, o.Site, g.link, g.otherSite(o.Site), o.Limits, a.Contact, b.Contact)
			}
		}
		return fmt.Errorf("%w: the policies of %s (rule %q) and %s (rule %q) allow %s no technique in common; ask %s or %s",
			overlay.ErrForbidden, a.Site, a.Rule, b.Site, b.Rule, g.link, a.Contact, b.Contact)
	}
	return nil
}

// Rule names the deciding rules, for logs and the audit: "siteb/no-tests" for a refusal, else the
// rule of each site that has a policy. Where no rule matches, it is "siteb/default", and for a site
// without a policy "siteb/no-policy".
func (g *Agreement) Rule() string {
	var all []string
	for _, o := range g.Sides {
		name := string(o.Site) + "/" + cmp.Or(o.Rule, "default")
		switch {
		case !o.Allow:
			return name
		case o.Policy:
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

// Without returns why a technique is left out, "" if it is not. For a refused link that is every
// technique.
func (g *Agreement) Without(t overlay.Technique) string {
	if !g.Allow {
		return g.Err().Error()
	}
	if o := g.refusingSide(t); o != nil {
		if o.permits(t) {
			return fmt.Sprintf("rule %q of %s limits it (%v), which only a relay can keep; ask %s", o.Rule, o.Site, o.Limits, o.Contact)
		}
		return fmt.Sprintf("the policy of %s does not allow it (rule %q); ask %s", o.Site, o.Rule, o.Contact)
	}
	return ""
}

// Would returns what sites in dry-run mode would have refused, a sentence each.
func (g *Agreement) Would() []string {
	var all []string
	for _, o := range g.Sides {
		switch {
		case !o.DryRun:
		case o.Refuse:
			all = append(all, fmt.Sprintf("the policy of %s would refuse %s with %s: %s", o.Site, g.link, g.otherSite(o.Site), o.Text))
		case len(o.Techniques) > 0 || o.Limits != (Limits{}):
			var names []string
			for _, t := range overlay.Techniques() {
				if !o.permits(t) || o.Limits != (Limits{}) && t != overlay.Relay {
					names = append(names, t.String())
				}
			}
			if len(names) > 0 {
				all = append(all, fmt.Sprintf("the policy of %s would leave %s with %s without %s (rule %q)", o.Site, g.link, g.otherSite(o.Site), strings.Join(names, ", "), o.Rule))
			}
		}
	}
	return all
}

// Explanation is an agreement with its consequences in words, for JSON.
type Explanation struct {
	Agreement
	Error       string            `json:"error,omitempty"` // why the link is refused
	Left        map[string]string `json:"left,omitempty"`  // excluded techniques -> why
	WouldRefuse []string          `json:"would,omitempty"` // what dry-run mode would have refused
}

// Explain describes the agreement in words.
func (g *Agreement) Explain() Explanation {
	e := Explanation{Agreement: *g, WouldRefuse: g.Would()}
	if err := g.Err(); err != nil {
		e.Error = err.Error()
		return e
	}
	for _, t := range overlay.Techniques() {
		if why := g.Without(t); why != "" {
			if e.Left == nil {
				e.Left = map[string]string{}
			}
			e.Left[t.String()] = why
		}
	}
	return e
}

// otherSite returns the site at the other end.
func (g *Agreement) otherSite(site overlay.SiteID) overlay.SiteID {
	if g.Sides[0].Site == site {
		return g.Sides[1].Site
	}
	return g.Sides[0].Site
}

// Within describes the limits within which the link is permitted, and whose they are; "" without
// any.
func (g *Agreement) Within() string {
	var all []string
	for i := range g.Sides {
		if o := &g.Sides[i]; o.limits() {
			all = append(all, fmt.Sprintf("rule %q of %s: %v; ask %s", o.Rule, o.Site, o.Limits, o.Contact))
		}
	}
	return strings.Join(all, ", ")
}

// Key is equal for agreements that leave the same techniques for the same reasons, within the same
// limits.
func (g *Agreement) Key() string {
	var b strings.Builder
	if within := g.Within(); g.Allow && within != "" {
		b.WriteString(within + "\n")
	}
	for _, t := range overlay.Techniques() {
		if why := g.Without(t); why != "" {
			fmt.Fprintf(&b, "%v: %s\n", t, why)
		}
	}
	return b.String()
}

// maxNamed bounds the users that an error names.
const maxNamed = 4

// describe names a link: `links of job x, user alice (project p)`.
func describe(job string, who []Who) string {
	var ends []string
	for _, w := range who {
		text := "user " + w.User
		if w.User == "" {
			text = "an unknown user"
		}
		if w.Project != "" {
			text += " (project " + w.Project + ")"
		} else {
			text += " (no project)"
		}
		ends = append(ends, text)
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	if n := len(ends) - maxNamed; n > 0 {
		ends = append(ends[:maxNamed], fmt.Sprintf("%d others", n))
	}
	return strings.Join(append([]string{"links of job " + job}, ends...), ", ")
}

// tighter returns the smaller of each limit.
func (l Limits) tighter(m Limits) Limits {
	return Limits{smaller(l.Links, m.Links), smaller(l.Rate, m.Rate), smaller(l.BytesMonth, m.BytesMonth)}
}

// smaller returns the tighter of two bounds, of which 0 is unlimited.
func smaller[T int | quota.Rate | daemon.Size](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// String describes limits, "" for none.
func (l Limits) String() string {
	var all []string
	if l.Links > 0 {
		all = append(all, fmt.Sprintf("%d links at a time", l.Links))
	}
	if l.Rate > 0 {
		all = append(all, l.Rate.String())
	}
	if l.BytesMonth > 0 {
		all = append(all, fmt.Sprintf("%v a month", l.BytesMonth))
	}
	return strings.Join(all, ", ")
}
