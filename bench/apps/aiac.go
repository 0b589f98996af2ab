package apps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// AIAC compares synchronous and asynchronous iterations of one solver on sites at several distances, with several losses.
type AIAC struct {
	Bed
	RTTs         []time.Duration // between the sites, one after the other
	Losses       []float64       // fractions of the packets between sites, each with all RTTs
	Sites        int
	NodesPerSite int
	RanksPerSite int // a multiple of the nodes
	Rows         int // of the banded system
	Band         int // half its bandwidth
	Shift        float64
	Tolerance    float64
	StepTime     time.Duration // how long an iteration takes at least
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
	case len(s.RTTs) == 0 || len(s.Losses) == 0 || s.Sites < 1 || s.RanksPerSite < 1 || s.Repeat < 1:
		return fmt.Errorf("%d round trips, %d losses, %d sites, %d ranks in each, %d runs; want one of each or more", len(s.RTTs), len(s.Losses), s.Sites, s.RanksPerSite, s.Repeat)
	case slices.ContainsFunc(s.Losses, func(loss float64) bool { return !(loss >= 0 && loss < 1) }):
		return fmt.Errorf("losses of %v; want fractions, from 0 and below 1", s.Losses)
	case s.Rows < s.Sites*s.RanksPerSite || s.Band < 1 || !(s.Shift > 0) || !(s.Tolerance > 0) || s.StepTime < 0:
		return fmt.Errorf("%d rows, band %d, shift %g, tolerance %g, steps of %v", s.Rows, s.Band, s.Shift, s.Tolerance, s.StepTime)
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
		for _, shape := range s.shapes() {
			some, err := s.measure(ctx, g, shape, peer)
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

// shapes returns what the paths between sites are like, one after the other.
func (s AIAC) shapes() (shapes []wan.Shape) {
	for _, loss := range s.Losses {
		for _, rtt := range s.RTTs {
			shapes = append(shapes, wan.Shape{Delay: rtt / 2, Loss: loss})
		}
	}
	return shapes
}

// entries is how many elements the matrix has above the diagonal in each row.
const entries = 6

func (s AIAC) system() split.Banded {
	return split.Banded{N: s.Rows, Band: s.Band, Entries: entries, Shift: s.Shift}
}

// measure measures with one shape of the paths.
func (s AIAC) measure(ctx context.Context, g *grid.Grid, shape wan.Shape, peer *petsc) (rows []bench.Row, err error) {
	if err := s.setPaths(g, shape); err != nil {
		return nil, err
	}
	fmt.Fprintf(s.Err, "aiac: %d ranks on %d sites, %v apart, loss %g\n", s.Sites*s.RanksPerSite, s.Sites, 2*shape.Delay, shape.Loss)
	results, err := Example[split.Result](ctx, s.Bed, g, s.hosts(), "multisplit", "--rows", fmt.Sprint(s.Rows), "--band", fmt.Sprint(s.Band),
		"--entries", fmt.Sprint(entries), "--shift", fmt.Sprint(s.Shift), "--tolerance", fmt.Sprint(s.Tolerance), "--step-time", s.StepTime.String(),
		"--repeat", fmt.Sprint(s.Repeat))
	if err != nil {
		return nil, err
	}
	if rows, err = s.rows(shape, results); err != nil || peer == nil {
		return rows, err
	}
	for _, method := range petscMethods {
		fmt.Fprintf(s.Err, "aiac: %s of PETSc\n", method)
		runs, err := peer.solve(ctx, g, s.hosts(), s, method)
		if err != nil {
			return nil, err
		}
		some, err := s.petscRows(shape, method, runs, results)
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// petscRows turns the runs of a method with one shape of the paths into figures: its time, and that of asynchronous iterations over it.
func (s AIAC) petscRows(shape wan.Shape, method string, runs []petscRun, ours []split.Result) ([]bench.Row, error) {
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
	time, params := bench.Median(times), s.params(shape, "petsc "+method)
	return []bench.Row{
		{Bench: "aiac", Figure: "time", Params: params, Value: time, Unit: "s"},
		{Bench: "aiac", Figure: "iterations", Params: params, Value: float64(runs[0].Iterations), Unit: "iterations"},
		{Bench: "aiac", Figure: "time", Params: s.params(shape, "async"), Value: bench.Median(async), Unit: "s", Against: "petsc " + method, Ratio: bench.Median(async) / time},
	}, nil
}

// params are the conditions of a figure.
func (s AIAC) params(shape wan.Shape, mode string) map[string]any {
	return map[string]any{"mode": mode, "rtt_ms": float64((2 * shape.Delay).Microseconds()) / 1000, "sites": s.Sites, "ranks_per_site": s.RanksPerSite,
		"rows": s.Rows, "band": s.Band, "shift": s.Shift, "step_ms": float64(s.StepTime.Microseconds()) / 1000, "loss": shape.Loss, "cpu": fmt.Sprint(s.CPU), "repeat": s.Repeat}
}

// setPaths gives all paths between sites a shape. Those to the public hosts stay as they are.
func (s AIAC) setPaths(g *grid.Grid, shape wan.Shape) error {
	for from := range s.Sites {
		for to := range s.Sites {
			if from == to {
				continue
			}
			if err := g.Lab.SetWAN(site(from), site(to), shape); err != nil {
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

// aiacFigures are what each run has.
var aiacFigures = []struct {
	name, unit string
	of         func(split.Result) float64
}{
	{"time", "s", func(r split.Result) float64 { return r.Seconds }},
	{"least_iterations", "iterations", func(r split.Result) float64 { return float64(r.Least) }},
	{"most_iterations", "iterations", func(r split.Result) float64 { return float64(r.Most) }},
	{"values_put", "values", func(r split.Result) float64 { return float64(r.Put) }},
	{"values_overwritten", "values", func(r split.Result) float64 { return float64(r.Overwritten) }},
	{"values_received", "values", func(r split.Result) float64 { return float64(r.Received) }},
}

// maxAIACRatio is the target for the time of asynchronous iterations over that of synchronous ones.
const maxAIACRatio = 1

// rows returns the median of each figure in each mode.
func (s AIAC) rows(shape wan.Shape, results []split.Result) (rows []bench.Row, err error) {
	var syncTime float64
	for _, mode := range []string{"sync", "async"} {
		for _, f := range aiacFigures {
			var values []float64
			for _, r := range results {
				if r.Mode == mode {
					values = append(values, f.of(r))
				}
			}
			if len(values) == 0 {
				return nil, fmt.Errorf("multisplit has not run in mode %s", mode)
			}
			row := bench.Row{Bench: "aiac", Figure: f.name, Params: s.params(shape, mode), Value: bench.Median(values), Unit: f.unit}
			switch {
			case f.name == "time" && mode == "sync":
				syncTime = row.Value
			case f.name == "time":
				row.Against, row.Ratio = "sync", row.Value/syncTime
				row = row.AtMost(maxAIACRatio)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}
