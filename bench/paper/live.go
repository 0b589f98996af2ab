package paper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/apps"
	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
	"github.com/isthmus-grid/isthmus/launch/mapping"
)

// The nodes on which mapped tasks run here: fewer than the article's, each core so small a part of one that two
// processors stand for all, and a system so many times smaller, whose band is the same part of it.
const (
	coreShare  = .025
	liveScale  = 25
	liveBand   = 35_000 / liveScale
	liveFactor = "0.1" // how dominant the system is
)

var liveTestbed = mapping.Testbed{Name: "live", Clusters: [][2]int{{5, 2}, {4, 2}, {4, 4}, {4, 4}, {3, 8}}, Tasks: 16, Rows: 550_000}

// liveMappers are those of tables 2 to 5; gains are all of theirs.
var liveMappers = []mapper{{name: "none", of: none}, {name: "SMa", of: sma}, {name: "AIAC-QM", of: aiacqm(.5)}, {name: "F-EC", of: fec(.5)}}

// liveProblem returns the tasks and nodes in an order that the seed shuffles, and distances that it does not, since
// one lab has all orders.
func liveProblem(seed uint64) mapping.Problem {
	p := liveTestbed.Problem(seed)
	p.Nodes.Latency = liveTestbed.Problem(0).Nodes.Latency
	return p
}

// liveSites returns the lab.
func liveSites() (spec lab.Spec) {
	latency := liveProblem(0).Nodes.Latency
	for c, cluster := range liveTestbed.Clusters {
		name := fmt.Sprintf("s%d", c+1)
		spec.Sites = append(spec.Sites, lab.Site{Name: name, Preset: "open", Nodes: lab.Nodes(cluster[0]), CPU: []float64{float64(cluster[1]) * coreShare}})
		for d := range c {
			spec.WAN.Pairs = append(spec.WAN.Pairs, lab.Between(name, spec.Sites[d].Name, time.Duration(2e9*latency[c][d])))
		}
	}
	return spec
}

// hostsOf returns the lab's node of each task. Nodes of a cluster are alike.
func hostsOf(p mapping.Problem, m mapping.Map) (hosts []string) {
	names, taken := make([]string, len(p.Nodes.Cluster)), make([]int, len(liveTestbed.Clusters))
	for node, c := range p.Nodes.Cluster {
		taken[c]++
		names[node] = fmt.Sprintf("s%d/n%d", c+1, taken[c])
	}
	for _, node := range m {
		hosts = append(hosts, names[node])
	}
	return hosts
}

// live is tables 2 to 5 with real processes.
func (o Options) live(ctx context.Context) (m measured, err error) {
	g, down, err := gridjob.Up(ctx, liveSites(), o.Self)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, down()) }()
	ratios := make([][]float64, len(liveMappers)) // to the time without a mapping
	for seed := range uint64(o.Repeat) {
		p := liveProblem(seed)
		var without float64
		for i, mapper := range liveMappers {
			fmt.Fprintf(o.Err, "bench paper: multisplit by %s, order %d\n", mapper.name, seed)
			seconds, err := o.mappedRun(ctx, g, hostsOf(p, mapper.of(p, seed)))
			if err != nil {
				return m, fmt.Errorf("%s: %w", mapper.name, err)
			}
			if i == 0 {
				without = seconds
			}
			ratios[i] = append(ratios[i], seconds/without)
		}
	}
	m.figures = liveGains(ratios)
	return m, nil
}

// mappedRun returns how long the tasks take on hosts, once their links are there.
func (o Options) mappedRun(ctx context.Context, g *grid.Grid, hosts []string) (float64, error) {
	results, err := apps.Example[split.Result](ctx, apps.Bed{Self: o.Self}, g, hosts, "multisplit", "--mode", "async", "--rows", fmt.Sprint(liveTestbed.Rows/liveScale),
		"--band", fmt.Sprint(liveBand), "--shift", liveFactor, "--repeat", "2")
	if err != nil {
		return 0, err
	}
	if len(results) != 2 {
		return 0, fmt.Errorf("%d runs, want 2", len(results))
	}
	return results[1].Seconds, nil
}

// liveGains returns what each mapping gains over none, in per cent: the median of all orders.
func liveGains(ratios [][]float64) figures {
	of := figures{}
	for i, mapper := range liveMappers[1:] {
		of[mapper.name] = 100 * (1 - bench.Median(ratios[1+i]))
	}
	return of
}
