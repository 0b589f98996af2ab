// Package randomnet is `isthmus-lab random`: it composes random networks from every kind of site,
// wide area path and fault that the lab has, one for each seed, and runs a whole grid there that
// measures its own firewalls, and a job that checks every byte of an all-to-all while the fault
// happens. A seed always gives the same network. The package judges; it does not decide or connect.
// Its state is one lab at a time.
package randomnet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// ranksPerSite is how many ranks of the job each site has.
const ranksPerSite = 4

// Network is one network, the job on it, and its fault.
type Network struct {
	Seed    uint64 `json:"seed"`
	Sites   []Site `json:"sites"`
	IPv6    bool   `json:"ipv6"`  // all sites have IPv6 beside IPv4 that are not behind a NAT
	Names   bool   `json:"names"` // the broker is reached by name, at all its addresses
	Proxies int    `json:"proxies"`
	Paths   []Path `json:"paths"`
	Max     int    `json:"max_message"` // bytes
	Fault   Fault  `json:"fault"`
}

// Site is one of the sites.
type Site struct {
	Name   string `json:"name"`
	Preset string `json:"preset"`
	Nodes  int    `json:"nodes"` // ranksPerSite are spread over them
}

// Path is the path between two sites, the same in both directions; if To is empty it is from a site
// to all others.
type Path struct {
	From  string        `json:"from"`
	To    string        `json:"to,omitempty"`
	Delay time.Duration `json:"delay"` // one way
	Loss  float64       `json:"loss"`
	Rate  int64         `json:"rate"` // bit/s; 0 is no limit

	Jitter  time.Duration `json:"jitter"`  // by so much the delay varies
	Reorder bool          `json:"reorder"` // packets overtake each other then
	Queue   int           `json:"queue"`   // bytes that may wait for the rate; 0 is a round trip's
}

// Fault is the fault that happens while the job runs.
type Fault struct {
	Kind  string        `json:"kind"`
	At    string        `json:"at"`             // a daemon, or a site
	With  string        `json:"with,omitempty"` // the other site
	After time.Duration `json:"after"`          // since all ranks have joined
	For   time.Duration `json:"for"`
}

// String describes the fault in a line.
func (f Fault) String() string {
	at := f.At
	if f.With != "" {
		at += " and " + f.With
	}
	return fmt.Sprintf("%s %s after %v for %v", f.Kind, at, f.After, f.For)
}

// String describes the network in a line.
func (n Network) String() string {
	var sites []string
	for _, s := range n.Sites {
		sites = append(sites, fmt.Sprintf("%s=%s", s.Name, s.Preset))
	}
	return fmt.Sprintf("seed %d: %s; %s", n.Seed, strings.Join(sites, " "), n.Fault)
}

// presets returns all kinds of site.
func presets() []string { return slices.Concat(lab.Presets(), lab.Unforeseen()) }

// Compose returns the network of a seed.
func Compose(seed uint64) Network {
	rng := rand.New(rand.NewPCG(seed, 18))
	n := Network{Seed: seed, Proxies: 1 + rng.IntN(2), Max: 16 << (2 * rng.IntN(7)), IPv6: rng.IntN(3) == 0, Names: rng.IntN(2) == 0}
	for i := range 2 + rng.IntN(5) {
		n.Sites = append(n.Sites, Site{
			Name: fmt.Sprintf("s%d", i+1), Preset: pick(rng, presets()), Nodes: 1 + rng.IntN(2),
		})
	}
	for i, from := range n.Sites {
		n.Paths = append(n.Paths, path(rng, from.Name, ""))
		for _, to := range n.Sites[:i] {
			if rng.IntN(2) == 0 {
				n.Paths = append(n.Paths, path(rng, from.Name, to.Name))
			}
		}
	}
	n.Fault = fault(rng, n)
	n.Names = n.Names || n.Fault.Kind == "names"
	return n
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func path(rng *rand.Rand, from, to string) Path {
	p := Path{
		From: from, To: to,
		Delay:  pick(rng, []time.Duration{0, 1, 5, 10, 25, 50, 100, 300, 700}) * time.Millisecond,
		Loss:   pick(rng, []float64{0, 0, 0, 0.001, 0.01}),
		Rate:   pick(rng, []int64{0, 0, 20_000_000, 100_000_000}),
		Jitter: pick(rng, []time.Duration{0, 0, 0, 5, 50}) * time.Millisecond,
	}
	p.Reorder = p.Jitter > 0 && rng.IntN(2) == 0
	p.Queue = int(p.Rate/8) * pick(rng, []int{0, 0, 2}) // seconds
	return p
}

// fault chooses the fault of a network whose sites and proxies are chosen.
func fault(rng *rand.Rand, n Network) Fault {
	f := Fault{
		Kind:  pick(rng, faultKinds()),
		After: time.Duration(rng.IntN(4000)) * time.Millisecond,
		For:   time.Duration(500+rng.IntN(3500)) * time.Millisecond,
	}
	site := rng.IntN(len(n.Sites))
	switch f.Kind {
	case "kill", "freeze":
		f.At = pick(rng, n.daemons(site))
	case "cut":
		f.At = n.Sites[site].Name
		f.With = n.Sites[(site+1+rng.IntN(len(n.Sites)-1))%len(n.Sites)].Name
	case "names":
		f.At = "public"
	default:
		f.At = n.Sites[site].Name
	}
	return f
}

// daemons returns those that may fail: a broker, a proxy, or one of a site.
func (n Network) daemons(site int) []string {
	s := n.Sites[site]
	all := []string{"broker", "frontal " + s.Name, "helper " + s.Name + "/n1"}
	for i := range n.Proxies {
		all = append(all, fmt.Sprintf("proxy p%d", i+1))
	}
	return all
}

// spec returns the lab of the network.
func (n Network) spec() lab.Spec {
	public := lab.Site{Name: "public", Preset: lab.Public, Nodes: []string{"broker"}}
	for i := range n.Proxies {
		public.Nodes = append(public.Nodes, fmt.Sprintf("p%d", i+1))
	}
	spec := lab.Spec{IPv6: n.IPv6, Sites: []lab.Site{public}, WAN: lab.WAN{Default: wan.Shape{Delay: 5 * time.Millisecond}}}
	for _, s := range n.Sites {
		spec.Sites = append(spec.Sites, lab.Site{Name: s.Name, Preset: s.Preset, Nodes: lab.Nodes(s.Nodes)})
	}
	for _, p := range n.Paths {
		to := []string{p.To}
		if p.To == "" {
			to = nil
			for _, s := range spec.Sites {
				if s.Name != p.From {
					to = append(to, s.Name)
				}
			}
		}
		for _, t := range to {
			spec.WAN.Pairs = append(spec.WAN.Pairs, lab.PairSpec{From: p.From, To: t, Both: true, Apply: func(s *wan.Shape) {
				s.Delay, s.Loss, s.Rate, s.Jitter, s.Reorder, s.Queue = p.Delay, p.Loss, p.Rate, p.Jitter, p.Reorder, p.Queue
			}})
		}
	}
	return spec
}

// nodes returns the node of each rank.
func (n Network) nodes() []string {
	var all []string
	for _, s := range n.Sites {
		for rank := range ranksPerSite {
			all = append(all, fmt.Sprintf("%s/n%d", s.Name, 1+rank*s.Nodes/ranksPerSite))
		}
	}
	return all
}
