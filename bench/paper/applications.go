package paper

import (
	"context"
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

// mostProcesses is the largest number of processes in the sweep of ray2mesh, and articleProcesses that of the article. A
// chunk keeps the master busy for so long that it deals to the former as hard as it would, with 1 ms for each, to the latter.
const (
	mostProcesses    = 48
	articleProcesses = 180
	raysPerSecond    = 20
	handlingRays     = raysPerSecond * 0.001 * articleProcesses / mostProcesses
)

// ray2mesh is figure 7, with the groups of a job profile.
func (o Options) ray2mesh(ctx context.Context) (m measured, err error) {
	rows, err := apps.Ray2mesh{
		Bed: o.bed(orsayRennes, "port-range"), Sites: 3, Processes: []int{12, 24, 36, mostProcesses}, Rays: 1000, Chunk: 2, Credit: 1,
		Speed: raysPerSecond, Handling: handlingRays, Profile: true, Brief: true, Repeat: o.Repeat,
	}.Measure(ctx)
	if err != nil {
		return m, err
	}
	m.curves = ofFigure(rows, "time")
	m.figures, err = traced(rows)
	return m, err
}

// traced returns the figures of ray2mesh.
func traced(rows []bench.Row) (figures, error) {
	from, err := find(rows, "where bosses pay", func(r bench.Row) bool { return r.Figure == "bosses_pay_from" })
	if err != nil {
		return nil, err
	}
	of := map[string]map[string]float64{"time": {}, "trace_phase": {}} // on the most processes
	for figure, seconds := range of {
		for _, line := range []string{"vanilla", "vanilla, flat collectives", "vanilla, collectives by sites", "hierarchical", "hierarchical, by sites", "hierarchical, bosses not counted"} {
			seconds[line], err = find(rows, figure+", "+line, func(r bench.Row) bool {
				return r.Figure == figure && r.Params["algorithm"] == line && r.Params["processes"] == mostProcesses
			})
			if err != nil {
				return nil, err
			}
		}
	}
	gain := func(seconds map[string]float64, line, over string) float64 {
		return 100 * (1 - seconds[line]/seconds[over])
	}
	tracing := of["trace_phase"]
	return figures{
		"from": from, "collectives": gain(of["time"], "vanilla, collectives by sites", "vanilla, flat collectives"),
		"gain": gain(tracing, "hierarchical, bosses not counted", "vanilla"), "sites": tracing["hierarchical, by sites"] / tracing["hierarchical"],
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
func (o Options) tsqr(ctx context.Context) (m measured, err error) {
	rows, err := apps.TSQR{
		Bed: o.bed(rennesBordeaux, "stateful"), Sites: []int{1, 4}, RanksPerSite: 1, Cols: columns,
		Least: shortest, Most: tallest, Factor: 4, Prove: shortest, CPU: cores, Repeat: 1,
	}.Measure(ctx)
	if err != nil {
		return m, err
	}
	m.curves = ofFigure(rows, "speed")
	m.figures, err = factored(rows)
	return m, err
}

// factored returns the figures of TSQR, by a tree and column by column.
func factored(rows []bench.Row) (figures, error) {
	of := figures{}
	for _, method := range []string{"tsqr", "columns"} {
		for _, name := range []string{"fastest_on_all_sites_from", "speed_up_at_most_rows"} {
			v, err := find(rows, name+" of "+method, func(r bench.Row) bool {
				return r.Figure == name && r.Params["algorithm"] == method+", sites: 4"
			})
			if err != nil {
				return nil, err
			}
			of[method+" "+name] = v
		}
	}
	from := func(method string) float64 { // beyond the tallest, if it is not even fastest there
		if rows := of[method+" fastest_on_all_sites_from"]; rows > 0 {
			return rows
		}
		return 2 * tallest
	}
	return figures{
		"from": of["tsqr fastest_on_all_sites_from"], "columns from": from("columns") / from("tsqr"),
		"gain": of["tsqr speed_up_at_most_rows"], "columns gain": of["columns speed_up_at_most_rows"] / of["tsqr speed_up_at_most_rows"],
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
func (o Options) replicas(ctx context.Context) (m measured, err error) {
	report := bench.Report{W: io.Discard, JSON: true}
	if err := replicas.Measure(ctx, replicas.Options{
		Self: append(o.Self[:len(o.Self):len(o.Self)], "bench", "replicas", "--part"), Only: growth, Class: "W", Ranks: []int{replicaRanks}, Most: mostReplicas,
		Repeat: o.Repeat, For: time.Second, Out: io.Discard, Err: o.Err,
	}, &report); err != nil {
		return m, err
	}
	r2, err := find(report.Rows, "R squared", func(r bench.Row) bool { return r.Figure == "is_linear_primary" })
	if err != nil {
		return m, err
	}
	slope, err := find(report.Rows, "the slope", func(r bench.Row) bool { return r.Figure == "is_slope_primary" })
	if err != nil {
		return m, err
	}
	return measured{figures{"linear": r2, "slope": slope}, ofFigure(report.Rows, "is_time")}, nil
}
