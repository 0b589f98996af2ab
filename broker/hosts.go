package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// hostsKept is how long the hosts of a site are listed while its frontal is away.
const hostsKept = time.Hour

// hosts is the grid's list of hosts: for each site the last list from its frontal. When the frontal
// disconnects, the hosts keep their state for the lease, are unknown after it, and are removed
// after an hour. hosts has no clock and makes no calls. Safe for concurrent use.
type hosts struct {
	lease, kept time.Duration
	max         int // bound on the hosts of all sites together

	mu    sync.Mutex // guards the fields below
	sites map[overlay.SiteID]*siteHosts
	count int
}

// countAll returns the number of nodes in the list, including those that are away.
func (h *hosts) countAll() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

type siteHosts struct {
	list   []offer.Host    // sorted; as it was at heard
	holder registry.Holder // the session that sent it; 0 while the frontal is away
	heard  time.Time
	left   time.Time // when that session ended; zero before

	brokers []BrokerSession // of the frontal, as it was at heard
}

func newHosts(lease time.Duration, max int) *hosts {
	return &hosts{lease: lease, kept: hostsKept, max: max, sites: make(map[overlay.SiteID]*siteHosts)}
}

// update replaces a site's list. The caller must not use list afterwards. If there is no room for all hosts
// of all sites, those that list the most keep their first hosts only, each as many. The error of a site
// that is one of them says so.
func (h *hosts) update(site overlay.SiteID, holder registry.Holder, list []offer.Host, now time.Time) error {
	for _, one := range list {
		if one.Node.Site != site {
			return fmt.Errorf("%w: %v is not of site %s", overlay.ErrForbidden, one.Node, site)
		}
		if one.State == offer.Unknown {
			return malformed(fmt.Errorf("%v is %v to its own site", one.Node, one.State))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := 0
	if s := h.sites[site]; s != nil {
		before = len(s.list)
	}
	h.count += len(list) - before
	h.sites[site] = &siteHosts{list: list, holder: holder, heard: now}
	h.cut()
	if n := len(h.sites[site].list); n < len(list) {
		return fmt.Errorf("%w: of the %d hosts of %s the first %d are listed, its share of the limit of %d (limits.hosts)",
			overlay.ErrOverloaded, len(list), site, n, h.max)
	}
	return nil
}

// cut makes the list fit its bound. The caller must hold mu.
func (h *hosts) cut() {
	if h.count <= h.max {
		return
	}
	var sizes []int
	for _, s := range h.sites {
		sizes = append(sizes, len(s.list))
	}
	share := shareOf(sizes, h.max)
	for _, s := range h.sites {
		if len(s.list) > share {
			h.count -= len(s.list) - share
			s.list = slices.Clone(s.list[:share])
		}
	}
}

// shareOf returns how many of its things each holder may keep so that there are at most total: who has
// fewer keeps all, and leaves the others the rest.
func shareOf(sizes []int, total int) int {
	slices.Sort(sizes)
	for i, n := range sizes {
		if share := total / (len(sizes) - i); n > share {
			return share
		}
		total -= n
	}
	return total
}

// leave marks the end of a session.
func (h *hosts) leave(holder registry.Holder, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sites {
		if s.holder == holder {
			s.holder, s.left = 0, now
		}
	}
}

// all returns the current list, sorted.
func (h *hosts) all(now time.Time) []offer.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]offer.Host, 0, h.count)
	for _, s := range h.sites {
		all = append(all, s.listAt(now, h.lease)...)
	}
	slices.SortStableFunc(all, offer.Compare)
	return all
}

// bySite returns the current list of one site.
func (h *hosts) bySite(site overlay.SiteID, now time.Time) []offer.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sites[site]
	if s == nil {
		return nil
	}
	return s.listAt(now, h.lease)
}

// listAt returns the site's list as of now.
func (s *siteHosts) listAt(now time.Time, lease time.Duration) []offer.Host {
	list := slices.Clone(s.list)
	unknown := s.holder == 0 && now.Sub(s.left) >= lease
	for i := range list {
		one := &list[i]
		if one.State == offer.Away {
			one.Silent += now.Sub(s.heard)
		} else if unknown {
			one.Silent = now.Sub(s.left)
		}
		if unknown {
			one.State = offer.Unknown
		}
		one.Silent = max(one.Silent, 0).Truncate(time.Second)
	}
	return list
}

// expire removes the hosts of sites whose frontal has been away for too long.
func (h *hosts) expire(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for site, s := range h.sites {
		if s.holder == 0 && now.Sub(s.left) >= h.kept {
			h.count -= len(s.list)
			delete(h.sites, site)
		}
	}
}

// Hosts implements controlpb.SitesServer.
func (s sites) Hosts(ctx context.Context, req *controlpb.HostList) (*controlpb.HostsTaken, error) {
	session, holder, err := s.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, s.b.fail(err)
	}
	site := session.Peer().Site
	if known, err := s.b.registry.Site(site); err != nil || known.Holder != holder {
		return nil, s.b.fail(fmt.Errorf("%w: %s has not joined on this session, or joined again on another", overlay.ErrUnknownSite, site))
	}
	list, err := offer.ListFromPB(req)
	if err != nil {
		return nil, s.b.fail(malformed(err))
	}
	sessions, err := brokerSessions(req.GetBrokers())
	if err != nil {
		return nil, s.b.fail(malformed(err))
	}
	err = s.b.hosts.update(site, holder, list, time.Now())
	if err != nil && !errors.Is(err, overlay.ErrOverloaded) {
		return nil, s.b.fail(err)
	}
	s.b.hosts.setBrokers(site, sessions)
	if s.b.sessions.byHolder(holder) == nil {
		s.b.hosts.leave(holder, time.Now()) // joined may have called leave before there was an entry
	}
	if err != nil {
		return nil, s.b.fail(err)
	}
	s.b.log.Debug("hosts reported", "site", site, "hosts", len(list))
	return &controlpb.HostsTaken{}, nil
}

// Hosts implements controlpb.DirectoryServer.
func (d directory) Hosts(ctx context.Context, _ *controlpb.HostsRequest) (*controlpb.HostList, error) {
	if _, err := d.asker(ctx); err != nil {
		return nil, d.b.fail(err)
	}
	list := d.b.hosts.all(time.Now())
	site := overlay.SiteID("")
	for i := range list {
		if one := &list[i]; one.Node.Site != site { // the first of a site has what is wrong with the site
			site = one.Node.Site
			one.Note = cmp.Or(d.b.contested(site), one.Note)
		}
	}
	return offer.ListToPB(list), nil
}

// contested says that two hosts present the certificate of a site's frontal; "" if they do not.
func (b *Broker) contested(site overlay.SiteID) string {
	return b.endpoint.Contested(control.Identity{Role: control.RoleFrontal, Site: site})
}
