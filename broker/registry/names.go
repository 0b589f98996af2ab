package registry

import (
	"context"
	"fmt"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds on published names, besides those of package overlay.
const (
	MaxNames    = 100_000 // published at once, in all jobs
	maxObituary = 1024    // names kept after their publisher died
)

// names are the names that processes have published for other jobs, and the callers waiting for a
// name. Registry.mu guards them. The registry calls ended and notRenewed when a process leaves or
// is not renewed. No method blocks.
//
//	           publish                    unpublish, or its process leaves
//	(unknown) ---------> published by p ----------------------------------> (unknown)
//	                      ^    |                                              ^
//	                      +----+ publish by p          its process dies: an obituary,
//	                                                   until published or forgotten
type names struct {
	published map[string]*publication
	perSite   *limit.Counter[overlay.SiteID]
	perJob    map[overlay.JobID]int
	perOwner  map[overlay.ProcessName]map[string]*publication
	waiters   map[string]*waiters

	obituaries map[string]overlay.ProcessName
	oldest     []string // keys of obituaries, the oldest first; some may have been deleted there
}

// publication is a published name.
type publication struct {
	overlay.Publication
	site   overlay.SiteID
	holder Holder // the last session that published it
}

func newNames(perSite int) names {
	return names{
		perSite: limit.NewCounter[overlay.SiteID](limit.Bounds{
			What: "published names", Total: MaxNames, PerKey: perSite, KeySetting: "limits.names_per_site",
		}),
		published:  make(map[string]*publication),
		perJob:     make(map[overlay.JobID]int),
		perOwner:   make(map[overlay.ProcessName]map[string]*publication),
		waiters:    make(map[string]*waiters),
		obituaries: make(map[string]overlay.ProcessName),
	}
}

// publish enters p for a process at a site, or replaces the text if the process already owns the
// name. It wakes the callers waiting for the name.
func (n *names) publish(p overlay.Publication, site overlay.SiteID, holder Holder) error {
	old := n.published[p.Name]
	switch {
	case old != nil && old.Process != p.Process:
		return fmt.Errorf("%w: %q belongs to %v until that unpublishes it or ends; choose another name", overlay.ErrNameTaken, p.Name, old.Process)
	case old != nil:
		old.Port, old.Generation, old.holder = strings.Clone(p.Port), p.Generation, holder
		return nil
	case n.perJob[p.Process.Job] >= overlay.MaxNamesPerJob:
		return fmt.Errorf("%w: job %s has published %d names, the limit for a job", overlay.ErrOverloaded, p.Process.Job, overlay.MaxNamesPerJob)
	}
	if err := n.perSite.Take(site, 1); err != nil {
		return err
	}
	p.Name, p.Port = strings.Clone(p.Name), strings.Clone(p.Port)
	entry := &publication{p, site, holder}
	n.published[p.Name] = entry
	n.perJob[p.Process.Job]++
	if n.perOwner[p.Process] == nil {
		n.perOwner[p.Process] = make(map[string]*publication)
	}
	n.perOwner[p.Process][p.Name] = entry
	delete(n.obituaries, p.Name)
	if w := n.waiters[p.Name]; w != nil {
		close(w.done)
		delete(n.waiters, p.Name)
	}
	return nil
}

// unpublish removes a process's name.
func (n *names) unpublish(process overlay.ProcessName, name string) error {
	p := n.published[name]
	switch {
	case p == nil:
		return n.unknown(name)
	case p.Process != process:
		return fmt.Errorf("%w: %q belongs to %v", overlay.ErrUnknownName, name, p.Process)
	}
	n.remove(p)
	return nil
}

func (n *names) remove(p *publication) {
	delete(n.published, p.Name)
	n.perSite.Give(p.site, 1)
	if n.perJob[p.Process.Job]--; n.perJob[p.Process.Job] == 0 {
		delete(n.perJob, p.Process.Job)
	}
	if delete(n.perOwner[p.Process], p.Name); len(n.perOwner[p.Process]) == 0 {
		delete(n.perOwner, p.Process)
	}
}

// ended removes all names of a process that is no longer registered.
func (n *names) ended(process overlay.ProcessName, died bool) {
	for name, p := range n.perOwner[process] {
		n.remove(p)
		if !died {
			continue
		}
		if _, known := n.obituaries[name]; !known {
			n.oldest = append(n.oldest, name)
		}
		n.obituaries[name] = process
	}
	for len(n.oldest) > maxObituary {
		delete(n.obituaries, n.oldest[0])
		n.oldest = n.oldest[1:]
	}
}

// notRenewed removes the names of a process that were last published by an earlier session than
// holder.
func (n *names) notRenewed(process overlay.ProcessName, holder Holder) {
	for _, p := range n.perOwner[process] {
		if p.holder != holder {
			n.remove(p)
		}
	}
}

// unknown returns the error for a name that is not published.
func (n *names) unknown(name string) error {
	if who, died := n.obituaries[name]; died {
		return fmt.Errorf("%w: %q; %v, which had published it, has died", overlay.ErrUnknownName, name, who)
	}
	return fmt.Errorf("%w: %q", overlay.ErrUnknownName, name)
}

// Publish sets the texts of names of registered processes of holder's site. The result has one
// error for each, nil where it was accepted: ErrNameTaken if another process owns the name,
// ErrOverloaded over the limits. A name is removed with its process; one that the frontal does not
// publish again after it rejoins is removed when the lease expires.
func (m *Registry) Publish(holder Holder, list []overlay.Publication) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(list))
	for i, p := range list {
		if errs[i] = m.speaksFor(holder, p); errs[i] == nil {
			errs[i] = m.names.publish(p, m.holders[holder].now.Profile.Site, holder)
		}
	}
	return errs
}

// Unpublish removes a name; the port is ignored. ErrUnknownName if the process has not published
// it.
func (m *Registry) Unpublish(holder Holder, p overlay.Publication) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.speaksFor(holder, p); err != nil {
		return err
	}
	return m.names.unpublish(p.Process, p.Name)
}

// speaksFor returns why holder may not publish for a process, or nil.
func (m *Registry) speaksFor(holder Holder, p overlay.Publication) error {
	site, job := m.holders[holder], m.jobs[p.Process.Job]
	var owner *process
	if job != nil {
		owner = job.ranks[p.Process.Rank]
	}
	switch {
	case site == nil:
		return fmt.Errorf("%w: the site has not joined on this session, or joined again on another", overlay.ErrUnknownSite)
	case owner == nil || owner.site != site:
		return fmt.Errorf("%w: %v, which publishes %q, is not registered at %s", overlay.ErrUnknownProcess, p.Process, p.Name, site.now.Profile.Site)
	case owner.generation != p.Generation:
		return fmt.Errorf("%w: %v is in generation %d; generation %d publishes %q", overlay.ErrStale, p.Process, owner.generation, p.Generation, p.Name)
	}
	return nil
}

// LookupName returns a published name. If there is none, it fails with ErrUnknownName at once
// without wait, else when ctx ends; with ErrOverloaded at once when too many callers wait.
func (m *Registry) LookupName(ctx context.Context, name string, wait bool) (overlay.Publication, error) {
	for {
		p, w, err := m.awaitName(name, wait)
		if w == nil {
			return p, err
		}
		select {
		case <-w.done:
			m.leaveNameQueue(name, w)
		case <-ctx.Done():
			return overlay.Publication{}, m.leaveNameQueue(name, w)
		}
	}
}

// awaitName returns the publication, or adds the caller to the waiters for it.
func (m *Registry) awaitName(name string, wait bool) (overlay.Publication, *waiters, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch p := m.names.published[name]; {
	case p != nil:
		return p.Publication, nil, nil
	case !wait:
		return overlay.Publication{}, nil, m.names.unknown(name)
	case m.waiting >= m.limits.Waiting:
		return overlay.Publication{}, nil, fmt.Errorf("%w: %d callers wait for processes and names, the broker's limit", overlay.ErrOverloaded, m.waiting)
	}
	w := m.names.waiters[name]
	if w == nil {
		w = &waiters{done: make(chan struct{})}
		m.names.waiters[name] = w
	}
	w.count++
	m.waiting++
	return overlay.Publication{}, w, nil
}

// leaveNameQueue ends an unsuccessful wait and returns its error.
func (m *Registry) leaveNameQueue(name string, w *waiters) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting--
	if w.count--; w.count == 0 && m.names.waiters[name] == w {
		delete(m.names.waiters, name)
	}
	return m.names.unknown(name)
}
