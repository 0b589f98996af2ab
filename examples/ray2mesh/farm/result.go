package farm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/isthmus-grid/isthmus/examples/ray2mesh/earth"
	"github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Result is all rays traced in one pattern, the same on every rank.
type Result struct {
	Pattern   pattern   `json:"pattern"`
	Ranks     int       `json:"ranks"`
	Sites     int       `json:"sites"`
	Bosses    int       `json:"bosses"`
	Workers   int       `json:"workers"`
	Lost      int       `json:"lost"` // ranks that died in the runs
	Rays      int64     `json:"rays"`
	Chunk     int64     `json:"chunk"`
	Seconds   float64   `json:"seconds"`  // the median run's, all phases
	Runs      []float64 `json:"runs"`     // of each
	Phases    phases    `json:"phases"`   // each phase's median
	BigChunks int64     `json:"dealt"`    // by the master, in one run
	Chunks    int64     `json:"traced"`   // by workers
	Traffic   traffic   `json:"trace"`    // of the trace phase
	Arrived   int64     `json:"arrived"`  // rays that exist
	Mean      float64   `json:"mean"`     // seconds that one takes
	Times     string    `json:"times"`    // checksum of all rays' times
	Mesh      string    `json:"mesh"`     // checksum of the mesh
	Checked   bool      `json:"checked"`  // against one rank that traces all rays
	Verified  bool      `json:"verified"` // if checked, it is right
}

// traffic is what passed, and what should have: two messages for each chunk that
// is dealt to another site, and two for each credit; 0 once ranks have died.
type traffic struct {
	tally.Traffic
	WANExpected int64 `json:"wan_expected"`
}

// checksums of a run.
type checksums struct{ times, mesh uint64 }

// serial traces all rays alone.
func serial(ctx context.Context, p plan) (checksums, error) {
	model := earth.Layered()
	t := tracer{model: model, survey: earth.NewSurvey(int(p.rays), p.stations), mesh: earth.NewMesh(model)}
	l := newLedger(p.rays)
	for i := range p.rays {
		if ctx.Err() != nil {
			return checksums{}, context.Cause(ctx)
		}
		l[i] = t.ray(i)
	}
	s, err := l.sum()
	return checksums{s.Checksum, checksumOf(0, t.mesh)}, err
}

// describe fills in what is known beforehand.
func describe(f *farm) *Result {
	return &Result{
		Pattern: f.pattern, Ranks: f.comm.Size(), Sites: f.sites, Bosses: f.cast.bosses, Workers: f.cast.workers,
		Rays: f.rays, Chunk: f.chunk,
	}
}

// gather takes in one run of f. A collective call.
func (r *Result) gather(ctx context.Context, f *farm, o outcome, all *[]phases) error {
	p, err := tally.Slowest(ctx, f.comm, o.phases.Broadcast, o.phases.Trace, o.phases.Merge, o.phases.All)
	if err != nil {
		return err
	}
	*all = append(*all, phases{p[0], p[1], p[2], p[3]})
	r.Runs = append(r.Runs, p[3])
	byMaster, small := int64(0), o.dealt.chunks
	if f.comm.Rank() == 0 {
		byMaster = o.dealt.chunks
		for client := 1; client < f.upper.Size(); client++ {
			if f.isBoss(f.upper, client) {
				small = 0 // then the bosses' count
			}
		}
	}
	counts := []int64{byMaster, small, 2 * (o.dealt.far + o.dealt.asks), int64(len(f.tracer.traced))}
	if err := mpilib.Allreduce(ctx, f.comm, counts, counts, mpilib.Sum); err != nil {
		return err
	}
	if counts[3] != r.Rays {
		return fmt.Errorf("%d rays were traced of %d", counts[3], r.Rays)
	}
	sum, err := o.traffic.Sum(ctx, f.comm)
	if err != nil {
		return err
	}
	if r.Lost += f.lost; r.Lost > 0 {
		counts[2] = 0
	}
	r.BigChunks, r.Chunks, r.Traffic = counts[0], counts[1], traffic{sum, counts[2]}
	return r.compare(o)
}

// compare keeps the first run's results; others must have the same.
func (r *Result) compare(o outcome) error {
	times, mesh := fmt.Sprintf("%016x", o.summary.Checksum), fmt.Sprintf("%016x", o.mesh)
	if r.Times == "" {
		r.Times, r.Mesh, r.Arrived, r.Mean = times, mesh, o.summary.Arrived, o.summary.Mean
	}
	if r.Times != times || r.Mesh != mesh {
		return errors.New("two runs had different results")
	}
	return nil
}

// finish fills in medians, and the verdict if there is one to compare with.
func (r *Result) finish(all []phases, right *checksums) {
	median := func(of func(phases) float64) float64 {
		var values []float64
		for _, p := range all {
			values = append(values, of(p))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	r.Phases = phases{
		Broadcast: median(func(p phases) float64 { return p.Broadcast }), Trace: median(func(p phases) float64 { return p.Trace }),
		Merge: median(func(p phases) float64 { return p.Merge }), All: median(func(p phases) float64 { return p.All }),
	}
	r.Seconds = r.Phases.All
	if right != nil {
		r.Checked = true
		r.Verified = r.Times == fmt.Sprintf("%016x", right.times) && r.Mesh == fmt.Sprintf("%016x", right.mesh)
	}
}

// writeTable writes results for people.
func writeTable(w io.Writer, results []*Result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "PATTERN\tRANKS\tLOST\tSITES\tBOSSES\tWORKERS\tRAYS\tCHUNKS\tSECONDS\tBROADCAST\tTRACE\tMERGE\tBETWEEN SITES\tMEAN TIME\tVERIFIED")
	for _, r := range results {
		verified := "not checked"
		if r.Checked {
			verified = map[bool]string{true: "yes", false: "NO"}[r.Verified]
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%d\t%.2f s\t%s\n",
			r.Pattern, r.Ranks, r.Lost, r.Sites, r.Bosses, r.Workers, r.Rays, r.Chunks, r.Seconds, r.Phases.Broadcast, r.Phases.Trace, r.Phases.Merge,
			r.Traffic.WANMessages, r.Mean, verified)
	}
	return tw.Flush()
}
