package allocate

import (
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/launch/mapping"
	"github.com/isthmus-grid/isthmus/overlay"
)

// GraphStrategies lists the further names that ByName accepts, of strategies for jobs with a graph.
var GraphStrategies = []string{"none", "sma", "fec", "aiacqm"}

// The parameters of the paper's experiments: f of AIAC-QM, delta of F-EC.
const (
	defaultSearch = .5
	defaultDelta  = .5
)

// unmeasuredPower is the power of hosts if that of none is known.
const unmeasuredPower = 1

// Mapped places a job by its graph, one rank on a host, with an algorithm of package mapping. The hosts of
// a site are a cluster, and sites are in the order of their names. The latency between two sites is the time of a
// message between the nearest hosts of both, and the two nearest stand for their site.
type Mapped struct {
	Algorithm string  // a name of GraphStrategies, or auto
	Network   Network // nil: no measurements
	Seed      uint64  // equal seeds give equal placements
}

// Name implements Strategy.
func (m Mapped) Name() string { return m.Algorithm }

// Settled implements Strategy: the first hosts are enough for none.
func (m Mapped) Settled(d Demand) bool { return m.Algorithm == "none" && len(d.Hosts) >= d.Processes }

// Place implements Strategy: the order of the shares is that of the ranks.
func (m Mapped) Place(d Demand) ([]Share, error) {
	if d.Job.Graph == nil {
		return nil, fmt.Errorf("the job has no graph; give one with --graph, or use one of %q", Strategies)
	}
	p := mapping.Problem{Graph: d.Job.Graph, Nodes: architecture(d.Hosts, d.Job.Message, m.Network)}
	if err := p.Check(); err != nil {
		return nil, err
	}
	var nodes mapping.Map
	switch m.Algorithm {
	case "none":
		nodes = mapping.InOrder(p)
	case "sma":
		nodes = mapping.Simple(p)
	case "fec":
		nodes = mapping.EdgeCut(p, defaultDelta)
	case "aiacqm":
		nodes = mapping.QuickMap(p, mapping.QuickMapOptions{Search: defaultSearch, Seed: m.Seed})
	default:
		nodes = mapping.Search(p, m.Seed)
	}
	all := make([]Share, len(nodes))
	for rank, host := range nodes {
		all[rank] = Share{host, 1}
	}
	return all, nil
}

// architecture returns the hosts as nodes, the sites as clusters.
func architecture(hosts []Host, message int, network Network) *mapping.Architecture {
	members := map[overlay.SiteID][]Host{}
	var sites []overlay.SiteID
	for _, h := range hosts {
		site := h.Node.Site
		if members[site] == nil {
			sites = append(sites, site)
		}
		members[site] = append(members[site], h)
	}
	slices.Sort(sites)
	a := &mapping.Architecture{Latency: make([][]float64, len(sites))}
	number := map[overlay.SiteID]int{}
	for i, from := range sites {
		number[from] = i
		a.Latency[i] = make([]float64, len(sites))
		for j, to := range sites[:i+1] {
			x, y := members[from][0], members[to][0]
			if i == j && len(members[to]) > 1 {
				y = members[to][1]
			}
			// The way back may differ; the model has one figure.
			l := (messageTime(network, message, x, y) + messageTime(network, message, y, x)) / 2
			a.Latency[i][j], a.Latency[j][i] = l, l
		}
	}
	unknown := usualPower(hosts)
	for _, h := range hosts {
		power := h.Power
		if power <= 0 {
			power = unknown
		}
		a.Power, a.Cluster = append(a.Power, power), append(a.Cluster, number[h.Node.Site])
	}
	return a
}

// usualPower returns the median of the known powers, for hosts of which it is not known.
func usualPower(hosts []Host) float64 {
	var known []float64
	for _, h := range hosts {
		if h.Power > 0 {
			known = append(known, h.Power)
		}
	}
	if len(known) == 0 {
		return unmeasuredPower
	}
	slices.Sort(known)
	return known[len(known)/2]
}

// GraphCost is what a plan costs by the job's graph.
type GraphCost struct {
	Iteration float64 `json:"iteration_s"` // of the slowest task: ET(App) of package mapping
	Cut       float64 `json:"cut"`         // weight of the edges between sites
	Weight    float64 `json:"weight"`      // weight of all edges
}

// GraphCost returns the cost of a plan of a job with a graph.
func (p *Plan) GraphCost(network Network) GraphCost {
	hosts := make([]Host, p.Job.Ranks) // of each rank
	for _, h := range p.Hosts {
		for _, q := range h.Processes {
			hosts[q.Rank] = h.Host
		}
	}
	problem := mapping.Problem{Graph: p.Job.Graph, Nodes: architecture(hosts, p.Job.Message, network)}
	m := mapping.InOrder(problem)
	cost := GraphCost{Iteration: problem.Time(m), Cut: problem.Cut(m)}
	for _, edges := range p.Job.Graph.Edges {
		for _, e := range edges {
			cost.Weight += e.Weight / 2
		}
	}
	return cost
}
