package split

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/isthmus-grid/isthmus/aiac"
	"github.com/isthmus-grid/isthmus/aiac/checkpoint"
	"github.com/isthmus-grid/isthmus/examples/program"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Main runs the program as a process of its job with the given arguments and
// returns the exit code: 1 if the run failed, 2 for a mistake in the arguments.
// An interrupt ends the run.
func Main(args []string) int { return example.Main(args) }

var example = program.Program[options]{Name: "multisplit", Parse: parse, Run: report}

type options struct {
	system, mode  string
	banded        Banded
	convection    Convection
	steps, repeat int
	run           aiac.Options
	reduction     float64
	stepTime      time.Duration
	checkpoint    bool
	json          bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{convection: Convection{Diffusion: 1, Speed: [3]float64{1, 1, 1}}}
	flags := flag.NewFlagSet("multisplit", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.system, "system", "banded", "`which` system: banded or convection")
	flags.IntVar(&o.banded.N, "rows", 20000, "rows of the banded system")
	flags.IntVar(&o.banded.Band, "band", 500, "half its bandwidth")
	flags.IntVar(&o.banded.Entries, "entries", 6, "its elements above the diagonal of each row")
	flags.Float64Var(&o.banded.Shift, "shift", 0.1, "its row sums, as a part of the elements beside the diagonal: the less, the slower")
	flags.IntVar(&o.convection.Grid, "grid", 24, "points in each dimension of the convection-diffusion problem")
	flags.Float64Var(&o.convection.Time, "time", 0.01, "length of its steps")
	flags.IntVar(&o.steps, "steps", 1, "its number of steps")
	flags.StringVar(&o.mode, "mode", "both", "`how` tasks iterate: sync, async or both")
	flags.Float64Var(&o.run.Tolerance, "tolerance", 1e-6, "greatest residual of a row")
	flags.IntVar(&o.run.Hold, "hold", aiac.DefaultHold, "iterations for which a task must hold it before the residual of all is looked at")
	flags.Uint64Var(&o.run.MaxIterations, "max", 100000, "iterations after which to give up")
	flags.Float64Var(&o.reduction, "reduction", 1e-3, "to how much of its residual an iteration solves a block")
	flags.DurationVar(&o.stepTime, "step-time", 0, "how long an iteration takes at least, to emulate slower processors; 0 is as fast as this one can")
	flags.BoolVar(&o.checkpoint, "checkpoint", false, "save the tasks' states at other tasks, and print what that took")
	flags.IntVar(&o.repeat, "repeat", 1, "runs of each mode, in turn")
	flags.BoolVar(&o.json, "json", false, "print one JSON object for each run")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	_, badMode := aiac.ParseMode(o.mode)
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; see multisplit --help", flags.Arg(0))
	case o.system != "banded" && o.system != "convection":
		return o, fmt.Errorf("--system %s: want banded or convection", o.system)
	case o.mode != "both" && badMode != nil:
		return o, fmt.Errorf("--mode %s: want sync, async or both", o.mode)
	case o.banded.N < 1 || o.banded.Band < 1 || o.banded.Entries < 1 || o.convection.Grid < 1 || o.steps < 1 || o.repeat < 1:
		return o, fmt.Errorf("--rows %d --band %d --entries %d --grid %d --steps %d --repeat %d: want at least 1 of each",
			o.banded.N, o.banded.Band, o.banded.Entries, o.convection.Grid, o.steps, o.repeat)
	case !(o.banded.Shift > 0) || !(o.convection.Time > 0) || !(o.reduction > 0 && o.reduction < 1) || o.stepTime < 0:
		return o, fmt.Errorf("--shift %g --time %g --reduction %g --step-time %v: want above 0, above 0, between 0 and 1, at least 0",
			o.banded.Shift, o.convection.Time, o.reduction, o.stepTime)
	}
	if o.checkpoint {
		o.run.Checkpoint = &checkpoint.Config{}
	}
	return o, nil
}

// Result is one run, as rank 0 prints it.
type Result struct {
	System      string  `json:"system"`
	Mode        string  `json:"mode"`
	Ranks       int     `json:"ranks"`
	Seconds     float64 `json:"seconds"`
	Least       uint64  `json:"least_iterations"` // of all tasks
	Most        uint64  `json:"most_iterations"`
	Residual    float64 `json:"residual"` // of the last step, computed anew
	Error       float64 `json:"error"`    // of the banded system: the greatest difference from the solution
	Put         uint64  `json:"values_put"`
	Overwritten uint64  `json:"values_overwritten"`
	Sent        uint64  `json:"values_sent"`
	Received    uint64  `json:"values_received"`
	Unused      uint64  `json:"values_unused"`
	Waves       uint64  `json:"waves"` // of rank 0
	States      uint64  `json:"states_saved"`
	StatesKept  uint64  `json:"states_kept"`
	StateBytes  uint64  `json:"state_bytes"`
	StateShare  float64 `json:"state_share"` // of the time; the greatest of all ranks, in the last step
}

func report(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	modes := []aiac.Mode{aiac.Sync, aiac.Async}
	if m, err := aiac.ParseMode(o.mode); err == nil {
		modes = []aiac.Mode{m}
	}
	for range o.repeat {
		for _, o.run.Mode = range modes {
			r, err := o.solve(ctx, comm)
			if err != nil {
				return err
			}
			if comm.Rank() == 0 {
				if err := r.print(stdout, o.json); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// solve runs once.
func (o options) solve(ctx context.Context, comm *mpilib.Comm) (Result, error) {
	s := Split{System: o.banded, Parts: comm.Size(), Reduction: o.reduction, Most: 1000, Right: rowSums(o.banded), StepSeconds: o.stepTime.Seconds()}
	steps := 1
	var u []float64 // this rank's block
	if o.system == "convection" {
		s.System, steps = o.convection, o.steps
		lo, hi := s.rows(comm.Rank())
		u = make([]float64, hi-lo)
		for i := range u {
			u[i] = 1
		}
		s.Right = func(lo, hi int) []float64 { return u }
		s.Start = s.Right
	}
	total := Result{System: s.System.Name(), Mode: o.run.Mode.String(), Ranks: comm.Size()}
	if err := mpilib.Barrier(ctx, comm); err != nil {
		return total, err
	}
	begun := time.Now()
	var last *aiac.Result
	var iterations uint64
	var counts aiac.Counts
	var states checkpoint.Counts
	for range steps {
		r, err := aiac.Run(ctx, comm, s, o.run)
		if err != nil {
			return total, err
		}
		last, u = r, r.Task.(*block).x
		iterations += r.Iterations
		counts = sum(counts, r.Counts)
		c := r.Checkpoints
		states.Saved, states.Kept, states.Bytes = states.Saved+c.Saved, states.Kept+c.Kept, states.Bytes+c.Bytes
	}
	total.Seconds = time.Since(begun).Seconds()
	total.Waves = counts.Waves
	if err := total.gatherStates(ctx, comm, states, last.Checkpoints.Share); err != nil {
		return total, err
	}
	return total, total.gather(ctx, comm, last, iterations, counts, o.system == "banded")
}

func sum(a, b aiac.Counts) aiac.Counts {
	return aiac.Counts{Put: a.Put + b.Put, Overwritten: a.Overwritten + b.Overwritten, Sent: a.Sent + b.Sent,
		Received: a.Received + b.Received, Unused: a.Unused + b.Unused, Waves: a.Waves + b.Waves}
}

// rowSums returns the right sides with which all x are 1.
func rowSums(s System) func(lo, hi int) []float64 {
	return func(lo, hi int) []float64 {
		sums := make([]float64, hi-lo)
		for i, row := range s.Block(lo, hi) {
			for _, e := range row {
				sums[i] += e.Value
			}
		}
		return sums
	}
}

// gather combines what all ranks have. The residual is that of the blocks and values of the result.
func (r *Result) gather(ctx context.Context, comm *mpilib.Comm, last *aiac.Result, iterations uint64, c aiac.Counts, isKnown bool) error {
	t := last.Task.(*block)
	worst := []float64{t.Residual(), 0}
	for _, v := range t.x {
		if isKnown {
			worst[1] = max(worst[1], math.Abs(v-1))
		}
	}
	least, most := []uint64{iterations}, []uint64{iterations}
	sums := []uint64{c.Put, c.Overwritten, c.Sent, c.Received, c.Unused}
	if err := mpilib.Allreduce(ctx, comm, worst, worst, mpilib.Max); err != nil {
		return err
	}
	if err := mpilib.Allreduce(ctx, comm, least, least, mpilib.Min); err != nil {
		return err
	}
	if err := mpilib.Allreduce(ctx, comm, most, most, mpilib.Max); err != nil {
		return err
	}
	if err := mpilib.Allreduce(ctx, comm, sums, sums, mpilib.Sum); err != nil {
		return err
	}
	r.Residual, r.Error, r.Least, r.Most = worst[0], worst[1], least[0], most[0]
	r.Put, r.Overwritten, r.Sent, r.Received, r.Unused = sums[0], sums[1], sums[2], sums[3], sums[4]
	return nil
}

// gatherStates combines what became of all ranks' states.
func (r *Result) gatherStates(ctx context.Context, comm *mpilib.Comm, c checkpoint.Counts, share float64) error {
	sums, most := []uint64{c.Saved, c.Kept, c.Bytes}, []float64{share}
	if err := mpilib.Allreduce(ctx, comm, sums, sums, mpilib.Sum); err != nil {
		return err
	}
	err := mpilib.Allreduce(ctx, comm, most, most, mpilib.Max)
	r.States, r.StatesKept, r.StateBytes, r.StateShare = sums[0], sums[1], sums[2], most[0]
	return err
}

func (r Result) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	states := ""
	if r.States > 0 {
		states = fmt.Sprintf("; states: %d saved, %d kept, %d bytes, %.2f %% of the time at most", r.States, r.StatesKept, r.StateBytes, 100*r.StateShare)
	}
	_, err := fmt.Fprintf(w, "%s, %d ranks, %s: %.3f s, %d to %d iterations, residual %.2g, error %.2g; values: %d put, %d overwritten, %d sent, %d received, %d unused%s\n",
		r.System, r.Ranks, r.Mode, r.Seconds, r.Least, r.Most, r.Residual, r.Error, r.Put, r.Overwritten, r.Sent, r.Received, r.Unused, states)
	return err
}
