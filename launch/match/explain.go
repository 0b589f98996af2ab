package match

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Infeasible means that no hosts of an offer meet a profile; its fields say why.
type Infeasible struct {
	// Either lists alternatives: with any one of these relaxed to what is offered, and all else as
	// asked, there is a match.
	Either []Shortfall

	// All, where Either is empty, is what must be relaxed together. It is one solution of several:
	// earlier demands of the profile were kept rather than later ones, and counts rather than
	// limits.
	All []Shortfall

	// Unsure means that some of the searches for offers gave up, so that there may be better or
	// further ones.
	Unsure bool
}

// Shortfall is a requirement that cannot be kept and the nearest offer.
type Shortfall struct {
	What  string // such as `"b" to "c": latency`
	Asked string // such as "at most 5ms"
	Best  string // such as "8ms (b at lyon, c at rennes)"
}

func (s Shortfall) String() string {
	return fmt.Sprintf("%s: asks for %s; the best is %s", s.What, s.Asked, s.Best)
}

func (e *Infeasible) Error() string {
	var b strings.Builder
	b.WriteString("match: no hosts meet the profile")
	list, head := e.Either, "; one of these has to give, all else as asked:"
	if len(list) == 0 {
		list, head = e.All, "; these have to give together:"
	}
	if len(list) > 0 {
		b.WriteString(head)
	}
	for _, s := range list {
		b.WriteString("\n  " + s.String())
	}
	if e.Unsure {
		b.WriteString("\n  (the search for offers was cut short; there may be better ones)")
	}
	return b.String()
}

// A demand is one requirement of a profile: a number that can be relaxed. Its offers go from one
// that always holds (0) to the one that was asked, each harder to keep than the one before.
type demand struct {
	what, asked string
	offers      int // number of steps from no demand to what was asked, at least 1
	set         func(p *profile.Profile, offer int)
	text        func(offer int) string
	groups      []int // groups whose places belong into the text
	counts      bool  // it is the number of processes of a group
}

// demands lists the requirements of a profile, in the order in which they are kept.
func demands(p *profile.Profile, o *Offer) (list []demand) {
	for g := range p.Groups {
		list = append(list, countDemand(p, g))
	}
	for g := range p.Groups {
		list = append(list, hostDemands(p, o, g)...)
	}
	rtts, rates := o.measured()
	for g := range p.Groups {
		what := fmt.Sprintf("inside %q", p.Groups[g].Name)
		list = append(list, networkDemands(what, p.Groups[g].Inside, rtts, rates, []int{g},
			func(p *profile.Profile) *profile.Network { return &p.Groups[g].Inside })...)
	}
	for i, b := range p.Between {
		what := fmt.Sprintf("%q to %q", p.Groups[b.A].Name, p.Groups[b.B].Name)
		list = append(list, networkDemands(what, b.Network, rtts, rates, []int{b.A, b.B},
			func(p *profile.Profile) *profile.Network { return &p.Between[i].Network })...)
	}
	for i := range p.Similar {
		list = append(list, similarDemand(p, i))
	}
	return list
}

func countDemand(p *profile.Profile, g int) demand {
	n := p.Groups[g].Processes
	return demand{
		what: fmt.Sprintf("%q: processes", p.Groups[g].Name), asked: each(&p.Groups[g]), offers: n,
		set:    func(p *profile.Profile, offer int) { p.Groups[g].Processes = offer },
		text:   func(offer int) string { return fmt.Sprint(offer) },
		groups: []int{g}, counts: true,
	}
}

// each formats what a group asks for, as "40 of 2 cores, 4GiB".
func each(g *profile.Group) string {
	text := fmt.Sprint(g.Processes)
	var of []string
	if g.Cores > 1 {
		of = append(of, fmt.Sprintf("%d cores", g.Cores))
	}
	if g.Speed > 0 {
		of = append(of, g.Speed.String())
	}
	if g.Memory > 0 {
		of = append(of, g.Memory.String())
	}
	if len(of) > 0 {
		text += " of " + strings.Join(of, ", ")
	}
	return text
}

func hostDemands(p *profile.Profile, o *Offer, g int) (list []demand) {
	group := &p.Groups[g]
	name := fmt.Sprintf("%q: ", group.Name)
	if n := group.Cores; n > 1 {
		list = append(list, demand{
			what: name + "cores", asked: fmt.Sprintf("%d for each process", n), offers: n - 1,
			set:  func(p *profile.Profile, offer int) { p.Groups[g].Cores = 1 + offer },
			text: func(offer int) string { return fmt.Sprint(1 + offer) }, groups: []int{g},
		})
	}
	if group.Memory > 0 {
		shares := o.memories(group.Memory)
		list = append(list, demand{
			what: name + "memory", asked: fmt.Sprintf("%v for each process", group.Memory), offers: len(shares) - 1,
			set:  func(p *profile.Profile, offer int) { p.Groups[g].Memory = shares[offer] },
			text: func(offer int) string { return shares[offer].String() }, groups: []int{g},
		})
	}
	if group.Speed > 0 {
		speeds := o.speeds(group.Speed)
		list = append(list, demand{
			what: name + "speed", asked: fmt.Sprintf("at least %v", group.Speed), offers: len(speeds) - 1,
			set:  func(p *profile.Profile, offer int) { p.Groups[g].Speed = speeds[offer] },
			text: measuredText(speeds), groups: []int{g},
		})
	}
	if most := group.Sites; most > 0 {
		sites := o.siteCount()
		if most < sites {
			list = append(list, demand{
				what: name + "sites", asked: fmt.Sprintf("at most %d", most), offers: sites - most,
				set:  func(p *profile.Profile, offer int) { p.Groups[g].Sites = sites - offer },
				text: func(offer int) string { return fmt.Sprint(sites - offer) }, groups: []int{g},
			})
		}
	}
	return list
}

func networkDemands(what string, n profile.Network, rtts []time.Duration, rates []profile.Rate, groups []int, of func(*profile.Profile) *profile.Network) (list []demand) {
	if n.Latency > 0 {
		// From no limit over the longest to the one asked for.
		limits := []time.Duration{0}
		for i := len(rtts) - 1; i >= 0 && rtts[i] > n.Latency; i-- {
			limits = append(limits, rtts[i])
		}
		limits = append(limits, n.Latency)
		list = append(list, demand{
			what: what + ": latency", asked: fmt.Sprintf("at most %v", n.Latency), offers: len(limits) - 1,
			set: func(p *profile.Profile, offer int) { of(p).Latency = limits[offer] }, text: measuredText(limits), groups: groups,
		})
	}
	if n.Bandwidth > 0 {
		limits := []profile.Rate{0}
		for _, r := range rates {
			if r < n.Bandwidth {
				limits = append(limits, r)
			}
		}
		limits = append(limits, n.Bandwidth)
		list = append(list, demand{
			what: what + ": bandwidth", asked: fmt.Sprintf("at least %v", n.Bandwidth), offers: len(limits) - 1,
			set: func(p *profile.Profile, offer int) { of(p).Bandwidth = limits[offer] }, text: measuredText(limits), groups: groups,
		})
	}
	return list
}

// measuredText returns a function that describes an offer of list, of which the first is no limit.
func measuredText[T fmt.Stringer](list []T) func(int) string {
	return func(offer int) string {
		if offer == 0 {
			return "not known, so that it cannot be shown to hold"
		}
		return list[offer].String()
	}
}

func similarDemand(p *profile.Profile, i int) demand {
	s := p.Similar[i]
	names := make([]string, len(s.Groups))
	for j, g := range s.Groups {
		names[j] = fmt.Sprintf("%q", p.Groups[g].Name)
	}
	// Whole percents, from anything to what was asked.
	steps := int(math.Ceil(100 - float64(s.Within)))
	value := func(offer int) profile.Percent { return max(s.Within, profile.Percent(100-offer)) }
	return demand{
		what: strings.Join(names, ", ") + ": power", asked: fmt.Sprintf("at most %v apart", s.Within), offers: max(1, steps),
		set:  func(p *profile.Profile, offer int) { p.Similar[i].Within = value(offer) },
		text: func(offer int) string { return value(offer).String() + " apart" }, groups: s.Groups,
	}
}

// memories lists what hosts can give to each of some processes, below what was asked, ascending
// from nothing to what was asked.
func (o *Offer) memories(asked profile.Bytes) []profile.Bytes {
	list := []profile.Bytes{0, asked}
	for _, h := range o.hosts {
		for n := 1; n <= min(h.Processes, h.Cores, 256); n++ {
			if share := h.Memory / profile.Bytes(n); share < asked {
				list = append(list, share)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (o *Offer) speeds(asked profile.Frequency) []profile.Frequency {
	list := []profile.Frequency{0, asked}
	for _, h := range o.hosts {
		if h.Speed < asked {
			list = append(list, h.Speed)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// measured lists all measured round trips and bandwidths, ascending.
func (o *Offer) measured() (rtts []time.Duration, rates []profile.Rate) {
	note := func(l Link) {
		if l.RTT > 0 {
			rtts = append(rtts, l.RTT)
		}
		if l.Bandwidth > 0 {
			rates = append(rates, l.Bandwidth)
		}
	}
	for _, l := range o.sites {
		note(l)
	}
	for _, l := range o.pairs {
		note(l)
	}
	slices.Sort(rtts)
	slices.Sort(rates)
	return slices.Compact(rtts), slices.Compact(rates)
}

func (o *Offer) siteCount() int {
	seen := map[overlay.SiteID]bool{}
	for _, h := range o.hosts {
		seen[h.Node.Site] = true
	}
	return len(seen)
}

// An explainer searches for offers. All its searches share one budget of steps.
type explainer struct {
	o      *Offer
	effort int // steps left
	each   int // steps for one search
	unsure bool
}

// explain returns why there is no match. It takes up to 10 times the steps of the search that found
// none.
func explain(p *profile.Profile, o *Offer, effort int) *Infeasible {
	e := &explainer{o: o, effort: 10 * effort, each: effort}
	list := demands(p, o)
	why := &Infeasible{}
	for _, d := range list {
		if s := e.shortfall(p, d); s != nil {
			why.Either = append(why.Either, *s)
		}
	}
	if len(why.Either) == 0 {
		why.All = e.raiseInTurn(p, list)
	}
	why.Unsure = e.unsure
	return why
}

// shortfall returns the best offer for one demand with all else as p says, or nil if dropping the
// demand does not suffice, or only with an empty group.
func (e *explainer) shortfall(p *profile.Profile, d demand) *Shortfall {
	q := copied(p)
	d.set(q, 0)
	if e.match(q) == nil {
		return nil
	}
	s, offer := e.nearest(q, d)
	if d.counts && offer == 0 {
		return nil
	}
	return &s
}

// raiseInTurn starts from a profile that asks for nothing, and raises one demand after the other as
// far as possible.
func (e *explainer) raiseInTurn(p *profile.Profile, list []demand) (all []Shortfall) {
	q := copied(p)
	for _, d := range list {
		d.set(q, 0)
	}
	for _, d := range list {
		if d.set(q, d.offers); e.match(q) == nil {
			s, _ := e.nearest(q, d)
			all = append(all, s)
		}
	}
	return all
}

// nearest sets q to the best offer for d, which can be met at 0 and cannot as asked.
func (e *explainer) nearest(q *profile.Profile, d demand) (s Shortfall, offer int) {
	low, high := 0, d.offers
	for high-low > 1 {
		middle := (low + high) / 2
		if d.set(q, middle); e.match(q) != nil {
			low = middle
		} else {
			high = middle
		}
	}
	d.set(q, low)
	return Shortfall{What: d.what, Asked: d.asked, Best: d.text(low) + e.places(q, d, e.match(q))}, low
}

// match returns counts for q, or nil.
func (e *explainer) match(q *profile.Profile) [][]int {
	pr := newProblem(q, e.o, min(e.each, e.effort))
	counts, v := pr.solve()
	e.effort = max(0, e.effort-pr.steps)
	e.unsure = e.unsure || v == gaveUp
	return counts
}

// places describes where the groups of a demand would be.
func (e *explainer) places(q *profile.Profile, d demand, counts [][]int) string {
	var texts []string
	for _, g := range d.groups {
		if counts == nil || q.Groups[g].Processes == 0 {
			continue
		}
		var sites []string
		for h, n := range counts[g] {
			if n > 0 {
				sites = append(sites, string(e.o.hosts[h].Node.Site))
			}
		}
		slices.SortFunc(sites, cmp.Compare)
		texts = append(texts, fmt.Sprintf("%s at %s", q.Groups[g].Name, strings.Join(slices.Compact(sites), " and ")))
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// copied returns a copy of a profile whose requirements can be changed.
func copied(p *profile.Profile) *profile.Profile {
	q := *p
	q.Groups, q.Between, q.Similar = slices.Clone(p.Groups), slices.Clone(p.Between), slices.Clone(p.Similar)
	return &q
}
