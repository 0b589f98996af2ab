package apps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// AIAC compares synchronous and asynchronous iterations of one solver on sites at several distances.
type AIAC struct {
	Bed
	RTTs         []time.Duration // between the sites, one after the other
	Sites        int
	NodesPerSite int
	RanksPerSite int // a multiple of the nodes
	Rows         int // of the banded system
	Band         int // half its bandwidth
	Shift        float64
	Tolerance    float64
	StepTime     time.Duration // how long an iteration takes at least
	Loss         float64       // fraction of the packets between sites
	CPU          []float64     // cores of the nodes of each site, as in lab.Site; none: not limited
	PETSc        bool          // measures Krylov methods of PETSc on the same system, too
	Repeat       int
}

// petscMethods are those that are measured: conjugate gradients, and a variant that computes while it waits for sums.
var petscMethods = []string{"cg", "pipecg"}

// petscRun is a run of PETSc, as its program prints it.
type petscRun struct {
	Method     string  `json:"method"`
	Seconds    float64 `json:"seconds"`
	Iterations int     `json:"iterations"`
	Residual   float64 `json:"residual"` // the greatest of a row
}

// Check returns what is wrong with the comparison, or nil.
func (s AIAC) Check() error {
	switch {
	case s.NodesPerSite < 1 || s.RanksPerSite%s.NodesPerSite != 0:
		return fmt.Errorf("%d ranks on %d nodes of each site; want as many on each", s.RanksPerSite, s.NodesPerSite)
	case len(s.RTTs) == 0 || s.Sites < 1 || s.RanksPerSite < 1 || s.Repeat < 1:
		return fmt.Errorf("%d round trips, %d sites, %d ranks in each, %d runs; want one of each or more", len(s.RTTs), s.Sites, s.RanksPerSite, s.Repeat)
	case s.Rows < s.Sites*s.RanksPerSite || s.Band < 1 || !(s.Shift > 0) || !(s.Tolerance > 0) || s.StepTime < 0 || !(s.Loss >= 0 && s.Loss < 1):
		return fmt.Errorf("%d rows, band %d, shift %g, tolerance %g, steps of %v, loss %g", s.Rows, s.Band, s.Shift, s.Tolerance, s.StepTime, s.Loss)
	case s.PETSc && s.Preset != "open":
		return fmt.Errorf("PETSc needs --preset open, not %s: its processes connect to each other", s.Preset)
	}
	return nil
}

// Run builds the sites, compares and prints the rows. The process must have called lab.Enter.
func (s AIAC) Run(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	var spec lab.Spec
	for i := range s.Sites {
		spec.Sites = append(spec.Sites, lab.Site{Name: site(i), Preset: s.Preset, Nodes: lab.Nodes(s.NodesPerSite), CPU: s.CPU})
	}
	var rows []bench.Row
	err := s.onSites(ctx, spec, func(g *grid.Grid) (err error) {
		var peer *petsc
		if s.PETSc {
			if peer, err = newPETSc(ctx, g, s.system()); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, peer.close()) }()
		}
		for _, rtt := range s.RTTs {
			some, err := s.measure(ctx, g, rtt, peer)
			if err != nil {
				return err
			}
			rows = append(rows, some...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return bench.Write(s.Out, s.JSON, rows...)
}

// entries is how many elements the matrix has above the diagonal in each row.
const entries = 6

func (s AIAC) system() split.Banded {
	return split.Banded{N: s.Rows, Band: s.Band, Entries: entries, Shift: s.Shift}
}

// measure measures at one distance.
func (s AIAC) measure(ctx context.Context, g *grid.Grid, rtt time.Duration, peer *petsc) (rows []bench.Row, err error) {
	if err := s.setDistance(g, rtt); err != nil {
		return nil, err
	}
	fmt.Fprintf(s.Err, "aiac: %d ranks on %d sites, %v apart\n", s.Sites*s.RanksPerSite, s.Sites, rtt)
	results, err := Example[split.Result](ctx, s.Bed, g, s.hosts(), "multisplit", "--rows", fmt.Sprint(s.Rows), "--band", fmt.Sprint(s.Band),
		"--entries", fmt.Sprint(entries), "--shift", fmt.Sprint(s.Shift), "--tolerance", fmt.Sprint(s.Tolerance), "--step-time", s.StepTime.String(),
		"--repeat", fmt.Sprint(s.Repeat))
	if err != nil {
		return nil, err
	}
	if rows, err = s.rows(rtt, results); err != nil || peer == nil {
		return rows, err
	}
	for _, method := range petscMethods {
		fmt.Fprintf(s.Err, "aiac: %s of PETSc\n", method)
		runs, err := peer.solve(ctx, g, s.hosts(), s, method)
		if err != nil {
			return nil, err
		}
		some, err := s.petscRows(rtt, method, runs, results)
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// petscRows turns the runs of a method at one distance into figures: its time, and that of asynchronous iterations over it.
func (s AIAC) petscRows(rtt time.Duration, method string, runs []petscRun, ours []split.Result) ([]bench.Row, error) {
	var times, async []float64
	for _, r := range runs {
		if !(r.Residual <= 1.01*s.Tolerance) { // sums are not added in the same order each time
			return nil, fmt.Errorf("PETSc's %s ended with residual %g, want at most %g", method, r.Residual, s.Tolerance)
		}
		times = append(times, r.Seconds)
	}
	for _, r := range ours {
		if r.Mode == "async" {
			async = append(async, r.Seconds)
		}
	}
	if len(times) == 0 || len(async) == 0 {
		return nil, fmt.Errorf("%d runs of PETSc's %s, %d asynchronous ones", len(times), method, len(async))
	}
	time, params := bench.Median(times), s.params(rtt, "petsc "+method)
	return []bench.Row{
		{Bench: "aiac", Figure: "time", Params: params, Value: time, Unit: "s"},
		{Bench: "aiac", Figure: "iterations", Params: params, Value: float64(runs[0].Iterations), Unit: "iterations"},
		{Bench: "aiac", Figure: "time", Params: s.params(rtt, "async"), Value: bench.Median(async), Unit: "s", Against: "petsc " + method, Ratio: bench.Median(async) / time},
	}, nil
}

// params are the conditions of a figure.
func (s AIAC) params(rtt time.Duration, mode string) map[string]any {
	return map[string]any{"mode": mode, "rtt_ms": float64(rtt.Microseconds()) / 1000, "sites": s.Sites, "ranks_per_site": s.RanksPerSite,
		"rows": s.Rows, "band": s.Band, "shift": s.Shift, "step_ms": float64(s.StepTime.Microseconds()) / 1000, "loss": s.Loss, "cpu": fmt.Sprint(s.CPU), "repeat": s.Repeat}
}

// setDistance gives all paths between sites a round trip. Those to the public hosts stay as they are.
func (s AIAC) setDistance(g *grid.Grid, rtt time.Duration) error {
	for from := range s.Sites {
		for to := range s.Sites {
			if from == to {
				continue
			}
			if err := g.Lab.SetWAN(site(from), site(to), wan.Shape{Delay: rtt / 2, Loss: s.Loss}); err != nil {
				return err
			}
		}
	}
	return nil
}

// hosts returns the node of each rank.
func (s AIAC) hosts() (nodes []string) {
	for i := range s.Sites {
		for r := range s.RanksPerSite {
			nodes = append(nodes, site(i)+"/"+lab.Nodes(s.NodesPerSite)[r*s.NodesPerSite/s.RanksPerSite])
		}
	}
	return nodes
}

// rows turns the runs at one distance into figures: the median time of each mode, their ratio, and what became of values
// in the run that has it.
func (s AIAC) rows(rtt time.Duration, results []split.Result) (rows []bench.Row, err error) {
	times := map[string][]float64{}
	last := map[string]split.Result{}
	for _, r := range results {
		times[r.Mode] = append(times[r.Mode], r.Seconds)
		last[r.Mode] = r
	}
	if len(times["sync"]) == 0 || len(times["async"]) == 0 {
		return nil, errors.New("multisplit has not run in both modes")
	}
	for _, mode := range []string{"sync", "async"} {
		r := last[mode]
		params := s.params(rtt, mode)
		row := bench.Row{Bench: "aiac", Figure: "time", Params: params, Value: bench.Median(times[mode]), Unit: "s"}
		if mode == "async" {
			row.Against, row.Ratio = "sync", row.Value/bench.Median(times["sync"])
		}
		rows = append(rows, row)
		for _, f := range []struct {
			figure string
			value  uint64
			unit   string
		}{{"least_iterations", r.Least, "iterations"}, {"most_iterations", r.Most, "iterations"}, {"values_put", r.Put, "values"},
			{"values_overwritten", r.Overwritten, "values"}, {"values_received", r.Received, "values"}} {
			rows = append(rows, bench.Row{Bench: "aiac", Figure: f.figure, Params: params, Value: float64(f.value), Unit: f.unit})
		}
	}
	return rows, nil
}
