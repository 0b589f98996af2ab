package directory

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	hostsPeriod = 30 * time.Second       // between two lists told to the broker, if nothing changes
	hostsPause  = 200 * time.Millisecond // between two lists, if much does
	HostsAge    = 5 * time.Second        // of a list that helpers are told
	hostsKept   = time.Hour              // for a node whose helper is away
	hostsDoubt  = time.Minute            // without the broker, before other sites' hosts are unknown
)

// siteHosts is the site's part of the list of hosts: what the helpers told of
// themselves, and since when those that left are away. It has no clock of its own. A session may be any value that stands for one.
type siteHosts struct {
	site overlay.SiteID
	max  int

	mu sync.Mutex           // guards of, and what is in it
	of map[string]*siteHost // by node
}

type siteHost struct {
	offer   offer.Offer
	session any       // nil while away
	left    time.Time // when it went away
}

func newSiteHosts(site overlay.SiteID) *siteHosts {
	return &siteHosts{site: site, max: offer.MaxHosts, of: make(map[string]*siteHost)}
}

// enter notes what a node offers and reports whether the list is another now.
func (h *siteHosts) enter(node string, session any, o offer.Offer) (changed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.of[node]
	if old == nil && len(h.of) >= h.max {
		return false, fmt.Errorf("%w: %s lists %d hosts already", overlay.ErrOverloaded, h.site, h.max)
	}
	h.of[node] = &siteHost{offer: o, session: session}
	return old == nil || old.session == nil || old.offer != o, nil
}

// leave says that a session ended and reports whether the list is another now.
func (h *siteHosts) leave(node string, session any, now time.Time) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of[node]
	if one == nil || one.session != session {
		return false
	}
	one.session, one.left = nil, now
	return true
}

// expire forgets nodes that have been away for too long.
func (h *siteHosts) expire(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for node, one := range h.of {
		if one.session == nil && now.Sub(one.left) >= hostsKept {
			delete(h.of, node)
		}
	}
}

// offer returns what a node last offered, or nil.
func (h *siteHosts) offer(node string) *offer.Offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.of[node]; one != nil {
		o := one.offer
		return &o
	}
	return nil
}

// list returns the site's hosts in order.
func (h *siteHosts) list(now time.Time) []offer.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]offer.Host, 0, len(h.of))
	for node, one := range h.of {
		host := offer.Host{Node: overlay.NodeID{Site: h.site, Name: node}, State: offer.Up, Offer: one.offer}
		if one.session == nil {
			host.State, host.Silent = offer.Away, max(now.Sub(one.left), 0).Truncate(time.Second)
		}
		list = append(list, host)
	}
	slices.SortFunc(list, offer.Compare)
	return list
}

// gridHosts is the memory of what the broker listed. Its token is kept while the
// broker is asked, so that it is asked once, however many want to know.
type gridHosts struct {
	token chan struct{} // one: whoever has it reads and asks

	list  []offer.Host // of all sites, in order; never changed
	asked time.Time    // when the broker answered with it; zero: never
	tried time.Time    // when it was asked last
}

func newGridHosts() gridHosts { return gridHosts{token: make(chan struct{}, 1)} }

// hostsWith is what a helper is told: list, which is old by age, with the hosts
// of site as they are now.
func hostsWith(list []offer.Host, age time.Duration, site overlay.SiteID, own []offer.Host) []offer.Host {
	all := make([]offer.Host, 0, len(list)+len(own))
	for _, one := range list {
		if one.Node.Site == site {
			continue
		}
		if one.State != offer.Up || age >= hostsDoubt {
			one.Silent += age.Truncate(time.Second)
		}
		if age >= hostsDoubt {
			one.State = offer.Unknown
		}
		all = append(all, one)
	}
	all = append(all, own...)
	slices.SortFunc(all, offer.Compare)
	return all[:min(len(all), offer.MaxHosts)]
}

// Hosts is the list of hosts as the frontal knows it: its own site's, of which it tells
// the brokers, and the others', of which they tell it.
type Hosts struct {
	site overlay.SiteID
	who  string // for errors
	log  *slog.Logger
	up   *uplink.Set
	own  *siteHosts
	grid gridHosts     // as the broker told it
	news chan struct{} // holds a value when the brokers are to be told of the site's hosts
}

// NewHosts returns the list of a site that knows no host yet.
func NewHosts(site overlay.SiteID, who string, up *uplink.Set, log *slog.Logger) *Hosts {
	return &Hosts{site: site, who: who, log: log, up: up, own: newSiteHosts(site), grid: newGridHosts(), news: make(chan struct{}, 1)}
}

// All returns the list of hosts: other sites' as the broker told it in the
// last seconds, or last before it went away.
func (h *Hosts) All(ctx context.Context) ([]offer.Host, error) {
	select {
	case h.grid.token <- struct{}{}:
		defer func() { <-h.grid.token }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w: waiting for the broker's list of hosts: %v", h.who, overlay.ErrTimeout, context.Cause(ctx))
	}
	if now := time.Now(); now.Sub(h.grid.tried) >= HostsAge {
		list, err := h.up.Hosts(ctx)
		switch {
		case err == nil:
			h.grid.list, h.grid.asked = list, now
		case ctx.Err() != nil:
			return nil, err
		default:
			h.log.Warn("the broker does not tell the list of hosts; helpers are told the last one", "error", err, "age", h.grid.age(now).String())
		}
		h.grid.tried = now
	}
	now := time.Now()
	return hostsWith(h.grid.list, h.grid.age(now), h.site, h.own.list(now)), nil
}

func (g *gridHosts) age(now time.Time) time.Duration {
	if g.asked.IsZero() {
		return 0 // of a list without hosts
	}
	return now.Sub(g.asked)
}

// AskAgain has the broker asked when somebody wants to know next, however young the last
// answer is.
func (h *Hosts) AskAgain() {
	h.grid.token <- struct{}{}
	h.grid.tried = time.Time{}
	<-h.grid.token
}

// Enter notes what a helper offers on its session.
func (h *Hosts) Enter(s *control.Session, o offer.Offer) error {
	changed, err := h.own.enter(s.Peer().Name, s, o)
	if err != nil {
		return fmt.Errorf("%s: %w", h.who, err)
	}
	if changed {
		h.Changed()
	}
	select {
	case <-s.Done(): // leave may have come first
		h.Leave(s)
	default:
	}
	return nil
}

// Leave says that a helper's session ended.
func (h *Hosts) Leave(s *control.Session) {
	if h.own.leave(s.Peer().Name, s, time.Now()) {
		h.Changed()
	}
}

// Expire forgets nodes of the site that have been away for too long.
func (h *Hosts) Expire(now time.Time) { h.own.expire(now) }

// Offer returns what a node of the site last offered, or nil.
func (h *Hosts) Offer(node string) *offer.Offer { return h.own.offer(node) }

// Own returns the site's hosts in order.
func (h *Hosts) Own() []offer.Host { return h.own.list(time.Now()) }

// Changed has the broker told soon.
func (h *Hosts) Changed() {
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// Tell keeps the broker's list of this site's hosts right, until
// ctx ends. A session that begins counts as a change.
func (h *Hosts) Tell(ctx context.Context) {
	period := time.NewTicker(hostsPeriod)
	defer period.Stop()
	said := "" // of the last refusal
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.news:
		case <-period.C:
		}
		if h.up.Up() {
			err := h.up.TellHosts(ctx, h.Own)
			if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != said {
				said = text
				h.log.Warn("the broker does not take the list of the site's hosts; it is told again", "every", hostsPeriod.String(), "error", err)
			}
		}
		uplink.Pause(ctx, hostsPause)
	}
}
