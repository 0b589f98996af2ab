package registry

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Proxies are the proxies that have a session, and the links that were assigned to each. It is safe
// for concurrent use, makes no calls and has no clock.
type Proxies struct {
	mu      sync.RWMutex // guards the fields below, and the proxies' states
	max     int
	proxies map[string]*proxyState // by name
	choices uint64                 // number of the latest choice: among equal proxies the one that was chosen longest ago is next

	failing map[failingKey]failing // also of proxies without a session, which may be back; at most maxFailing
}

// A proxy that did not carry a link of a site is not chosen for that site for firstFailing, and twice as
// long each time after that, while there is another. A site's word counts for its own links only.
const (
	firstFailing = 15 * time.Second
	maxFailing   = 10_000
	longFailing  = time.Hour
)

type failingKey struct {
	site  overlay.SiteID
	proxy string
}

type failing struct {
	until  time.Time
	length time.Duration // of that time
}

func (f failing) isForgotten(now time.Time) bool { return now.Sub(f.until) > 10*f.length }

// Failed records that a proxy did not carry a link of a site. Many links may report it at once: repeated reports
// are ignored, and so are proxies without a session.
func (x *Proxies) Failed(site overlay.SiteID, proxy string, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := failingKey{site, proxy}
	was, listed := x.failing[key]
	if x.proxies[proxy] == nil || now.Before(was.until) {
		return
	}
	if len(x.failing) >= maxFailing && !listed {
		maps.DeleteFunc(x.failing, func(_ failingKey, f failing) bool { return f.isForgotten(now) })
		if len(x.failing) >= maxFailing {
			return
		}
	}
	length := firstFailing
	if listed && !was.isForgotten(now) {
		length = min(2*was.length, longFailing)
	}
	x.failing[key] = failing{now.Add(length), length}
}

type proxyState struct {
	offer    Offer
	holder   Holder
	pending  int    // links assigned since the last offer, which does not count them
	assigned uint64 // links, all together
	peak     uint64 // links that it had when a site reported that it carries one, at most
	last     uint64 // number of the choice that took it last
}

// firstCapacity is how many links a proxy is believed to have room for by its word, and beyond that for twice as many as
// it was seen to carry: by its word alone it is not the least loaded one.
const firstCapacity = 64

// measured returns the capacity by which a proxy is compared with others.
func (p *proxyState) measured() int {
	return int(min(uint64(p.offer.Capacity), max(firstCapacity, 2*p.peak)))
}

// Worked records that a proxy carries a link, as one of its ends reports. Of the links that the proxy says it has, those
// count that this set of proxies has assigned to it.
func (x *Proxies) Worked(proxy string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.proxies[proxy]; p != nil {
		p.peak = max(p.peak, min(uint64(p.offer.Live+p.pending), p.assigned))
	}
}

// NewProxies returns an empty set of at most max proxies.
func NewProxies(max int) *Proxies {
	return &Proxies{max: max, proxies: make(map[string]*proxyState), failing: make(map[failingKey]failing)}
}

// SetMax changes the maximum number for new proxies. Proxies beyond it stay.
func (x *Proxies) SetMax(max int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.max = max
}

// Offer adds or renews a proxy and returns the session it replaces, zero if none.
func (x *Proxies) Offer(offer Offer, holder Holder) (replaced Holder, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.proxies[offer.Name]
	if p == nil {
		if len(x.proxies) >= x.max {
			return 0, fmt.Errorf("%w: the broker already knows %d proxies, its limit", overlay.ErrOverloaded, len(x.proxies))
		}
		p = new(proxyState)
		x.proxies[offer.Name] = p
	}
	if p.holder != holder {
		replaced = p.holder
	}
	p.offer, p.holder, p.pending = offer, holder, 0
	return replaced, nil
}

// Assign chooses a proxy for a new link and counts the link as the proxy's until its next offer. It
// fails with ErrNoRelay when no proxy satisfies need, and with ErrOverloaded when none accepts
// another link.
func (x *Proxies) Assign(how Choice, need Need) (Offer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	candidates := make([]candidate, 0, len(x.proxies))
	older, single := 0, 0
	for name, p := range x.proxies {
		switch {
		case need.Only443 && !p.offer.on443():
			continue
		case !p.offer.reaches(need):
			single++
			continue
		case need.Owner != "" && !p.offer.Limited:
			older++
			continue
		}
		candidates = append(candidates, candidate{
			name: name, load: p.offer.Live + p.pending, capacity: p.offer.Capacity, measured: p.measured(), draining: p.offer.Draining, last: p.last,
		})
	}
	switch {
	case len(candidates) == 0 && older > 0:
		return Offer{}, fmt.Errorf("%w: a policy limits the link, and the %d proxies that it could use are older than such limits", overlay.ErrNoRelay, older)
	case len(candidates) == 0 && single > 0:
		return Offer{}, fmt.Errorf("%w: a site has nothing but IPv6, and none of the %d proxies that it could use advertises an address of each version of IP that the two sites have; add both to a proxy's advertise", overlay.ErrNoRelay, single)
	case len(candidates) == 0 && len(x.proxies) > 0:
		return Offer{}, fmt.Errorf("%w: none of the %d proxies offers an address of port 443, and a site lets only that out", overlay.ErrNoRelay, len(x.proxies))
	}
	if need.Prefer4 {
		candidates = preferred(candidates, func(c candidate) bool { return x.proxies[c.name].offer.hasIPv4() })
	}
	works := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool {
		return c.name == need.OtherThan || need.Now.Before(x.failing[failingKey{need.Site, c.name}].until)
	})
	i, err := 0, overlay.ErrNoRelay
	switch {
	case need.Owner != "" && need.OtherThan == "": // only one proxy counts for it, whatever a site says of that
		i, err = owners(need.Owner, candidates)
	case need.Owner == "":
		if i, err = choose(how, works); err == nil {
			candidates = works
		} else if need.OtherThan == "" {
			i, err = choose(how, candidates)
		}
	}
	if err != nil && need.OtherThan != "" {
		err = fmt.Errorf("%w: there is none besides %s that may carry the link and has not failed", overlay.ErrNoRelay, need.OtherThan)
	}
	if err != nil {
		return Offer{}, err
	}
	p := x.proxies[candidates[i].name]
	x.choices++
	p.last = x.choices
	p.pending++
	p.assigned++
	return p.offer, nil
}

// List returns the proxies that have a session, by name.
func (x *Proxies) List() []Proxy {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]Proxy, 0, len(x.proxies))
	for _, p := range x.proxies {
		all = append(all, Proxy{p.offer, p.holder})
	}
	slices.SortStableFunc(all, func(a, b Proxy) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Leave marks the end of a session: its proxy is removed.
func (x *Proxies) Leave(holder Holder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.proxies, func(_ string, p *proxyState) bool { return p.holder == holder })
}

// Inventory returns a summary of the proxies, by name.
func (x *Proxies) Inventory() (all []ProxyInventory) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, p := range x.proxies {
		offer := p.offer
		offer.Live += p.pending
		all = append(all, ProxyInventory{offer, p.assigned})
	}
	slices.SortStableFunc(all, func(a, b ProxyInventory) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Proxy is a proxy and its session.
type Proxy struct {
	Offer
	Holder Holder
}

// preferred returns those of the candidates that are wanted, or all if none is.
func preferred(all []candidate, wanted func(candidate) bool) []candidate {
	if i := slices.IndexFunc(all, wanted); i < 0 {
		return all
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return !wanted(c) })
}

// Need is what a link requires of its proxy.
type Need struct {
	Site overlay.SiteID // of the asker
	Now  time.Time

	Only443 bool // an address with port 443
	IPv4    bool // an IPv4 address; considered only with IPv6
	IPv6    bool // an IPv6 address
	Prefer4 bool // an IPv4 address if any proxy has one: a site is not known to have IPv6

	OtherThan string // not this proxy, which is in doubt, nor one that failed; "": any
	Owner     string // that it enforces policy allowances, all links of this owner on one proxy; "": no allowance
}

// Offer is a proxy's description of itself.
type Offer struct {
	Name      string
	Addresses []netip.AddrPort // where nodes reach it, in order; read-only
	STUN      netip.AddrPort   // of its STUN server; invalid if it has none
	Key       ticket.Key
	Live      int // number of links at its last report
	Capacity  int // maximum number of links
	Draining  bool
	Named     bool // it accepts tickets that name a principal
	Limited   bool // it accepts tickets with allowances, and enforces them

	// Clock is the time by the proxy's clock, which decides when its tickets expire, at the
	// broker's time Heard. Zero for an older version of the proxy, whose clock is assumed to equal
	// the broker's.
	Clock, Heard time.Time

	// The lowest rates that its quota holds links to, without a project and with one; nil: none.
	// For display; read-only.
	Limit, ProjectLimit *controlpb.RateLimit
}

// ProxyTime returns the time by the proxy's clock at the broker's time now.
func (o Offer) ProxyTime(now time.Time) time.Time {
	if o.Clock.IsZero() {
		return now
	}
	return o.Clock.Add(now.Sub(o.Heard))
}

// port443 is the only port that a site with restricted egress lets out.
const port443 = 443

// on443 reports whether a site that lets only port 443 out can reach the proxy.
func (o Offer) on443() bool {
	return slices.ContainsFunc(o.Addresses, func(a netip.AddrPort) bool { return a.Port() == port443 })
}

// reaches reports whether the proxy has an address of each IP version that the need names.
func (o Offer) reaches(n Need) bool {
	return !n.IPv6 || o.has(netip.Addr.Is6) && (!n.IPv4 || o.hasIPv4())
}

func (o Offer) hasIPv4() bool { return o.has(netip.Addr.Is4) }

func (o Offer) has(version func(netip.Addr) bool) bool {
	return slices.ContainsFunc(o.Addresses, func(a netip.AddrPort) bool { return version(a.Addr().Unmap()) })
}

// ProxyInventory is one proxy.
type ProxyInventory struct {
	Offer
	Assigned uint64 // links since its session began
}
