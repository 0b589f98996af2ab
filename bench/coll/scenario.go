package coll

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/bound"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// A scenario is the places of ranks and the network between them.
type scenario struct {
	name         string
	sites, nodes int // hosts of each site
	ranks        int // of each site
	rtt          time.Duration
	rate         int64 // bit/s; 0: no limit
	order        string
}

// localRanks is the number of ranks of the scenarios within one site.
const localRanks = 4

// scenarios returns the requested scenarios. The standard ones are 2 and 4 sites, 8 and 20 ms,
// 136 Mbit/s and 1 Gbit/s, each with both orders; two sites without delay at 100 Mbit/s; and
// those within one site.
func (o Options) scenarios() []scenario {
	if len(o.Sites) == 0 && len(o.RTT) == 0 && len(o.Rate) == 0 && !o.Local {
		all := o.with([]int{2, 4}, []time.Duration{8 * time.Millisecond, 20 * time.Millisecond}, []int64{136e6, 1e9})
		all = append(all, o.with([]int{2}, []time.Duration{0}, []int64{100e6})...)
		return append(all, localScenarios()...)
	}
	var all []scenario
	if !o.Local || len(o.Sites) > 0 || len(o.RTT) > 0 || len(o.Rate) > 0 {
		all = o.with(orElse(o.Sites, 2, 4), orElse(o.RTT, 8*time.Millisecond, 20*time.Millisecond), orElse(o.Rate, 136e6, 1e9))
	}
	if o.Local {
		all = append(all, localScenarios()...)
	}
	return all
}

func orElse[T any](list []T, otherwise ...T) []T {
	if len(list) == 0 {
		return otherwise
	}
	return list
}

func localScenarios() []scenario {
	return []scenario{
		{name: "node", sites: 1, nodes: 1, ranks: localRanks, order: blocked},
		{name: "site", sites: 1, nodes: 2, ranks: localRanks, order: blocked},
	}
}

// with returns all combinations. Those that differ only in the order of the ranks are adjacent, so
// that they can share a lab.
func (o Options) with(sites []int, rtts []time.Duration, rates []int64) (all []scenario) {
	for _, n := range sites {
		for _, rtt := range rtts {
			for _, rate := range rates {
				for _, order := range orElse(o.Orders, Orders()...) {
					s := scenario{sites: n, nodes: o.Nodes, ranks: o.Ranks, rtt: rtt, rate: rate, order: order}
					s.name = fmt.Sprintf("%dx%d/%v/%s/%s", n, o.Ranks, rtt, rateName(rate), order)
					if o.Nodes > 1 {
						s.name = fmt.Sprintf("%dx%dx%d/%v/%s/%s", n, o.Nodes, o.Ranks/o.Nodes, rtt, rateName(rate), order)
					}
					all = append(all, s)
				}
			}
		}
	}
	return all
}

func rateName(rate int64) string {
	switch {
	case rate == 0:
		return "unlimited"
	case rate%1e9 == 0:
		return fmt.Sprintf("%dgbit", rate/1e9)
	case rate%1e6 == 0:
		return fmt.Sprintf("%dmbit", rate/1e6)
	}
	return fmt.Sprintf("%dbit", rate)
}

// far reports whether there are several sites, so that there is a bound.
func (s *scenario) far() bool { return s.sites > 1 }

// oneNode reports whether all ranks are on one host.
func (s *scenario) oneNode() bool { return s.sites*s.nodes == 1 }

// sameLab reports whether both scenarios can run in one lab.
func (s *scenario) sameLab(t *scenario) bool {
	other := *t
	other.name, other.order = s.name, s.order
	return *s == other
}

// site returns the number of a rank's site, from 0.
func (s *scenario) site(rank int) int {
	if s.order == roundRobin {
		return rank % s.sites
	}
	return rank / s.ranks
}

// place returns the node of a rank, "site/host".
func (s *scenario) place(rank int) string {
	within := rank % s.ranks
	if s.order == roundRobin {
		within = rank / s.sites
	}
	return fmt.Sprintf("%s/n%d", siteName(s.site(rank)), 1+within*s.nodes/s.ranks)
}

func siteName(i int) string { return fmt.Sprintf("s%d", i+1) }

// places returns the nodes of all ranks.
func (s *scenario) places() []string {
	all := make([]string, s.sites*s.ranks)
	for r := range all {
		all[r] = s.place(r)
	}
	return all
}

// bound returns the minimum duration of a call, or 0 if none is known.
func (s *scenario) bound(collective operation.Operation, size int) (time.Duration, error) {
	return bound.Of(collective, bound.Grid{Sites: s.sites, Ranks: s.ranks, Latency: s.rtt / 2, Rate: float64(s.rate) / 8, Dealt: s.order == roundRobin}, size)
}

// burst returns a link's burst, half a millisecond of its rate: small, since bytes within it are
// not limited, and large enough for the timer that refills the bucket.
func (s *scenario) burst() int64 { return max(s.rate/8/2000, 16<<10) }

// spec returns the scenario's lab.
func (s *scenario) spec() lab.Spec {
	spec := lab.Spec{WAN: lab.WAN{Default: wan.Shape{Delay: s.rtt / 2}}}
	for i := range s.sites {
		site := lab.Site{Name: siteName(i), Preset: "open", Nodes: lab.Nodes(s.nodes), Uplink: s.rate}
		if s.rate > 0 {
			site.Burst = s.burst()
		}
		spec.Sites = append(spec.Sites, site)
	}
	return spec
}

// A variant is the algorithms that our implementation is forced to use for some collectives; it
// chooses for the others.
type variant struct {
	flits  int // 0: not forced
	forced map[operation.Operation]string
}

// environment returns the variables for the ranks' environment, which package mpilib reads.
func (v variant) environment() []string {
	if len(v.forced) == 0 {
		return nil
	}
	var words []string
	for collective, algorithm := range v.forced {
		words = append(words, collective.String()+"="+v.algorithm(algorithm))
	}
	slices.Sort(words)
	return []string{envForce + "=" + strings.Join(words, ",")}
}

// envForce is the environment variable that forces algorithms.
const envForce = "ISTHMUS_COLL"

func (v variant) algorithm(name string) string {
	if v.flits > 0 {
		return fmt.Sprintf("%s:%d", name, v.flits)
	}
	return name
}
