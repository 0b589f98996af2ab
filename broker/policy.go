package broker

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
)

// policies are the sites' policies, as their frontals sent them with Join. A site's policy is kept
// while the registry knows the site, even when its frontal is away. There is at most one for each
// site. The zero value is ready.
type policies struct {
	mu sync.RWMutex // guards of
	of map[overlay.SiteID]*sitePolicy
}

type sitePolicy struct {
	*policy.Policy
	text                      string
	permitted, refused, would atomic.Uint64
}

// note replaces a site's policy; an empty text removes it. A text that this broker cannot parse is
// an error: a rule must not be applied without one of its conditions.
func (ps *policies) note(site overlay.SiteID, text []byte) error {
	var p *policy.Policy
	if len(text) > 0 {
		var err error
		if p, err = policy.Parse("policy of "+string(site), text); err != nil {
			return fmt.Errorf("this broker cannot read the policy; is it older than the site's frontal? %w", err)
		}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.of == nil {
		ps.of = make(map[overlay.SiteID]*sitePolicy)
	}
	switch old := ps.of[site]; {
	case p == nil:
		delete(ps.of, site)
	case old == nil || old.text != string(text): // otherwise the unchanged policy keeps its counters
		ps.of[site] = &sitePolicy{Policy: p, text: string(text)}
	}
	return nil
}

// pair returns the policies of two sites, nil for a site without one.
func (ps *policies) pair(a, b overlay.SiteID) (*sitePolicy, *sitePolicy) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return ps.of[a], ps.of[b]
}

// keep removes the sites for which known is false.
func (ps *policies) keep(known func(overlay.SiteID) bool) {
	ps.mu.RLock()
	var sites []overlay.SiteID
	for site := range ps.of {
		sites = append(sites, site)
	}
	ps.mu.RUnlock()
	for _, site := range sites {
		if !known(site) {
			ps.mu.Lock()
			delete(ps.of, site)
			ps.mu.Unlock()
		}
	}
}

// PolicyStatus is a site's policy and the counts of its decisions.
type PolicyStatus struct {
	Mode      string `json:"mode"`
	Rules     int    `json:"rules"`
	Contact   string `json:"contact"`
	Permitted uint64 `json:"permitted"`
	Refused   uint64 `json:"refused"`
	Would     uint64 `json:"would_refuse"` // in dry-run mode
}

// status returns the policy of a site, or nil.
func (ps *policies) status(site overlay.SiteID) *PolicyStatus {
	p, _ := ps.pair(site, site)
	if p == nil {
		return nil
	}
	return &PolicyStatus{p.Mode, len(p.Rules), p.Contact, p.permitted.Load(), p.refused.Load(), p.would.Load()}
}

// text describes the policy for a log.
func (s *PolicyStatus) text() string {
	if s == nil {
		return "none: the site permits no link with other sites"
	}
	return fmt.Sprintf("%s, %d rules", s.Mode, s.Rules)
}

// consult evaluates the policies of two sites for links of a job between them, and counts and logs
// the result. It returns nil within a site, where everything is permitted.
func (ps *policies) consult(log *slog.Logger, asker, target overlay.SiteID, job overlay.JobID, who []overlay.Principal) *policy.Agreement {
	if asker == target {
		return nil
	}
	a, t := ps.pair(asker, target)
	g := agree(asker, a, target, t, job.Name(), who, time.Now())
	for i, p := range []*sitePolicy{a, t} {
		switch o := g.Sides[i]; {
		case p == nil:
		case !o.Allow:
			p.refused.Add(1)
		case o.Refuse:
			p.would.Add(1)
		default:
			p.permitted.Add(1)
		}
	}
	for _, text := range g.Would() {
		log.Warn("dry-run: "+text, "job", job, "asker_site", asker, "target_site", target)
	}
	if err := g.Err(); err != nil {
		log.Info("link refused by policy", "job", job, "asker_site", asker, "target_site", target, "rule", g.Rule(), "error", err)
	}
	return g
}

// agree calls policy.Agree with the policies that the broker keeps.
func agree(asker overlay.SiteID, a *sitePolicy, target overlay.SiteID, t *sitePolicy, job string, who []overlay.Principal, at time.Time) *policy.Agreement {
	sides := [2]policy.Side{{Site: asker}, {Site: target}}
	for i, p := range []*sitePolicy{a, t} {
		if p != nil {
			sides[i].Policy = p.Policy
		}
	}
	g := policy.Agree(sides[0], sides[1], job, who, at)
	return &g
}

// judged caches the policies' decisions within one call, so that each is evaluated once.
type judged map[judgement]*policy.Agreement

type judgement struct {
	site   overlay.SiteID // the target's
	job    overlay.JobID
	target overlay.Principal
}

// consult evaluates policies for links of the asker's site with an entry. The asking process is not
// known, and the answer applies to every process of the job there: all of them must be permitted.
func (d directory) consult(asker *registry.Site, e registry.Entry, before judged) (*policy.Agreement, error) {
	here, there := asker.Profile.Site, e.Point.Node.Site
	if here == there {
		return nil, nil
	}
	key := judgement{there, e.Point.Process.Job, e.Point.Principal}
	g := before[key]
	if g == nil {
		who := d.b.registry.Principals(key.job, here)
		if len(who) == 0 {
			return nil, fmt.Errorf("%w: no process of job %s at %s, so that policies cannot determine its principal; a process must register before it dials",
				overlay.ErrUnknownProcess, key.job, here)
		}
		g = d.b.policies.consult(d.b.log, here, there, key.job, append(who, key.target))
		before[key] = g
		if err := g.Err(); err != nil {
			d.b.auditAddress(asker, e, g.Rule(), err)
		}
	}
	return g, g.Err()
}
