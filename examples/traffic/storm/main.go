// Package storm is the traffic program, to be run by its own main or by another's:
// all ranks of a job send to all for a while, every byte is checked, and rank 0
// tells what it came to. It keeps no state.
package storm

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/examples/program"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Main runs the program as a process of its job with the given arguments, and
// returns the exit code. An interrupt ends the run.
func Main(args []string) int { return example.Main(args) }

var example = program.Program[options]{Name: "traffic", Parse: parse, Run: takePart}

type options struct {
	plan plan
	last time.Duration // how long rank 0 begins new rounds
	json bool
}

// maxMessage is the largest --max: windows of such messages still fit into memory.
const maxMessage = 64 << 20

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("traffic", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.last, "for", 10*time.Second, "`time` to go on; at least one round is made")
	flags.IntVar(&o.plan.max, "max", 256<<10, "largest message in `bytes`, 16 to 64 MiB")
	flags.Uint64Var(&o.plan.seed, "seed", 1, "`number` that chooses the messages, the same on every rank")
	flags.BoolVar(&o.json, "json", false, "print one JSON object at the end")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see traffic --help", flags.Arg(0))
	}
	if o.plan.max < headerLen || o.plan.max > maxMessage {
		return o, fmt.Errorf("--max %d: want %d to %d", o.plan.max, headerLen, maxMessage)
	}
	return o, nil
}

func takePart(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	if err := mpilib.Barrier(ctx, comm); err != nil {
		return err
	}
	if comm.Rank() == 0 {
		fmt.Fprintf(stdout, "%d ranks are there\n", comm.Size())
	}
	mine, err := rage(ctx, comm, o.plan, o.last)
	if err != nil {
		return fmt.Errorf("rank %d: %w", comm.Rank(), err)
	}
	total, err := sum(ctx, comm, mine)
	if err != nil || comm.Rank() != 0 {
		return err
	}
	if o.json {
		return json.NewEncoder(stdout).Encode(total)
	}
	return total.print(stdout)
}
