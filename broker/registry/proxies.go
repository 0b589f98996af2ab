package registry

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/broker/decide"
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
	kinds   map[decide.ProxyKind]*kind
	choices uint64 // number of the latest choice: among equal proxies the one that was chosen longest ago is next

	failing map[failingKey]*siteFailing // also of proxies without a session, which may be back; at most maxFailing
}

// kind is how many proxies of a kind have a session, and when the last of them left.
type kind struct {
	count int
	left  time.Time
}

// kindLife is how long a kind of proxy counts when none has a session any more: one that is restarted is soon back.
const kindLife = 2 * time.Minute

// A proxy that did not carry a link is not chosen for firstFailing, and twice as long each time after that, while there
// is another: for links of the node that says so, and for those of its site once a second node has said so meanwhile.
// Nobody's word counts for another site.
const (
	firstFailing = 15 * time.Second
	longFailing  = time.Hour
	maxFailing   = 10_000
	maxWitnesses = 8 // nodes of a site that are remembered, of each proxy
)

type failingKey struct {
	site  overlay.SiteID
	proxy string
}

// siteFailing is a proxy that did not carry links of a site.
type siteFailing struct {
	all   failing            // for all nodes
	nodes map[string]failing // for those that say so
}

// failing is the time for which a proxy is not chosen.
type failing struct {
	until  time.Time
	length time.Duration // of that time
}

func (f failing) isForgotten(now time.Time) bool { return now.Sub(f.until) > 10*f.length }

// extended returns the time that a report begins. Many links may report at once: repeated reports are ignored.
func (f failing) extended(now time.Time) failing {
	if now.Before(f.until) {
		return f
	}
	length := firstFailing
	if !f.isForgotten(now) {
		length = min(2*f.length, longFailing)
	}
	return failing{now.Add(length), length}
}

func (f *siteFailing) isForgotten(now time.Time) bool {
	for _, one := range f.nodes {
		if !one.isForgotten(now) {
			return false
		}
	}
	return f.all.isForgotten(now)
}

// report records the word of a node; "" is the site's frontal, for all.
func (f *siteFailing) report(node string, now time.Time) {
	isConfirmed := node == ""
	for other, one := range f.nodes {
		isConfirmed = isConfirmed || other != node && now.Before(one.until)
	}
	if isConfirmed {
		f.all = f.all.extended(now)
	}
	if node == "" {
		return
	}
	if _, listed := f.nodes[node]; !listed && len(f.nodes) >= maxWitnesses {
		maps.DeleteFunc(f.nodes, func(_ string, one failing) bool { return !now.Before(one.until) })
		if len(f.nodes) >= maxWitnesses { // each of which confirms what this node says
			return
		}
	}
	if f.nodes == nil {
		f.nodes = map[string]failing{}
	}
	f.nodes[node] = f.nodes[node].extended(now)
}

// Failed records that a proxy did not carry a link, as a node says; with the node's name "" its site says so.
// Proxies without a session are ignored.
func (x *Proxies) Failed(by overlay.NodeID, proxy string, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.proxies[proxy] == nil {
		return
	}
	key := failingKey{by.Site, proxy}
	f := x.failing[key]
	if f == nil {
		if len(x.failing) >= maxFailing {
			maps.DeleteFunc(x.failing, func(_ failingKey, f *siteFailing) bool { return f.isForgotten(now) })
			if len(x.failing) >= maxFailing {
				return
			}
		}
		f = &siteFailing{}
		x.failing[key] = f
	}
	f.report(by.Name, now)
}

// hasFailed reports whether a proxy is not to be chosen for the link. The caller holds mu.
func (x *Proxies) hasFailed(proxy string, need Need) bool {
	f := x.failing[failingKey{need.Site, proxy}]
	return f != nil && (need.Now.Before(f.all.until) || need.Now.Before(f.nodes[need.Node].until))
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
	return &Proxies{max: max, proxies: make(map[string]*proxyState), kinds: make(map[decide.ProxyKind]*kind), failing: make(map[failingKey]*siteFailing)}
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
	} else {
		x.kinds[p.offer.kind()].count--
	}
	if x.kinds[offer.kind()] == nil {
		x.kinds[offer.kind()] = new(kind)
	}
	x.kinds[offer.kind()].count++
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
	older := 0
	var kinds []decide.ProxyKind
	for name, p := range x.proxies {
		kinds = append(kinds, p.offer.kind())
		switch {
		case need.Proxy.Unmet(kinds[len(kinds)-1:]) != "":
			continue
		case need.Owner != "" && !p.offer.Limited:
			older++
			continue
		}
		candidates = append(candidates, candidate{
			name: name, load: p.offer.Live + p.pending, capacity: p.offer.Capacity, measured: p.measured(), draining: p.offer.Draining, last: p.last,
		})
	}
	if why := need.Proxy.Unmet(kinds); why != "" {
		return Offer{}, fmt.Errorf("%w: %s", overlay.ErrNoRelay, why)
	}
	if len(candidates) == 0 {
		return Offer{}, fmt.Errorf("%w: a policy limits the link, and the %d proxies that it could use are older than such limits", overlay.ErrNoRelay, older)
	}
	if need.Prefer4 {
		candidates = preferred(candidates, func(c candidate) bool { return x.proxies[c.name].offer.hasIPv4() })
	}
	works := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool {
		return c.name == need.OtherThan || x.hasFailed(c.name, need)
	})
	i, err := 0, overlay.ErrNoRelay
	switch {
	case need.Owner != "" && need.OtherThan == "": // only one proxy counts for it, whatever anybody says of that
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
func (x *Proxies) Leave(holder Holder, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, p := range x.proxies {
		if p.holder != holder {
			continue
		}
		delete(x.proxies, name)
		k := x.kinds[p.offer.kind()]
		if k.count--; k.count == 0 {
			k.left = now
		}
	}
}

// Kinds returns the kinds of proxies that have a session, or had one lately, in a fixed order; not nil.
func (x *Proxies) Kinds(now time.Time) []decide.ProxyKind {
	x.mu.RLock()
	defer x.mu.RUnlock()
	kinds := []decide.ProxyKind{}
	for i := range 8 {
		p := decide.ProxyKind{Port443: i&1 > 0, IPv4: i&2 > 0, IPv6: i&4 > 0}
		if k := x.kinds[p]; k != nil && (k.count > 0 || now.Sub(k.left) < kindLife) {
			kinds = append(kinds, p)
		}
	}
	return kinds
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
	Node string         // of the asker
	Now  time.Time

	Proxy   decide.Need // which proxies do
	Prefer4 bool        // an IPv4 address if any proxy has one: a site is not known to have IPv6

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

// kind returns which sites can reach the proxy.
func (o Offer) kind() decide.ProxyKind {
	return decide.ProxyKind{
		Port443: slices.ContainsFunc(o.Addresses, func(a netip.AddrPort) bool { return a.Port() == port443 }),
		IPv4:    o.hasIPv4(), IPv6: o.has(netip.Addr.Is6),
	}
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
