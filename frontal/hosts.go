package frontal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	hostsPeriod = 30 * time.Second       // between two lists told to the broker, if nothing changes
	hostsPause  = 200 * time.Millisecond // between two lists, if much does
	hostsAge    = 5 * time.Second        // of a list that helpers are told
	hostsKept   = time.Hour              // for a node whose helper is away
	hostsDoubt  = time.Minute            // without the broker, before other sites' hosts are unknown
)

// siteHosts is the site's part of the list of hosts: what the helpers told of
// themselves, and since when those that left are away. It has no clock and no
// lock of its own. A session may be any value that stands for one.
type siteHosts struct {
	site overlay.SiteID
	max  int
	of   map[string]*siteHost // by node
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
	old := h.of[node]
	if old == nil && len(h.of) >= h.max {
		return false, fmt.Errorf("%w: %s lists %d hosts already", overlay.ErrOverloaded, h.site, h.max)
	}
	h.of[node] = &siteHost{offer: o, session: session}
	return old == nil || old.session == nil || old.offer != o, nil
}

// leave says that a session ended and reports whether the list is another now.
func (h *siteHosts) leave(node string, session any, now time.Time) (changed bool) {
	one := h.of[node]
	if one == nil || one.session != session {
		return false
	}
	one.session, one.left = nil, now
	return true
}

// expire forgets nodes that have been away for too long.
func (h *siteHosts) expire(now time.Time) {
	for node, one := range h.of {
		if one.session == nil && now.Sub(one.left) >= hostsKept {
			delete(h.of, node)
		}
	}
}

// list returns the site's hosts in order.
func (h *siteHosts) list(now time.Time) []offer.Host {
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

// gridHosts is the memory of what the broker listed. Its turn is kept while the
// broker is asked, so that it is asked once, however many want to know.
type gridHosts struct {
	turn chan struct{} // one token: whoever has it reads and asks

	list  []offer.Host // of all sites, in order; never changed
	asked time.Time    // when the broker answered with it; zero: never
	tried time.Time    // when it was asked last
}

func newGridHosts() gridHosts { return gridHosts{turn: make(chan struct{}, 1)} }

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

// hosts returns the list of hosts: other sites' as the broker told it in the
// last seconds, or last before it went away.
func (f *Frontal) hosts(ctx context.Context) ([]offer.Host, error) {
	select {
	case f.grid.turn <- struct{}{}:
		defer func() { <-f.grid.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w: waiting for the broker's list of hosts: %v", f.who, overlay.ErrTimeout, context.Cause(ctx))
	}
	if now := time.Now(); now.Sub(f.grid.tried) >= hostsAge {
		list, err := f.up.Hosts(ctx)
		switch {
		case err == nil:
			f.grid.list, f.grid.asked = list, now
		case ctx.Err() != nil:
			return nil, err
		default:
			f.log.Warn("the broker does not tell the list of hosts; helpers are told the last one", "error", err, "age", f.grid.age(now).String())
		}
		f.grid.tried = now
	}
	now := time.Now()
	return hostsWith(f.grid.list, f.grid.age(now), f.site, f.ownHosts(now)), nil
}

func (g *gridHosts) age(now time.Time) time.Duration {
	if g.asked.IsZero() {
		return 0 // of a list without hosts
	}
	return now.Sub(g.asked)
}

func (f *Frontal) ownHosts(now time.Time) []offer.Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own.list(now)
}

// hostEntered notes what a helper offers. A visitor offers nothing, nor does a
// helper that does not say.
func (f *Frontal) hostEntered(s *control.Session, m *controlpb.HostOffer) error {
	if m == nil || s.Visiting() {
		return nil
	}
	o, err := offer.FromPB(m)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", f.who, wire.ErrMalformed, err)
	}
	node := s.Peer().Name
	f.mu.Lock()
	changed, err := f.own.enter(node, s, o)
	f.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", f.who, err)
	}
	if changed {
		f.hostsChanged()
	}
	select {
	case <-s.Done(): // hostLeft may have come first
		f.hostLeft(s)
	default:
	}
	return nil
}

// hostLeft says that a helper's session ended.
func (f *Frontal) hostLeft(s *control.Session) {
	f.mu.Lock()
	changed := f.own.leave(s.Peer().Name, s, time.Now())
	f.mu.Unlock()
	if changed {
		f.hostsChanged()
	}
}

// hostsChanged has the broker told soon.
func (f *Frontal) hostsChanged() {
	select {
	case f.hostNews <- struct{}{}:
	default:
	}
}

// tellHosts keeps the broker's list of this site's hosts right, until the
// frontal ends. A session that begins counts as a change.
func (f *Frontal) tellHosts() {
	period := time.NewTicker(hostsPeriod)
	defer period.Stop()
	said := "" // of the last refusal
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-f.hostNews:
		case <-period.C:
		}
		if f.up.Up() {
			err := f.up.TellHosts(f.ctx, func() []offer.Host { return f.ownHosts(time.Now()) })
			if text := fmt.Sprint(err); err != nil && f.ctx.Err() == nil && text != said {
				said = text
				f.log.Warn("the broker does not take the list of the site's hosts; it is told again", "every", hostsPeriod.String(), "error", err)
			}
		}
		pause(f.ctx, hostsPause)
	}
}

// Hosts lists the grid's hosts for a helper.
func (d *directory) Hosts(ctx context.Context, _ *controlpb.HostsRequest) (*controlpb.HostList, error) {
	if _, err := d.f.helperOf(ctx, "Hosts"); err != nil {
		return nil, control.Status(err)
	}
	list, err := d.f.hosts(ctx)
	if err != nil {
		return nil, control.Status(err)
	}
	return offer.ListToPB(list), nil
}
