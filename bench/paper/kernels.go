package paper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/apps"
	"github.com/isthmus-grid/isthmus/bench/launch"
	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
	"github.com/isthmus-grid/isthmus/launch/allocate"
)

// The article's 350 hosts and jobs of 64, 128 and 256 processes, all an eighth as large: the first fit on
// the hosts of nancy by either strategy, the others only if each host takes several.
const (
	kernelScale = 8
	fewRanks    = 8
	manyRanks   = 16
	mostRanks   = 32
)

var kernelRanks = []int{fewRanks, manyRanks, mostRanks}

// The strategies, and the kernels with classes that take about a second here.
var (
	strategies = []string{"concentrate", "spread"}
	kernels    = map[string]string{"is": "W", "ep": "W"}
)

// placed returns the hosts of ranks by a strategy, "site/host".
func placed(n int, strategy string) (nodes []string, err error) {
	s, err := allocate.ByName(strategy, nil)
	if err != nil {
		return nil, err
	}
	plan, err := allocate.Allocate(allocate.Job{Ranks: n, Copies: 1}, launch.Hosts(kernelScale), s)
	if err != nil {
		return nil, err
	}
	nodes = make([]string, n)
	for _, host := range plan.Used() {
		for _, p := range host.Processes {
			nodes[p.Rank] = host.Node.Key()
		}
	}
	return nodes, nil
}

// jobs returns the hosts of both strategies, by name and number of ranks.
func jobs() (map[string]map[int][]string, error) {
	all := map[string]map[int][]string{}
	for _, strategy := range strategies {
		all[strategy] = map[int][]string{}
		for _, n := range kernelRanks {
			nodes, err := placed(n, strategy)
			if err != nil {
				return nil, err
			}
			all[strategy][n] = nodes
		}
	}
	return all, nil
}

// kernelSites returns a lab with all hosts of the jobs.
func kernelSites(all map[string]map[int][]string) lab.Spec {
	var spec lab.Spec
	var names []string
	for _, strategy := range strategies {
		for _, n := range kernelRanks {
			for _, node := range all[strategy][n] {
				site, host, _ := strings.Cut(node, "/")
				i := slices.Index(names, site)
				if i < 0 {
					i, names = len(names), append(names, site)
					spec.Sites = append(spec.Sites, lab.Site{Name: site, Preset: "open"})
				}
				if at := &spec.Sites[i]; !slices.Contains(at.Nodes, host) {
					at.Nodes = append(at.Nodes, host)
				}
			}
		}
	}
	spec.WAN = launch.WAN(names...)
	return spec
}

// kernels is figure 4 of the co-allocation article.
func (o Options) kernels(ctx context.Context) (m measured, err error) {
	all, err := jobs()
	if err != nil {
		return m, err
	}
	g, down, err := gridjob.Up(ctx, kernelSites(all), o.Self)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, down()) }()
	seconds := map[string]map[int][]float64{} // by kernel and ranks, of each strategy
	for name := range kernels {
		seconds[name] = map[int][]float64{}
		for _, n := range kernelRanks {
			var turns []func(context.Context) (float64, error)
			for _, strategy := range strategies {
				turns = append(turns, o.kernel(g, all[strategy][n], name))
			}
			values, err := bench.Interleave(ctx, o.Repeat, turns...)
			if err != nil {
				return m, fmt.Errorf("%s on %d ranks: %w", name, n, err)
			}
			for i, v := range values {
				seconds[name][n] = append(seconds[name][n], bench.Median(v))
				m.curves = append(m.curves, bench.Row{Figure: name, Params: map[string]any{"algorithm": strategies[i], "ranks": n}, Value: bench.Median(v), Unit: "s"})
			}
		}
	}
	m.figures = compareKernels(seconds)
	return m, nil
}

// kernel returns the seconds of a kernel on hosts.
func (o Options) kernel(g *grid.Grid, nodes []string, name string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		results, err := apps.Example[npb.Result](ctx, apps.Bed{Self: o.Self}, g, nodes, name, "--class", kernels[name])
		if err != nil {
			return 0, err
		}
		if len(results) != 1 || !results[0].Verified {
			return 0, fmt.Errorf("%s on %d ranks: %d results, want one that is verified", name, len(nodes), len(results))
		}
		return results[0].Seconds, nil
	}
}

// compareKernels compares times by spread with those by concentrate, which come first.
func compareKernels(seconds map[string]map[int][]float64) figures {
	ratio := func(name string, n int) float64 { return seconds[name][n][1] / seconds[name][n][0] }
	return figures{
		"is, few": ratio("is", fewRanks), "is, many": ratio("is", manyRanks), "is, most": ratio("is", mostRanks),
		"is, concentrate": seconds["is"][mostRanks][0] / seconds["is"][fewRanks][0],
		"ep, few":         ratio("ep", fewRanks), "ep, many": ratio("ep", manyRanks), "ep, most": ratio("ep", mostRanks),
	}
}
