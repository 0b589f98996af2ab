package directory

import (
	"time"

	"github.com/isthmus-grid/isthmus/frontal/lru"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Answer says where a process is and how this site connects to it. The
// messages are shared by all who ask: read only.
type Answer struct {
	Name  overlay.ProcessName
	Point *controlpb.AccessPoint // nil when err is set
	Plan  *controlpb.Plan        // nil within one site
	Err   error
}

// cache remembers where processes are, and how this site connects to others.
// The two are kept apart: a plan is for a job's links with a site, for policies
// may let jobs do different things, so a new one serves all processes of the job
// at the target's site at once. Faults are not remembered: the
// commonest, a process that is not there yet, is over in a moment, and asking
// once for all who want to know keeps the broker from a storm. Neither are
// proxy assignments, which are for one link each.
type cache struct {
	maxAge time.Duration
	points *lru.Map[overlay.ProcessName, cached]
	plans  *lru.Map[planFor, *controlpb.Plan]
	own    overlay.SiteID
	pushed uint64 // points that went for want of room
}

type cached struct {
	point   *controlpb.AccessPoint
	expires time.Time
}

type planFor struct {
	site overlay.SiteID
	job  overlay.JobID
}

const (
	// maxPlans bounds the plans that are remembered.
	maxPlans = 4096

	// maxKnownPlans bounds the digests in one question to the broker. What is
	// not mentioned is sent again, which costs only bytes.
	maxKnownPlans = 256
)

func newCache(own overlay.SiteID, maxPoints int, maxAge time.Duration) *cache {
	return &cache{
		maxAge: maxAge, own: own,
		points: lru.New[overlay.ProcessName, cached](maxPoints),
		plans:  lru.New[planFor, *controlpb.Plan](maxPlans),
	}
}

// get returns what is known of a process. An entry that is over its age
// counts only when old is set, which it is while the broker cannot be asked.
func (c *cache) get(name overlay.ProcessName, now time.Time, old bool) (Answer, bool) {
	e, ok := c.points.Get(name)
	if !ok || !old && !now.Before(e.expires) {
		return Answer{}, false
	}
	a := Answer{Name: name, Point: e.point}
	if site := overlay.SiteID(e.point.Site); site != c.own {
		if a.Plan, ok = c.plans.Get(planFor{site, name.Job}); !ok {
			return Answer{}, false
		}
	}
	return a, true
}

// put remembers an answer of the broker. An older life of a process does not
// replace a newer one: answers may cross each other.
func (c *cache) put(a Answer, now time.Time) {
	if a.Err != nil {
		return
	}
	if e, ok := c.points.Get(a.Name); ok && e.point.Generation > a.Point.Generation {
		return
	}
	if c.points.Put(a.Name, cached{a.Point, now.Add(c.maxAge)}) {
		c.pushed++
	}
	if a.Plan != nil {
		c.plans.Put(planFor{overlay.SiteID(a.Plan.Target), a.Name.Job}, a.Plan)
	}
}

// drop forgets a process if what is known is of the given generation.
func (c *cache) drop(name overlay.ProcessName, generation overlay.Generation) bool {
	e, ok := c.points.Get(name)
	if !ok || e.point.Generation != uint64(generation) {
		return false
	}
	c.points.Drop(name)
	return true
}

// known returns plans by digest, the most recently used ones: those that the
// broker need not send again.
func (c *cache) known() map[uint64]*controlpb.Plan {
	known := make(map[uint64]*controlpb.Plan)
	for _, plan := range c.plans.Recent() {
		if len(known) == maxKnownPlans {
			break
		}
		known[plan.Digest] = plan
	}
	return known
}
