// Package choose is a program of which two runs differ: its messages come in any order, and its numbers from a
// generator and the clock. All that differs it asks of the library, which lets replicas of a rank agree about it: so they
// print the same, whichever of them dies. The ranks check what they heard of each other.
package choose

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/isthmus-grid/isthmus/examples/program"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Main runs the program as a process of its job with the given arguments and returns the exit code: 1 if the run
// failed, 2 for a mistake in the arguments. An interrupt ends the run.
func Main(args []string) int { return example.Main(args) }

var example = program.Program[options]{Name: "choices", Parse: parse, Run: run}

type options struct{ rounds int }

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("choices", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 20, "numbers that each rank draws")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see choices --help", flags.Arg(0))
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("--rounds %d: want at least 1", o.rounds)
	}
	return o, nil
}

// The tags of a number that was drawn, with the time; of its place among all; and of what a rank has drawn and was
// told altogether.
const (
	drawnTag = iota
	placeTag
	totalTag
)

func run(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	if comm.Size() < 2 {
		return fmt.Errorf("%d rank, want at least 2", comm.Size())
	}
	if comm.Rank() == 0 {
		return hear(ctx, comm, o, stdout)
	}
	return draw(ctx, comm, o, stdout)
}

// most is the number that is greater than all that are drawn.
const most = 1000

// tests is how often a rank looks for an answer before it waits.
const tests = 50

// draw is the part of all ranks but 0.
func draw(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	rng, err := comm.World().Rand(ctx)
	if err != nil {
		return err
	}
	total := make([]int64, 2)
	for round := range o.rounds {
		now, err := comm.World().Now(ctx)
		if err != nil {
			return err
		}
		drawn, place := []int64{rng.Int64N(most), now.UnixNano()}, make([]int64, 1)
		answer := mpilib.Irecv(comm, place, 0, placeTag)
		if err := mpilib.Send(ctx, comm, drawn, 0, drawnTag); err != nil {
			return err
		}
		looked, done := 0, false
		for looked < tests && !done {
			if _, done, err = answer.Test(); err != nil {
				return err
			}
			looked++
		}
		if !done {
			if _, err := answer.Wait(ctx); err != nil {
				return err
			}
		}
		fmt.Fprintf(stdout, "rank %d: round %d: drew %d, was number %d, looked %d times\n", comm.Rank(), round, drawn[0], place[0], looked)
		total[0] += drawn[0]
		total[1] += place[0]
	}
	return mpilib.Send(ctx, comm, total, 0, totalTag)
}

// hear is the part of rank 0.
func hear(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	totals, last := make([][2]int64, comm.Size()), make([]int64, comm.Size())
	for place := range int64((comm.Size() - 1) * o.rounds) {
		drawn := make([]int64, 2)
		st, err := mpilib.Recv(ctx, comm, drawn, mpilib.AnySource, drawnTag)
		if err != nil {
			return err
		}
		from := st.Source
		if drawn[0] < 0 || drawn[0] >= most || drawn[1] < last[from] {
			return fmt.Errorf("rank %d drew %d at %d, after %d", from, drawn[0], drawn[1], last[from])
		}
		last[from] = drawn[1]
		totals[from][0] += drawn[0]
		totals[from][1] += place
		fmt.Fprintf(stdout, "number %d: rank %d drew %d\n", place, from, drawn[0])
		if err := mpilib.Send(ctx, comm, []int64{place}, from, placeTag); err != nil {
			return err
		}
	}
	for rank := 1; rank < comm.Size(); rank++ {
		total := make([]int64, 2)
		if _, err := mpilib.Recv(ctx, comm, total, rank, totalTag); err != nil {
			return err
		}
		if [2]int64(total) != totals[rank] {
			return fmt.Errorf("rank %d has %d, and rank 0 heard %d", rank, total, totals[rank])
		}
	}
	_, err := fmt.Fprintln(stdout, "SUCCESSFUL")
	return err
}
