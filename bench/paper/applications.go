package paper

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/apps"
	"github.com/isthmus-grid/isthmus/bench/replicas"
)

// bed is the sites of applications.
func (o Options) bed(rtt time.Duration, preset string) apps.Bed {
	return apps.Bed{RTT: rtt, Preset: preset, Self: o.Self, Out: io.Discard, Err: o.Err}
}

// mostProcesses is the largest number of processes in the sweep of ray2mesh.
const mostProcesses = 48

// ray2mesh is figure 7, with the groups of a job profile.
func (o Options) ray2mesh(ctx context.Context) ([]bench.Row, error) {
	rows, err := apps.Ray2mesh{
		Bed: o.bed(orsayRennes, "port-range"), Sites: 3, Processes: []int{12, 24, 36, mostProcesses}, Rays: 1000, Chunk: 2, Credit: 1,
		Speed: 20, Handling: 0.02, Profile: true, Repeat: 1,
	}.Measure(ctx)
	if err != nil {
		return nil, err
	}
	from, err := find(rows, "where bosses pay", func(r bench.Row) bool { return r.Figure == "bosses_pay_from" })
	if err != nil {
		return nil, err
	}
	most, err := find(rows, "the acceleration with as many workers", func(r bench.Row) bool {
		return r.Figure == "acceleration" && r.Params["algorithm"] == "hierarchical, bosses not counted" && r.Params["processes"] == mostProcesses
	})
	if err != nil {
		return nil, err
	}
	return []bench.Row{
		between(claim("bosses pay from so many processes on (0: never)", "30", from, "processes"), 13, mostProcesses),
		between(claim(fmt.Sprintf("with as many workers they gain, on %d processes", mostProcesses), "35 % on 180", 100*(1-1/most), "%"), 1, 100),
	}, nil
}

// The sweep of TSQR: processors are not emulated, but limited to a part of one.
const (
	shortest = 1 << 16
	tallest  = 1 << 22
	columns  = 64
	cores    = 0.5
)

// tsqr is figure 9, with one rank at each site. Factors of the tall matrices are not proved, which would
// take several times as long.
func (o Options) tsqr(ctx context.Context) ([]bench.Row, error) {
	rows, err := apps.TSQR{
		Bed: o.bed(rennesBordeaux, "stateful"), Sites: []int{1, 4}, RanksPerSite: 1, Cols: columns,
		Least: shortest, Most: tallest, Factor: 4, Prove: shortest, CPU: cores, Repeat: 1,
	}.Measure(ctx)
	if err != nil {
		return nil, err
	}
	figure := func(name, method string) (float64, error) {
		return find(rows, name+" of "+method, func(r bench.Row) bool {
			return r.Figure == name && r.Params["algorithm"] == method+", sites: 4"
		})
	}
	tree, err := figure("fastest_on_all_sites_from", "tsqr")
	if err != nil {
		return nil, err
	}
	byColumns, err := figure("fastest_on_all_sites_from", "columns")
	if err != nil {
		return nil, err
	}
	treeGain, err := figure("speed_up_at_most_rows", "tsqr")
	if err != nil {
		return nil, err
	}
	columnsGain, err := figure("speed_up_at_most_rows", "columns")
	if err != nil {
		return nil, err
	}
	return []bench.Row{
		between(claim("TSQR is fastest on 4 sites from so many rows on (0: never)", "500000", tree, "rows"), shortest, 1<<20),
		verdict(claim("column by column that takes more rows (0: never)", "10000000", byColumns, "rows"), byColumns == 0 || byColumns > tree),
		between(claim(fmt.Sprintf("TSQR of %d rows is as many times as fast on 4 sites", tallest), "about 4", treeGain, "times"), 3, 4.4),
		verdict(claim("column by column it is less", "hardly 2, at 33554432 rows", columnsGain, "times"), columnsGain < treeGain),
	}, nil
}

// mostReplicas and replicaRanks are those of figure 5, as far as one machine goes.
const (
	mostReplicas = 4
	replicaRanks = 4
)

// growth are the rows of package replicas that are about it.
var growth = regexp.MustCompile("growth/is")

// replicas is figure 5: the time of IS is linear in the number of replicas.
func (o Options) replicas(ctx context.Context) ([]bench.Row, error) {
	report := bench.Report{W: io.Discard, JSON: true}
	if err := replicas.Measure(ctx, replicas.Options{
		Self: append(o.Self[:len(o.Self):len(o.Self)], "bench", "replicas", "--part"), Only: growth, Class: "W", Ranks: []int{replicaRanks}, Most: mostReplicas,
		Repeat: o.Repeat, For: time.Second, Out: io.Discard, Err: o.Err,
	}, &report); err != nil {
		return nil, err
	}
	r2, err := find(report.Rows, "R squared", func(r bench.Row) bool { return r.Figure == "is_linear_primary" })
	if err != nil {
		return nil, err
	}
	slope, err := find(report.Rows, "the slope", func(r bench.Row) bool { return r.Figure == "is_slope_primary" })
	if err != nil {
		return nil, err
	}
	return []bench.Row{
		claim("the time of IS is linear in the number of replicas, when one sends to all", "linear; figure only", r2, "R squared").AtLeast(0.98),
		verdict(claim("and grows with it", "grows; figure only", slope, "s per replica"), slope > 0),
	}, nil
}
