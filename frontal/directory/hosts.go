package directory

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	hostsPeriod = 30 * time.Second       // between two lists sent to the broker, if nothing changes
	hostsPause  = 200 * time.Millisecond // between two lists, if much changes
	hostsKept   = time.Hour              // for a node whose helper is not connected
	hostsDoubt  = time.Minute            // without the broker, before other sites' hosts become unknown
)

// A user who waits for hosts is to see them at once, and a grid of thousands is not to be sent again
// for each user: a list is kept for a time that grows with its length.
const (
	minHostsAge  = 500 * time.Millisecond
	hostsAgeEach = 250 * time.Microsecond // for each host
	maxHostsAge  = 5 * time.Second
)

// HostsAge returns how long helpers get a list of so many hosts of the grid before it is requested again.
func HostsAge(hosts int) time.Duration {
	return min(minHostsAge+time.Duration(hosts)*hostsAgeEach, maxHostsAge)
}

// siteHosts is the site's part of the list of hosts: the offers of the helpers, and since when
// absent helpers are gone. It has no clock. A session may be any comparable value.
type siteHosts struct {
	site overlay.SiteID
	max  int

	mu sync.Mutex           // guards of and its values
	of map[string]*siteHost // by node
}

type siteHost struct {
	offer   offer.Offer
	session any       // nil while absent
	left    time.Time // when it left
}

func newSiteHosts(site overlay.SiteID) *siteHosts {
	return &siteHosts{site: site, max: offer.MaxHosts, of: make(map[string]*siteHost)}
}

// enter records a node's offer and reports whether the list changed.
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

// leave records that a session ended and reports whether the list changed.
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

// expire removes nodes that have been absent for too long.
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
	slices.SortStableFunc(list, offer.Compare)
	return list
}

// gridHosts caches the list of hosts from the broker. Its token is held during a request to the
// broker, so that there is one request regardless of the number of callers.
type gridHosts struct {
	token chan struct{} // capacity one: the holder reads and calls the broker

	list  []offer.Host // of all sites, in order; never modified
	asked time.Time    // when the broker answered with it; zero: never
	tried time.Time    // time of the last request
	stale string       // why that failed; empty: it did not
}

func newGridHosts() gridHosts { return gridHosts{token: make(chan struct{}, 1)} }

// hostsWith returns the list for a helper: list, which has the given age, with the current hosts of
// site.
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
	slices.SortStableFunc(all, offer.Compare)
	return all[:min(len(all), offer.MaxHosts)]
}

// Hosts is the list of hosts as the frontal knows it: those of its own site, which it sends to the
// brokers, and those of other sites, which it receives from them.
type Hosts struct {
	site overlay.SiteID
	who  string // for errors
	log  *slog.Logger
	up   *uplink.Set
	own  *siteHosts
	grid gridHosts     // as received from the broker
	news chan struct{} // holds a value when the brokers need the site's hosts

	// Note returns what is wrong with a node of the site, or with the site where node is "", for people; ""
	// for nothing. Set it before use.
	Note func(node string) string
}

// NewHosts returns the list of a site without hosts.
func NewHosts(site overlay.SiteID, who string, up *uplink.Set, log *slog.Logger) *Hosts {
	return &Hosts{site: site, who: who, log: log, up: up, own: newSiteHosts(site), grid: newGridHosts(), news: make(chan struct{}, 1), Note: func(string) string { return "" }}
}

// All returns the list of hosts, with other sites' hosts as the broker sent them within the last
// seconds, or before it became unreachable; then it says why.
func (h *Hosts) All(ctx context.Context) (offer.List, error) {
	select {
	case h.grid.token <- struct{}{}:
		defer func() { <-h.grid.token }()
	case <-ctx.Done():
		return offer.List{}, fmt.Errorf("%s: %w: waiting for the broker's list of hosts: %v", h.who, overlay.ErrTimeout, context.Cause(ctx))
	}
	if now := time.Now(); now.Sub(h.grid.tried) >= HostsAge(len(h.grid.list)) {
		list, err := h.up.Hosts(ctx)
		switch {
		case err == nil:
			h.grid.list, h.grid.asked, h.grid.stale = list, now, ""
		case ctx.Err() != nil:
			return offer.List{}, err
		default:
			h.grid.stale = err.Error()
			h.log.Warn("cannot get the list of hosts from the broker; helpers get the last one", "error", err, "age", h.grid.age(now).String())
		}
		h.grid.tried = now
	}
	now := time.Now()
	return offer.List{Hosts: hostsWith(h.grid.list, h.grid.age(now), h.site, h.Own()), Stale: h.grid.stale}, nil
}

func (g *gridHosts) age(now time.Time) time.Duration {
	if g.asked.IsZero() {
		return 0 // of a list without hosts
	}
	return now.Sub(g.asked)
}

// AskAgain makes the next call of All request the list from the broker, regardless of the age of
// the last answer.
func (h *Hosts) AskAgain() {
	h.grid.token <- struct{}{}
	h.grid.tried = time.Time{}
	<-h.grid.token
}

// Enter records a helper's offer on its session.
func (h *Hosts) Enter(s *control.Session, o offer.Offer) error {
	changed, err := h.own.enter(s.Peer().Name, s, o)
	if err != nil {
		return fmt.Errorf("%s: %w", h.who, err)
	}
	if changed {
		h.Changed()
	}
	select {
	case <-s.Done(): // leave may have been called first
		h.Leave(s)
	default:
	}
	return nil
}

// Leave records that a helper's session ended.
func (h *Hosts) Leave(s *control.Session) {
	if h.own.leave(s.Peer().Name, s, time.Now()) {
		h.Changed()
	}
}

// Expire removes nodes of the site that have been absent for too long.
func (h *Hosts) Expire(now time.Time) { h.own.expire(now) }

// Offer returns what a node of the site last offered, or nil.
func (h *Hosts) Offer(node string) *offer.Offer { return h.own.offer(node) }

// Own returns the site's hosts in order.
func (h *Hosts) Own() []offer.Host {
	list := h.own.list(time.Now())
	for i := range list {
		list[i].Note = h.Note(list[i].Node.Name)
	}
	if len(list) > 0 { // the first has what is wrong with the site
		list[0].Note = cmp.Or(h.Note(""), list[0].Note)
	}
	return list
}

// Changed makes Tell send the list to the broker soon.
func (h *Hosts) Changed() {
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// Tell keeps the broker's list of this site's hosts up to date until ctx ends. The start of a
// session counts as a change.
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
				h.log.Warn("cannot send the list of the site's hosts to the broker; retrying", "every", hostsPeriod.String(), "error", err)
			}
		}
		sleep.For(ctx, hostsPause)
	}
}
