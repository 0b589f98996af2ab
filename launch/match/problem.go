package match

import (
	"cmp"
	"slices"

	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A problem is a profile and an offer, prepared for the search.
type problem struct {
	p       *profile.Profile
	o       *Offer
	zones   []zone
	sites   []overlay.SiteID // of each zone
	classes []class
	between [][]quality // zone, zone
	inside  []quality   // group: the worst that is sufficient
	links   [][]limit   // group: its limits on links to others
	solo    [][]int     // group, class: how many of its processes fit, if it is alone
	soloIn  [][]int     // group, zone: the same for the zone's classes together
	twins   []int       // zone: zones with the same number are interchangeable

	steps, effort int // taken, allowed
}

// A limit is a group's limit on its links to another group.
type limit struct {
	group int
	least quality
}

func newProblem(p *profile.Profile, o *Offer, effort int) *problem {
	s := scaleOf(p)
	pr := &problem{p: p, o: o, zones: o.split(&s), effort: effort}
	pr.between = make([][]quality, len(pr.zones))
	for z := range pr.zones {
		pr.sites = append(pr.sites, o.hosts[pr.zones[z].hosts[0]].Node.Site)
		pr.between[z] = make([]quality, len(pr.zones))
		for y := range pr.zones {
			if y != z {
				pr.between[z][y] = s.grade(o.link(pr.zones[z].hosts[0], pr.zones[y].hosts[0]))
			}
		}
		pr.classify(z)
	}
	pr.links = make([][]limit, len(p.Groups))
	for i := range p.Groups {
		pr.inside = append(pr.inside, s.least(p.Groups[i].Inside))
	}
	for _, b := range p.Between {
		q := s.least(b.Network)
		pr.links[b.A] = append(pr.links[b.A], limit{b.B, q})
		pr.links[b.B] = append(pr.links[b.B], limit{b.A, q})
	}
	pr.count()
	pr.findTwins()
	return pr
}

// classify makes the classes of a zone, the fastest first.
func (pr *problem) classify(z int) {
	var speeds []profile.Frequency
	for _, h := range pr.zones[z].hosts {
		speeds = append(speeds, pr.o.hosts[h].Speed)
	}
	slices.SortFunc(speeds, func(a, b profile.Frequency) int { return cmp.Compare(b, a) })
	for _, speed := range slices.Compact(speeds) {
		c := class{zone: z, speed: speed}
		for _, h := range pr.zones[z].hosts {
			if pr.o.hosts[h].Speed == speed {
				c.hosts = append(c.hosts, h)
			}
		}
		pr.zones[z].classes = append(pr.zones[z].classes, len(pr.classes))
		pr.classes = append(pr.classes, c)
	}
}

// count fills solo and soloIn.
func (pr *problem) count() {
	for g := range pr.p.Groups {
		need := &pr.p.Groups[g]
		measured := slices.ContainsFunc(pr.p.Similar, func(s profile.Similar) bool { return slices.Contains(s.Groups, g) })
		solo, in := make([]int, len(pr.classes)), make([]int, len(pr.zones))
		for c := range pr.classes {
			speed := pr.classes[c].speed
			if speed < need.Speed || measured && speed == 0 {
				continue
			}
			for _, h := range pr.classes[c].hosts {
				solo[c] += roomOf(&pr.o.hosts[h]).fits(need)
			}
			in[pr.classes[c].zone] += solo[c]
		}
		pr.solo, pr.soloIn = append(pr.solo, solo), append(pr.soloIn, in)
	}
}

// findTwins gives the same number to zones that differ only in names, so that the search need not
// try one where the other failed.
func (pr *problem) findTwins() {
	pr.twins = make([]int, len(pr.zones))
	for z := range pr.zones {
		pr.twins[z] = z
		for y := range z {
			if pr.twins[y] == y && pr.interchangeable(y, z) {
				pr.twins[z] = y
				break
			}
		}
	}
}

func (pr *problem) interchangeable(y, z int) bool {
	a, b := &pr.zones[y], &pr.zones[z]
	// Zones of different sites count differently where a group may use few sites.
	if pr.sites[y] != pr.sites[z] || len(a.hosts) != 1 || len(b.hosts) != 1 {
		return false
	}
	x, w := pr.o.hosts[a.hosts[0]], pr.o.hosts[b.hosts[0]]
	if x.Processes != w.Processes || x.Cores != w.Cores || x.Speed != w.Speed || x.Memory != w.Memory {
		return false
	}
	for o := range pr.zones {
		if o != y && o != z && pr.between[y][o] != pr.between[z][o] {
			return false
		}
	}
	return true
}

// room is the free capacity of a host.
type room struct {
	processes, cores int
	memory           profile.Bytes
}

func roomOf(h *Host) room { return room{h.Processes, h.Cores, h.Memory} }

// fits returns how many processes of a group fit into r.
func (r room) fits(g *profile.Group) int {
	n := min(r.processes, r.cores/g.Cores)
	if g.Memory > 0 {
		n = min(n, int(r.memory/g.Memory))
	}
	return n
}

// remove returns r with n processes of a group taken.
func (r room) remove(g *profile.Group, n int) room {
	return room{r.processes - n, r.cores - n*g.Cores, r.memory - profile.Bytes(n)*g.Memory}
}

// outOfEffort counts a step, and reports whether none is left.
func (pr *problem) outOfEffort() bool {
	pr.steps++
	return pr.steps > pr.effort
}
