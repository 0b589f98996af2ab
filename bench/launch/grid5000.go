package launch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/overlay"
)

// cluster is a row of Table 1 of the P2P-MPI co-allocation paper (Genaud and
// Rattanapoka), with its site's round trip from nancy (section 5).
type cluster struct {
	site, name  string
	rtt         time.Duration // 0 for nancy
	hosts, hasP int           // cores, each for one process
}

var clusters = []cluster{
	{"nancy", "grelon", 0, 60, 4},
	{"lyon", "capricorn", 10500 * time.Microsecond, 50, 2},
	{"rennes", "paravent", 11600 * time.Microsecond, 90, 2},
	{"bordeaux", "bordereau", 12600 * time.Microsecond, 60, 4},
	{"grenoble", "idcalc", 13200 * time.Microsecond, 12, 4},
	{"grenoble", "idpot", 13200 * time.Microsecond, 8, 2},
	{"sophia", "azur", 17100 * time.Microsecond, 32, 2},
	{"sophia", "sol", 17100 * time.Microsecond, 38, 4},
}

// between is the round trip between two sites other than nancy. It does not affect the result.
const between = 15 * time.Millisecond

// sites returns the sites in the order of their distance.
func sites() (names []string) {
	for _, c := range clusters {
		names = append(names, c.site)
	}
	return slices.Compact(names)
}

// Hosts returns all hosts with the distances that exact pings would measure, scaled down to one of
// scale hosts of each cluster.
func Hosts(scale int) (all []allocate.Host) {
	for _, c := range clusters {
		for i := range c.count(scale) {
			all = append(all, allocate.Host{
				Node: c.node(i), Latency: cmp.Or(c.rtt, 100*time.Microsecond), Processes: c.hasP, Jobs: 1,
			})
		}
	}
	return all
}

func (c cluster) count(scale int) int { return (c.hosts + scale - 1) / scale }

func (c cluster) node(i int) overlay.NodeID {
	return overlay.NodeID{Site: overlay.SiteID(c.site), Name: fmt.Sprintf("%s-%02d", c.name, i+1)}
}

// spec returns the lab: one host per site, on which all of its peers run.
func spec() lab.Spec {
	s := lab.Spec{WAN: WAN(sites()...)}
	for _, site := range sites() {
		s.Sites = append(s.Sites, lab.Site{Name: site, Preset: "open", Nodes: []string{"peers"}})
	}
	return s
}

// WAN returns the distances between some of the sites.
func WAN(sites ...string) (w lab.WAN) {
	w.Default = wan.Shape{Delay: between / 2}
	for _, c := range clusters {
		if c.rtt > 0 && slices.Contains(sites, c.site) {
			w.Pairs = append(w.Pairs, lab.Between("nancy", c.site, c.rtt))
		}
	}
	return w
}

// peers returns the nodes on each host of the lab, and the settings of each cluster's helpers.
func peers(scale int) (nodes map[string][]string, settings map[string]map[string]any) {
	nodes, settings = map[string][]string{}, map[string]map[string]any{}
	for _, c := range clusters {
		at := c.site + "/peers"
		for i := range c.count(scale) {
			n := c.node(i)
			nodes[at] = append(nodes[at], n.Name)
			settings["helper "+n.Key()] = map[string]any{"offer": map[string]any{"jobs": 1, "processes": c.hasP}}
		}
	}
	return nodes, settings
}

// capacity returns the number of processes that all hosts can run together.
func capacity(scale int) (n int) {
	for _, h := range Hosts(scale) {
		n += h.Processes
	}
	return n
}

// share is the part of a job at one site.
type share struct{ hosts, processes int }

// expected returns the share of each site by the paper's algorithms.
func expected(scale, n, copies int, strategy string) (map[string]share, error) {
	s, err := allocate.ByName(strategy, nil)
	if err != nil {
		return nil, err
	}
	plan, err := allocate.Allocate(allocate.Job{Ranks: n, Copies: copies}, Hosts(scale), s)
	if err != nil {
		return nil, err
	}
	want := map[string]share{}
	for _, p := range plan.Used() {
		at := want[string(p.Node.Site)]
		want[string(p.Node.Site)] = share{at.hosts + 1, at.processes + len(p.Processes)}
	}
	return want, nil
}
