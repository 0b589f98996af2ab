package directory

import (
	"time"

	"github.com/isthmus-grid/isthmus/frontal/lru"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Answer says where a process is and how this site connects to it. Its messages are shared by all
// callers and must not be modified.
type Answer struct {
	Name  overlay.ProcessName
	Point *controlpb.AccessPoint // nil when err is set
	Plan  *controlpb.Plan        // nil within one site
	Err   error
}

// cache stores the locations of processes and the plans for connecting to other sites. The two are
// separate: a plan applies to a job's links with a site, since policies may treat jobs differently,
// so a new plan applies at once to all processes of the job at the target's site. Faults are not
// cached: the most common one, a process that is not registered yet, is soon over, and sharing one
// request among all callers keeps the load on the broker low. Nor is a plan without a step, since one
// proxy that joins gives it one. Proxy assignments are not cached
// either, since each is for one link.
type cache struct {
	maxAge time.Duration
	points *lru.Map[overlay.ProcessName, cached]
	plans  *lru.Map[planFor, *controlpb.Plan]
	sites  *lru.Map[overlay.SiteID, struct{}] // other sites that a broker named
	own    overlay.SiteID
	pushed uint64 // points evicted for lack of space
}

type cached struct {
	point   *controlpb.AccessPoint
	expires time.Time
	failed  bool // a connection there failed: it is no answer, but says of which node more reports are
}

type planFor struct {
	site overlay.SiteID
	job  overlay.JobID
}

const (
	// maxPlans bounds the cached plans.
	maxPlans = 4096

	// maxSites bounds the sites that are known to exist.
	maxSites = 4096

	// maxDigests bounds the digests in one request to the broker. The broker sends plans that
	// are not listed again, which costs only bytes.
	maxDigests = 256
)

func newCache(own overlay.SiteID, maxPoints int, maxAge time.Duration) *cache {
	return &cache{
		maxAge: maxAge, own: own,
		points: lru.New[overlay.ProcessName, cached](maxPoints),
		plans:  lru.New[planFor, *controlpb.Plan](maxPlans),
		sites:  lru.New[overlay.SiteID, struct{}](maxSites),
	}
}

// get returns the cached answer about a process. An entry older than its maximum age counts only if
// old is set, which is the case while the broker is unreachable.
func (c *cache) get(name overlay.ProcessName, now time.Time, old bool) (Answer, bool) {
	e, ok := c.points.Get(name)
	if !ok || e.failed || !old && !now.Before(e.expires) {
		return Answer{}, false
	}
	a := Answer{Name: name, Point: e.point}
	if site := overlay.SiteID(e.point.Site); site != c.own {
		if a.Plan, ok = c.plans.Get(planFor{site, name.Job}); !ok || !old && len(a.Plan.Steps) == 0 {
			return Answer{}, false
		}
	}
	return a, true
}

// put stores an answer of the broker. An older generation of a process does not replace a newer
// one: answers may be reordered.
func (c *cache) put(a Answer, now time.Time) {
	if a.Err != nil {
		return
	}
	if e, ok := c.points.Get(a.Name); ok && !e.failed && e.point.Generation > a.Point.Generation {
		return
	}
	if c.points.Put(a.Name, cached{point: a.Point, expires: now.Add(c.maxAge)}) {
		c.pushed++
	}
	if a.Plan != nil {
		c.plans.Put(planFor{overlay.SiteID(a.Plan.Target), a.Name.Job}, a.Plan)
		c.sites.Put(overlay.SiteID(a.Plan.Target), struct{}{})
	}
}

// drop stops answering with a process if the cached generation is the given one.
func (c *cache) drop(name overlay.ProcessName, generation overlay.Generation) bool {
	e, ok := c.points.Get(name)
	if !ok || e.failed || e.point.Generation != uint64(generation) {
		return false
	}
	e.failed = true
	c.points.Put(name, e)
	return true
}

// recentPlans returns digests of the most recently used plans, which the broker need not send
// again.
func (c *cache) recentPlans() map[uint64]*controlpb.Plan {
	known := make(map[uint64]*controlpb.Plan)
	for _, plan := range c.plans.Recent() {
		if len(known) == maxDigests {
			break
		}
		known[plan.Digest] = plan
	}
	return known
}
