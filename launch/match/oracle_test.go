package match

import (
	"math/rand/v2"
	"time"

	"fmt"

	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// holds returns what is wrong with counts as an answer to a profile, by the definition of the
// profile alone; "" if nothing is.
func holds(p *profile.Profile, o *Offer, counts [][]int) string {
	for g, group := range p.Groups {
		sum, sites := 0, map[overlay.SiteID]bool{}
		for h, n := range counts[g] {
			sum += n
			if n > 0 {
				sites[o.hosts[h].Node.Site] = true
				if o.hosts[h].Speed < group.Speed {
					return "slow host"
				}
			}
		}
		if sum != group.Processes {
			return "wrong number of processes"
		}
		if group.Sites > 0 && len(sites) > group.Sites {
			return "too many sites"
		}
	}
	if bad := overfull(p, o, counts); bad != "" {
		return bad
	}
	for g := range p.Groups {
		if !linked(o, p.Groups[g].Inside, counts[g], counts[g]) {
			return "inside"
		}
	}
	for _, b := range p.Between {
		if !linked(o, b.Network, counts[b.A], counts[b.B]) {
			return "between"
		}
	}
	return unequal(p, o, counts)
}

func overfull(p *profile.Profile, o *Offer, counts [][]int) string {
	for h, host := range o.hosts {
		var processes, cores, memory int
		for g, group := range p.Groups[:len(counts)] {
			n := counts[g][h]
			processes, cores, memory = processes+n, cores+n*group.Cores, memory+n*int(group.Memory)
		}
		if processes > host.Processes || cores > host.Cores || memory > int(host.Memory) {
			return "full host"
		}
	}
	return ""
}

func linked(o *Offer, n profile.Network, a, b []int) bool {
	for x := range a {
		for y := range b {
			if x == y || a[x] == 0 || b[y] == 0 {
				continue
			}
			l := o.link(x, y)
			if n.Latency > 0 && (l.RTT == 0 || l.RTT > n.Latency) || n.Bandwidth > 0 && l.Bandwidth < n.Bandwidth {
				return false
			}
		}
	}
	return true
}

func unequal(p *profile.Profile, o *Offer, counts [][]int) string {
	for _, s := range p.Similar {
		var powers []int
		for _, g := range s.Groups {
			power := 0
			for h, n := range counts[g] {
				if n > 0 && o.hosts[h].Speed == 0 {
					return "unknown speed"
				}
				power += n * p.Groups[g].Cores * int(o.hosts[h].Speed)
			}
			powers = append(powers, power)
		}
		for _, x := range powers {
			for _, y := range powers {
				if x > 0 && y > 0 && x*100 < y*(100-int(s.Within)) {
					return "unequal power"
				}
			}
		}
	}
	return ""
}

// brute tries all counts, and returns the first valid ones, or nil.
func brute(p *profile.Profile, o *Offer) [][]int {
	var counts [][]int
	var try func(h, left int) bool
	next := func() bool {
		counts = append(counts, make([]int, len(o.hosts)))
		defer func() { counts = counts[:len(counts)-1] }()
		return try(0, p.Groups[len(counts)-1].Processes)
	}
	var answer [][]int
	try = func(h, left int) bool {
		g := len(counts) - 1
		if h == len(o.hosts) {
			if left > 0 || overfull(p, o, counts) != "" || !linked(o, p.Groups[g].Inside, counts[g], counts[g]) {
				return false
			}
			if g+1 < len(p.Groups) {
				return next()
			}
			if holds(p, o, counts) != "" {
				return false
			}
			for _, c := range counts {
				answer = append(answer, append([]int(nil), c...))
			}
			return true
		}
		for n := 0; n <= left; n++ {
			counts[g][h] = n
			if try(h+1, left-n) {
				return true
			}
		}
		counts[g][h] = 0
		return false
	}
	next()
	return answer
}

// random makes a small profile and a small offer, about half of which match.
func random(rng *rand.Rand) (*profile.Profile, *Offer) {
	sites := 1 + rng.IntN(4)
	hosts := make([]Host, 1+rng.IntN(5))
	uniform := rng.IntN(3) == 0
	for h := range hosts {
		hosts[h] = Host{
			Node:      overlay.NodeID{Site: overlay.SiteID(fmt.Sprintf("s%d", rng.IntN(sites))), Name: fmt.Sprintf("h%d", h)},
			Processes: rng.IntN(5), Cores: 1 + rng.IntN(5), Speed: profile.Frequency(rng.IntN(4)), Memory: profile.Bytes(rng.IntN(8)) * (5 << 18),
		}
		if uniform {
			hosts[h].Processes, hosts[h].Cores, hosts[h].Speed, hosts[h].Memory = 2, 3, 2, 4*(5<<18)
		}
	}
	o, err := NewOffer(hosts)
	if err != nil {
		panic(err)
	}
	link := func() Link {
		return Link{RTT: time.Duration(rng.IntN(6)), Bandwidth: profile.Rate(rng.IntN(6))}
	}
	for range 2 * sites * sites {
		o.Sites(overlay.SiteID(fmt.Sprintf("s%d", rng.IntN(sites))), overlay.SiteID(fmt.Sprintf("s%d", rng.IntN(sites))), link())
	}
	for range rng.IntN(3) * rng.IntN(4) {
		o.Hosts(hosts[rng.IntN(len(hosts))].Node, hosts[rng.IntN(len(hosts))].Node, link())
	}
	return randomProfile(rng), o
}

func randomProfile(rng *rand.Rand) *profile.Profile {
	network := func() (n profile.Network) {
		if rng.IntN(2) == 0 {
			n.Latency = time.Duration(1 + rng.IntN(5))
		}
		if rng.IntN(3) == 0 {
			n.Bandwidth = profile.Rate(1 + rng.IntN(4))
		}
		return n
	}
	p := &profile.Profile{}
	uniform := rng.IntN(2) == 0
	for g := range 1 + rng.IntN(4) {
		group := profile.Group{
			Name: fmt.Sprintf("g%d", g), Processes: 1 + rng.IntN(3), Cores: 1 + rng.IntN(2), Sites: rng.IntN(3),
			Speed: profile.Frequency(rng.IntN(3) * rng.IntN(2)), Memory: profile.Bytes(rng.IntN(3)) * (5 << 18),
		}
		if uniform {
			group.Cores, group.Memory = 1, 5<<18
		}
		if rng.IntN(2) == 0 {
			group.Inside = network()
		}
		for b := range g {
			if n := network(); n.Limited() && rng.IntN(2) == 0 {
				p.Between = append(p.Between, profile.Between{A: b, B: g, Network: n})
			}
		}
		p.Groups = append(p.Groups, group)
	}
	if len(p.Groups) > 1 && rng.IntN(3) == 0 {
		p.Similar = []profile.Similar{{Groups: []int{0, 1}, Within: profile.Percent(rng.IntN(60))}}
	}
	return p
}
