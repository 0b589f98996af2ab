package farm

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/examples/program"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Main runs the program as a process of its job with the given arguments and
// returns the exit code: 1 if the run failed or a result is wrong, 2 for a
// mistake in the arguments. An interrupt ends the run.
func Main(args []string) int { return example.Main(args) }

var example = program.Program[options]{Name: "ray2mesh", Parse: parse, Run: report}

type options struct {
	plan
	patterns []pattern // run in turn
	repeat   int
	check    bool
	json     bool

	fault func(handled int64) // as in farm
}

const (
	maxRays   = 1 << 30 // bounds what the master keeps
	maxCredit = 1000    // bounds what waits at a worker
)

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var patterns string
	flags := flag.NewFlagSet("ray2mesh", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&patterns, "pattern", string(auto), "`patterns` to run in turn, separated by commas: vanilla, hierarchical, or auto, which is vanilla below 30 ranks")
	flags.Int64Var(&o.rays, "rays", 2000, "`number` of rays")
	flags.IntVar(&o.stations, "stations", 40, "`number` of stations that listen to each event")
	flags.Int64Var(&o.chunk, "chunk", 10, "`rays` in one chunk of work")
	flags.Int64Var(&o.big, "big", 0, "`rays` that a boss gets at once; 0 is two chunks for each of its workers")
	flags.Int64Var(&o.credit, "credit", 1, "maximum number of `chunks` per worker: with 2, one is in transit while the worker traces the other")
	flags.Float64Var(&o.speed, "speed", 0, "emulate a processor that traces this many `rays` a second; 0 is as fast as possible")
	flags.Float64Var(&o.handling, "handling", 0, "with --speed: `rays` that it could trace in the time it takes to hand out one chunk")
	flags.IntVar(&o.repeat, "repeat", 1, "runs of each")
	flags.BoolVar(&o.check, "check", true, "have rank 0 trace all rays again by itself, and compare")
	flags.BoolVar(&o.json, "json", false, "print one JSON object for each result")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for word := range strings.SplitSeq(patterns, ",") {
		if !slices.Contains([]pattern{vanilla, hierarchical, auto}, pattern(word)) {
			return o, fmt.Errorf("--pattern %s: want vanilla, hierarchical or auto", word)
		}
		o.patterns = append(o.patterns, pattern(word))
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; see ray2mesh --help", flags.Arg(0))
	case o.rays < 1 || o.rays > maxRays || o.stations < 1 || o.stations > maxRays:
		return o, fmt.Errorf("--rays %d --stations %d: want 1 to %d of each", o.rays, o.stations, maxRays)
	case o.chunk < 1 || o.chunk > o.rays || o.big < 0 || o.big > o.rays || o.repeat < 1:
		return o, fmt.Errorf("--chunk %d --big %d --repeat %d: want at least 1, 0 and 1, and chunks of no more than all %d rays", o.chunk, o.big, o.repeat, o.rays)
	case o.credit < 1 || o.credit > maxCredit:
		return o, fmt.Errorf("--credit %d: want 1 to %d", o.credit, maxCredit)
	case !(o.speed >= 0 && o.handling >= 0):
		return o, fmt.Errorf("--speed %g --handling %g: want 0 or more", o.speed, o.handling)
	}
	return o, nil
}

// report runs and has rank 0 check and print. There, a wrong result is an error.
func report(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	results, first, err := o.run(ctx, comm)
	if err != nil || !first {
		return err
	}
	if err := o.write(stdout, results); err != nil {
		return err
	}
	for _, r := range results {
		if r.Checked && !r.Verified {
			return fmt.Errorf("the results of the %s pattern are not those of one rank alone", r.Pattern)
		}
	}
	return nil
}

// run runs all patterns in turn. Verdicts are only on rank 0, or the first that is left,
// which first says.
func (o options) run(ctx context.Context, comm *mpilib.Comm) (all []*Result, first bool, err error) {
	var right *checksums
	farms := make([]*farm, len(o.patterns))
	results := make([]*Result, len(o.patterns))
	times := make([][]phases, len(o.patterns))
	for i, p := range o.patterns {
		plan := o.plan
		plan.pattern = p
		f, err := newFarm(ctx, comm, plan)
		if err != nil {
			return nil, false, err
		}
		defer f.close()
		farms[i], results[i] = f, describe(f)
	}
	for _, f := range farms {
		if comm, err = f.warmUp(ctx, comm); err != nil {
			return nil, false, fmt.Errorf("%s, warming up: %w", f.pattern, err)
		}
		f.fault = o.fault
	}
	for range o.repeat {
		for i, f := range farms {
			out, err := f.runOn(ctx, comm)
			if err != nil {
				return nil, false, fmt.Errorf("%s: %w", f.pattern, err)
			}
			comm = f.comm
			if err := results[i].gather(ctx, f, out, &times[i]); err != nil {
				return nil, false, fmt.Errorf("%s: %w", f.pattern, err)
			}
		}
	}
	first = comm.Rank() == 0
	if o.check && first {
		alone, err := serial(ctx, o.plan)
		if err != nil {
			return nil, false, fmt.Errorf("tracing all rays alone: %w", err)
		}
		right = &alone
	}
	for i, r := range results {
		r.finish(times[i], right)
	}
	return results, first, nil
}

// warmUp traces a ray for each rank, so that all links are there, and returns the
// communicator of those that are left.
func (f *farm) warmUp(ctx context.Context, comm *mpilib.Comm) (*mpilib.Comm, error) {
	full := f.plan
	f.rays, f.chunk, f.big = int64(comm.Size()), 1, 0
	_, err := f.runOn(ctx, comm)
	f.plan = full
	return f.comm, err
}

// runOn is run of a communicator's ranks.
func (f *farm) runOn(ctx context.Context, comm *mpilib.Comm) (outcome, error) {
	if err := f.move(comm); err != nil {
		return outcome{}, err
	}
	return f.run(ctx)
}

func (o options) write(w io.Writer, results []*Result) error {
	if !o.json {
		return writeTable(w, results)
	}
	return program.WriteJSON(w, results)
}
