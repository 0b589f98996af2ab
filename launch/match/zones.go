package match

import (
	"cmp"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/launch/profile"
)

// A quality is how good a link is, as far as the limits of a profile can tell: how many latency
// limits are too strict for the link, and how many bandwidth limits it keeps.
type quality struct{ tooStrict, kept int }

// scale has the limits of a profile, ascending.
type scale struct {
	latencies  []time.Duration
	bandwidths []profile.Rate
}

func scaleOf(p *profile.Profile) (s scale) {
	note := func(n profile.Network) {
		if n.Latency > 0 {
			s.latencies = append(s.latencies, n.Latency)
		}
		if n.Bandwidth > 0 {
			s.bandwidths = append(s.bandwidths, n.Bandwidth)
		}
	}
	for i := range p.Groups {
		note(p.Groups[i].Inside)
	}
	for _, b := range p.Between {
		note(b.Network)
	}
	slices.Sort(s.latencies)
	slices.Sort(s.bandwidths)
	s.latencies, s.bandwidths = slices.Compact(s.latencies), slices.Compact(s.bandwidths)
	return s
}

func (s *scale) grade(l Link) (q quality) {
	q.tooStrict = len(s.latencies)
	if l.RTT > 0 {
		q.tooStrict, _ = slices.BinarySearch(s.latencies, l.RTT)
	}
	q.kept, _ = slices.BinarySearch(s.bandwidths, l.Bandwidth+1)
	return q
}

// least returns the worst quality that keeps the limits of n.
func (s *scale) least(n profile.Network) (q quality) {
	q.tooStrict = len(s.latencies)
	if n.Latency > 0 {
		q.tooStrict, _ = slices.BinarySearch(s.latencies, n.Latency)
	}
	if n.Bandwidth > 0 {
		at, _ := slices.BinarySearch(s.bandwidths, n.Bandwidth)
		q.kept = at + 1
	}
	return q
}

func (q quality) keeps(least quality) bool {
	return q.tooStrict <= least.tooStrict && q.kept >= least.kept
}

// A zone is hosts of one site that have the same quality to any host elsewhere, and keep every
// limit among each other; or one host. So any processes within a zone keep the limits of the
// network, and for all else one host of it can represent the others.
type zone struct {
	hosts   []int // indices into the offer, by name
	classes []int // of the problem
}

// A class is the hosts of a zone that have one speed.
type class struct {
	zone  int
	speed profile.Frequency
	hosts []int
}

// split divides the hosts that offer room into zones.
func (o *Offer) split(s *scale) (zones []zone) {
	order := make([]int, 0, len(o.hosts))
	for h := range o.hosts {
		if o.hosts[h].Processes > 0 && o.hosts[h].Cores > 0 {
			order = append(order, h)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := o.hosts[a].Node, o.hosts[b].Node
		return cmp.Or(cmp.Compare(x.Site, y.Site), cmp.Compare(x.Name, y.Name))
	})
	best := quality{0, len(s.bandwidths)}
	for _, h := range order {
		reported := o.reported[o.hosts[h].Node.Site]
		at := slices.IndexFunc(zones, func(z zone) bool {
			first := z.hosts[0]
			if o.hosts[first].Node.Site != o.hosts[h].Node.Site || s.grade(o.link(first, h)) != best {
				return false
			}
			return !reported || !slices.ContainsFunc(order, func(x int) bool {
				return x != h && x != first && s.grade(o.link(first, x)) != s.grade(o.link(h, x))
			})
		})
		if at < 0 {
			at, zones = len(zones), append(zones, zone{})
		}
		zones[at].hosts = append(zones[at].hosts, h)
	}
	return zones
}
