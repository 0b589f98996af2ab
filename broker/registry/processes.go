package registry

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Registry is the record of sites, processes and published names: maps under one lock, which is
// never held during anything that blocks. A process costs about 250 bytes, and as much again after
// it has left, until its job is over.
type Registry struct {
	lease  time.Duration
	limits Limits

	mu        sync.RWMutex // guards the fields below, and all that the maps lead to
	sites     map[overlay.SiteID]*siteState
	holders   map[Holder]*siteState // sessions of sites
	jobs      map[overlay.JobID]*jobState
	names     names
	processes int
	waiting   int // callers, in all waiters
	absent    int // of all jobs; bounded by the limit on processes, further ones are not recorded
}

type siteState struct {
	now       *Site     // replaced, never modified: callers keep it without the lock
	sweep     time.Time // when processes of sessions other than now.Holder are dropped; zero: never
	processes int
}

type jobState struct {
	id      overlay.JobID       // the one copy that all entries of the job share
	ranks   map[uint32]*process // that are registered
	waiters map[uint32]*waiters // for those that are not
	dead    map[uint32]bool     // ranks that died and have not come back
	absent  map[uint32]absence
}

// process is an access point without the fields that its place in the maps implies.
type process struct {
	generation overlay.Generation
	node       unique.Handle[string]
	local      netip.AddrPort
	public     netip.AddrPort
	public6    netip.AddrPort
	principal  unique.Handle[overlay.Principal]
	until      int64 // Unix time in seconds; 0: unlimited
	site       *siteState
	holder     Holder // the last session that registered it
}

// SetLimits changes the bounds for new entries. Existing entries beyond them stay.
func (m *Registry) SetLimits(l Limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limits = l
	m.names.perSite.SetMax(MaxNames, l.NamesPerSite)
}

// New returns an empty registry. The lease is how long the processes of a site outlive its
// frontal's session.
func New(lease time.Duration, limits Limits) *Registry {
	return &Registry{
		lease: lease, limits: limits,
		sites:   make(map[overlay.SiteID]*siteState),
		holders: make(map[Holder]*siteState),
		jobs:    make(map[overlay.JobID]*jobState),
		names:   newNames(limits.NamesPerSite),
	}
}

// Join makes holder the session of the profile's site and returns the session it replaces, zero if
// none. Processes of the site that are not registered again within the lease are dropped.
func (m *Registry) Join(profile overlay.SiteProfile, holder Holder, now time.Time) (Holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sites[profile.Site]
	if s == nil {
		if len(m.sites) >= m.limits.Sites {
			return 0, fmt.Errorf("%w: the broker already knows %d sites, its limit", overlay.ErrOverloaded, len(m.sites))
		}
		s = &siteState{now: new(Site)}
		m.sites[profile.Site] = s
	}
	previous := s.now
	s.now = &Site{Profile: profile, Holder: holder, Since: now}
	m.holders[holder] = s
	if previous.Holder == holder {
		s.now.Since = previous.Since
		return 0, nil
	}
	delete(m.holders, previous.Holder)
	s.sweep = now.Add(m.lease)
	return previous.Holder, nil
}

// Register adds or renews processes of the site that holder joined with. The result has one error
// for each point, nil where it was accepted: ErrStale for an older generation of a process,
// ErrForbidden for another site's node, ErrOverloaded over the limits. If holder is not the session
// of a site, all fail with ErrUnknownSite.
func (m *Registry) Register(holder Holder, points []overlay.AccessPoint) []error {
	errs := make([]error, len(points))
	m.mu.Lock()
	defer m.mu.Unlock()
	site := m.holders[holder]
	for i, point := range points {
		switch {
		case site == nil:
			errs[i] = fmt.Errorf("%w: %s has not joined on this session, or joined again on another", overlay.ErrUnknownSite, point.Node.Site)
		case point.Node.Site != site.now.Profile.Site:
			errs[i] = fmt.Errorf("%w: %v runs at %v, but this session is that of %s", overlay.ErrForbidden, point.Process, point.Node, site.now.Profile.Site)
		default:
			errs[i] = m.register(site, point)
		}
	}
	return errs
}

func (m *Registry) register(site *siteState, point overlay.AccessPoint) error {
	job := m.jobs[point.Process.Job]
	var p *process
	if job != nil {
		p = job.ranks[point.Process.Rank]
	}
	if p != nil {
		if err := replaceable(p, site, point); err != nil {
			return err
		}
	}
	if p == nil || p.site != site {
		if site.processes >= m.limits.PerSite {
			return fmt.Errorf("%w: %s already has %d processes registered, the limit for a site", overlay.ErrOverloaded, site.now.Profile.Site, site.processes)
		}
	}
	if p == nil {
		if m.processes >= m.limits.Processes {
			return fmt.Errorf("%w: %d processes are registered, the broker's limit", overlay.ErrOverloaded, m.processes)
		}
		if job == nil {
			job = m.newJob(point.Process.Job)
		}
		p = new(process)
		job.ranks[point.Process.Rank] = p
		m.processes++
	} else {
		p.site.processes--
		if p.generation != point.Generation {
			m.names.ended(point.Process, false) // they belonged to an earlier generation
		}
	}
	*p = process{
		generation: point.Generation, node: unique.Make(point.Node.Name),
		local: point.Local, public: point.Public, public6: point.Public6,
		principal: unique.Make(point.Principal), until: untilOf(point), site: site, holder: site.now.Holder,
	}
	site.processes++
	delete(job.dead, point.Process.Rank)
	m.present(job, point.Process.Rank)
	job.end(point.Process.Rank, m.entry(point.Process))
	return nil
}

// replaceable returns why point may not take the place of p, or nil. Between two sites the
// generations must differ: one generation of a process cannot be in two places. A process in the
// job of a node service cannot move, since every process has that job's key.
func replaceable(p *process, site *siteState, point overlay.AccessPoint) error {
	if _, isService := point.Process.Job.ServiceNode(); isService && (p.site != site || p.node.Value() != point.Node.Name) {
		return fmt.Errorf("%w: %v is registered at %s/%s; draw another rank", overlay.ErrForbidden, point.Process, p.site.now.Profile.Site, p.node.Value())
	}
	if point.Generation > p.generation || point.Generation == p.generation && p.site == site {
		return nil
	}
	return fmt.Errorf("%w: %v is registered in generation %d by %s; generation %d from %s is not newer",
		overlay.ErrStale, point.Process, p.generation, p.site.now.Profile.Site, point.Generation, site.now.Profile.Site)
}

func (m *Registry) newJob(id overlay.JobID) *jobState {
	job := &jobState{id: overlay.JobID(strings.Clone(string(id))), ranks: make(map[uint32]*process)}
	m.jobs[job.id] = job
	return job
}

// Withdraw removes a process of holder's site, if it is still in the given generation.
func (m *Registry) Withdraw(holder Holder, name overlay.ProcessName, generation overlay.Generation) {
	m.withdraw(holder, name, generation, false)
}

// Died is Withdraw for a process that ended without withdrawing. The registry remembers the death
// until the process registers anew or its job has no registered process left.
func (m *Registry) Died(holder Holder, name overlay.ProcessName, generation overlay.Generation) {
	m.withdraw(holder, name, generation, true)
}

func (m *Registry) withdraw(holder Holder, name overlay.ProcessName, generation overlay.Generation, died bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	job, site := m.jobs[name.Job], m.holders[holder]
	if job == nil || site == nil {
		return
	}
	p := job.ranks[name.Rank]
	if p == nil || p.site != site || p.generation != generation {
		return
	}
	if died {
		if job.dead == nil {
			job.dead = make(map[uint32]bool)
		}
		job.dead[name.Rank] = true
	}
	m.names.ended(name, died)
	was := m.entry(name).Point
	m.missing(job, name.Rank, absence{former: &was})
	m.drop(job, name.Rank, p)
}

func (m *Registry) drop(job *jobState, rank uint32, p *process) {
	m.names.ended(overlay.ProcessName{Job: job.id, Rank: rank}, false)
	delete(job.ranks, rank)
	p.site.processes--
	m.processes--
	m.removeEmpty(job)
}

// removeEmpty removes a job of which nothing is left, and the record of its absent ranks once no process
// is registered.
func (m *Registry) removeEmpty(job *jobState) {
	if len(job.ranks) == 0 {
		m.absent -= len(job.absent)
		job.absent = nil
	}
	if len(job.ranks) == 0 && len(job.waiters) == 0 {
		delete(m.jobs, job.id)
	}
}

// Lookup returns one entry for each process, in order, with a nil Site for those that are not
// registered. It appends to dst.
func (m *Registry) Lookup(dst []Entry, names []overlay.ProcessName) []Entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, name := range names {
		dst = append(dst, m.entry(name))
	}
	return dst
}

func (m *Registry) entry(name overlay.ProcessName) Entry {
	job := m.jobs[name.Job]
	if job == nil {
		return Entry{}
	}
	p := job.ranks[name.Rank]
	if p == nil {
		a := job.absent[name.Rank]
		return Entry{Died: job.dead[name.Rank], Former: a.former, Refused: a.refused}
	}
	return Entry{Site: p.site.now, Point: overlay.AccessPoint{
		Process: overlay.ProcessName{Job: job.id, Rank: name.Rank}, Generation: p.generation,
		Node: overlay.NodeID{Site: p.site.now.Profile.Site, Name: p.node.Value()}, Local: p.local, Public: p.public, Public6: p.public6,
		Principal: p.principal.Value(), Until: p.ends(),
	}}
}

// Principals returns on whose behalf the job's processes at a site run, without duplicates, in no
// order; none if no process is registered there. It scans every process of the job.
func (m *Registry) Principals(job overlay.JobID, site overlay.SiteID) []overlay.Principal {
	m.mu.RLock()
	defer m.mu.RUnlock()
	j, s := m.jobs[job], m.sites[site]
	if j == nil || s == nil {
		return nil
	}
	seen := make(map[unique.Handle[overlay.Principal]]bool)
	var all []overlay.Principal
	for _, p := range j.ranks {
		if p.site == s && !seen[p.principal] {
			seen[p.principal] = true
			all = append(all, p.principal.Value())
		}
	}
	return all
}

func untilOf(point overlay.AccessPoint) int64 {
	if point.Until.IsZero() {
		return 0
	}
	return point.Until.Unix()
}

func (p *process) ends() time.Time {
	if p.until == 0 {
		return time.Time{}
	}
	return time.Unix(p.until, 0)
}

// Site returns the entry of a site, or ErrUnknownSite.
func (m *Registry) Site(id overlay.SiteID) (*Site, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if s := m.sites[id]; s != nil {
		return s.now, nil
	}
	return nil, fmt.Errorf("%w: %s has not joined; does its frontal run, and reach the broker?", overlay.ErrUnknownSite, id)
}

// Leave marks the end of a session. The site's processes stay for the lease, in which its frontal
// may join again.
func (m *Registry) Leave(holder Holder, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.holders[holder]; s != nil {
		delete(m.holders, holder)
		s.now = &Site{Profile: s.now.Profile, Since: now}
		s.sweep = now.Add(m.lease)
	}
}

// Points returns the access points of all processes for which match is true, in no order. match
// must not call the registry.
func (m *Registry) Points(match func(overlay.AccessPoint) bool) (points []overlay.AccessPoint) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for id, job := range m.jobs {
		for rank := range job.ranks {
			if e := m.entry(overlay.ProcessName{Job: id, Rank: rank}); e.Site != nil && match(e.Point) {
				points = append(points, e.Point)
			}
		}
	}
	return points
}

// Expire drops entries whose lease has expired, and returns how many processes it dropped. It scans
// every process, but only when a site's lease has expired.
func (m *Registry) Expire(now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := make(map[*siteState]bool)
	for id, s := range m.sites {
		if s.sweep.IsZero() || now.Before(s.sweep) {
			continue
		}
		due[s] = true
		s.sweep = time.Time{}
		if s.now.Holder == 0 {
			delete(m.sites, id)
		}
	}
	if len(due) == 0 {
		return 0
	}
	before := m.processes
	for _, job := range m.jobs {
		for rank, p := range job.ranks {
			switch {
			case !due[p.site]:
			case p.site.now.Holder == 0 || p.holder != p.site.now.Holder:
				m.drop(job, rank, p)
			default:
				m.names.notRenewed(overlay.ProcessName{Job: job.id, Rank: rank}, p.holder)
			}
		}
	}
	return before - m.processes
}

// listed returns the counts as a sorted list.
func listed(counts map[JobPrincipal]int) []JobPrincipal {
	list := make([]JobPrincipal, 0, len(counts))
	for one, n := range counts {
		one.Processes = n
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b JobPrincipal) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.User, b.User), cmp.Compare(a.Project, b.Project))
	})
	return list
}

// Inventory returns a summary of what is registered.
func (m *Registry) Inventory() Inventory {
	m.mu.RLock()
	defer m.mu.RUnlock()
	inv := Inventory{Waiting: m.waiting, Names: len(m.names.published), NameLimits: m.names.perSite.Stats()}
	for _, s := range m.sites {
		inv.Sites = append(inv.Sites, SiteInventory{*s.now, s.processes})
	}
	for _, job := range m.jobs {
		counts := make(map[overlay.SiteID]int)
		serves := make(map[JobPrincipal]int)
		for _, p := range job.ranks {
			site := p.site.now.Profile.Site
			counts[site]++
			serves[JobPrincipal{Site: site, Principal: p.principal.Value()}]++
		}
		inv.Jobs = append(inv.Jobs, JobInventory{job.id, counts, listed(serves)})
	}
	slices.SortStableFunc(inv.Sites, func(a, b SiteInventory) int { return cmp.Compare(a.Profile.Site, b.Profile.Site) })
	slices.SortStableFunc(inv.Jobs, func(a, b JobInventory) int { return cmp.Compare(a.Job, b.Job) })
	return inv
}
