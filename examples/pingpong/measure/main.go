// Package measure is the ping-pong program, to be run by its own main or by
// another's: two ranks send messages of growing size back and forth, and one
// of them tells how long it took. It keeps no state.
package measure

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/isthmus-grid/isthmus/examples/program"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Main runs the program as a process of its job with the given arguments, and
// returns the exit code. An interrupt ends the run.
func Main(args []string) int { return example.Main(args) }

var example = program.Program[options]{Name: "pingpong", Parse: parse, Run: play}

type options struct {
	plan plan // to is -1 for the last rank
	json bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var limit int
	flags := flag.NewFlagSet("pingpong", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.plan.from, "from", 0, "`rank` that sends first")
	flags.IntVar(&o.plan.to, "to", -1, "`rank` that sends back; -1 is the last")
	flags.IntVar(&o.plan.reps, "reps", 20, "round trips of each size")
	flags.IntVar(&limit, "max", 1<<20, "largest message in `bytes`, at most 1 GiB")
	flags.BoolVar(&o.json, "json", false, "print one JSON object for each figure")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see pingpong --help", flags.Arg(0))
	}
	if limit < 0 || limit > 1<<30 {
		return o, fmt.Errorf("--max %d: want 0 to %d", limit, 1<<30)
	}
	o.plan.sizes = sizesUpTo(limit)
	return o, nil
}

func play(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	if o.plan.to == -1 {
		o.plan.to = comm.Size() - 1
	}
	out, err := measure(ctx, comm, o.plan)
	if err != nil {
		return fmt.Errorf("rank %d: %w", comm.Rank(), err)
	}
	if comm.Rank() != o.plan.from {
		return nil
	}
	if o.json {
		return writeJSON(stdout, o.plan, out)
	}
	return writeTable(stdout, o.plan, out)
}
