package broker

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/broker/decide"
	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
)

// planner caches the plans for pairs of sites, as restricted by policies. A plan is valid for the
// two Site values and the kinds of proxies it was made from; after one of them is replaced, the next
// query computes it anew.
// The zero value is ready.
type planner struct {
	mu    sync.RWMutex // guards plans; not held while one is computed, so two callers may compute the same
	plans map[sitePair]*sitePlan
}

type sitePair struct {
	asker, target overlay.SiteID
	policy        string // what policies withhold, and why (policy.Agreement.Key)
}

// sitePlan is a decision with its message. The message is shared: do not modify it.
type sitePlan struct {
	asker, target *registry.Site
	proxies       []decide.ProxyKind
	overlay.Plan
	msg *controlpb.Plan
}

// maxPlans bounds the cached pairs. At the bound the whole cache is dropped: computing a plan takes
// microseconds.
const maxPlans = 1 << 14

// decide returns the plan for the pair, with the techniques that policies permit; g may be nil. It
// logs a plan that is new or differs from the previous one.
func (pl *planner) decide(log *slog.Logger, asker, target *registry.Site, proxies []decide.ProxyKind, g *policy.Agreement) *sitePlan {
	pair := sitePair{asker: asker.Profile.Site, target: target.Profile.Site}
	if g != nil {
		pair.policy = g.Key()
	}
	pl.mu.RLock()
	p := pl.plans[pair]
	pl.mu.RUnlock()
	if p != nil && p.asker == asker && p.target == target && slices.Equal(p.proxies, proxies) && (p.proxies == nil) == (proxies == nil) {
		return p
	}
	decided := &sitePlan{asker: asker, target: target, proxies: proxies, Plan: decide.Within(asker.Profile, target.Profile, proxies, g)}
	decided.msg = control.PlanToPB(decided.Plan)
	if p == nil || p.msg.Digest != decided.msg.Digest {
		log.Info("plan decided", "asker", pair.asker, "target", pair.target, "steps", decided.steps(), "rejected", decided.rejections())
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.plans == nil || len(pl.plans) >= maxPlans {
		pl.plans = make(map[sitePair]*sitePlan)
	}
	pl.plans[pair] = decided
	return decided
}

// proxiesJoin is how long after its start a broker does not know which proxies there are.
const proxiesJoin = 2 * time.Minute

// proxyKinds returns the kinds of proxies by which to plan, or nil while they may not have joined yet.
func (b *Broker) proxyKinds(now time.Time) []decide.ProxyKind {
	if now.Sub(b.started) < proxiesJoin {
		return nil
	}
	return b.proxies.Kinds(now)
}

// step returns the plan's step for a technique, or nil.
func (p *sitePlan) step(t overlay.Technique) *overlay.Step {
	for i := range p.Steps {
		if p.Steps[i].Technique == t {
			return &p.Steps[i]
		}
	}
	return nil
}

// rejection returns why the plan leaves a technique out.
func (p *sitePlan) rejection(t overlay.Technique) string {
	for _, r := range p.Rejected {
		if r.Technique == t {
			return r.Reason
		}
	}
	return "the plan does not name it"
}

// steps lists the techniques in order, for logs.
func (p *sitePlan) steps() string {
	var names []string
	for _, s := range p.Steps {
		names = append(names, s.Technique.String())
	}
	return strings.Join(names, ",")
}

// rejections lists what the plan leaves out and why, for logs.
func (p *sitePlan) rejections() string {
	var parts []string
	for _, r := range p.Rejected {
		parts = append(parts, r.Technique.String()+": "+r.Reason)
	}
	return strings.Join(parts, "; ")
}
