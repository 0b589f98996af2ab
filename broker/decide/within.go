package decide

import (
	"slices"

	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Within is Decide without the techniques that policies withhold, as if an admin had forbidden
// them; so techniques that would have been pointless beside those are taken.
func Within(asker, target overlay.SiteProfile, proxies []ProxyKind, g *policy.Agreement) overlay.Plan {
	if g == nil {
		return Decide(asker, target, proxies)
	}
	within := asker
	within.Forbidden = slices.Clone(asker.Forbidden)
	for _, t := range overlay.Techniques() {
		if g.Without(t) != "" {
			within.Forbidden = append(within.Forbidden, t)
		}
	}
	plan := Decide(within, target, proxies)
	for i, r := range plan.Rejected {
		if why := g.Without(r.Technique); why != "" {
			plan.Rejected[i].Reason = why
		}
	}
	if within := g.Within(); within != "" {
		for i := range plan.Steps { // the relay, the only technique that limits leave
			plan.Steps[i].Reason += ", within " + within
		}
	}
	return plan
}
