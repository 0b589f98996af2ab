package quota

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// allowance is the stage for a site policy's allowance of one owner. The bounds are those of the
// link that was admitted last: a changed policy applies to live links from the next link of that
// owner on.
type allowance struct {
	overlay.Allowance
	stage
}

// allowance returns the stage of a, and creates it if needed.
func (q *Quota) allowance(a overlay.Allowance, now time.Time) *stage {
	s := q.allowed[a.Key()]
	if s == nil {
		s = &allowance{stage: *newStage(now)}
		q.allowed[a.Key()] = s
	}
	s.Allowance = a
	if r := q.allowedRate(a, now); r.bytes() != s.rate {
		s.setRate(r, now)
	}
	return &s.stage
}

// refuseAllowances returns which policy has no room for one more of the owner's links, or nil.
func (q *Quota) refuseAllowances(o Owner, now time.Time) error {
	for _, a := range o.Allowances {
		have := 0
		if s := q.allowed[a.Key()]; s != nil {
			have = s.links
		}
		switch {
		case full(have, int(a.Links)):
			return &Refused{"policy.links", fmt.Sprintf("the policy of %s (rule %q) allows %s %d relayed links at a time, which are in use; contact %s",
				a.Site, a.Rule, a.Owner, a.Links, a.Contact)}
		case exceeded(q.ledger.Allowed(a.Key(), now), a.Month):
			return &Refused{"policy.bytes_month", fmt.Sprintf("the policy of %s (rule %q) allows %s %d bytes a month, which are used up until %s; ask %s",
				a.Site, a.Rule, a.Owner, a.Month, monthEnd(now), a.Contact)}
		}
	}
	return nil
}

// countAllowed adds n bytes to the owner's usage under an allowance, and reports whether that used
// the month up.
func (q *Quota) countAllowed(a overlay.Allowance, n uint64, now time.Time) (changed bool) {
	before := q.allowedRate(a, now)
	q.ledger.addAllowed(a.Key(), n, now)
	q.fresh.addAllowed(a.Key(), n, now)
	after := q.allowedRate(a, now)
	if s := q.allowed[a.Key()]; s != nil && after != before {
		s.setRate(after, now)
	}
	return after != before
}

func (q *Quota) tidyAllowed(now time.Time) {
	for key, a := range q.allowed {
		if a.idle(now) {
			delete(q.allowed, key)
		}
	}
}
