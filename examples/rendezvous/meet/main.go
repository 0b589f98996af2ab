// Package meet is the rendezvous program, to be run by its own main or by
// another's: one job publishes a name, another looks it up and connects. It
// keeps no state.
package meet

import (
	"context"
	"errors"
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

var example = program.Program[options]{Name: "rendezvous", Parse: parse, Run: run}

type options struct {
	serve, join string // one of them is set
	times       int
	wait        time.Duration
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("rendezvous", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.serve, "serve", "", "publish `NAME` and wait for other jobs")
	flags.StringVar(&o.join, "join", "", "join the job that serves `NAME`")
	flags.IntVar(&o.times, "times", 1, "with --serve: how many jobs, one after the other")
	flags.DurationVar(&o.wait, "wait", 30*time.Second, "with --join: how long to wait for the name; 0: not at all")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; see rendezvous --help", flags.Arg(0))
	case (o.serve == "") == (o.join == ""):
		return o, errors.New("give either --serve NAME or --join NAME")
	case o.times < 1:
		return o, fmt.Errorf("--times %d: want at least 1", o.times)
	case o.wait < 0:
		return o, fmt.Errorf("--wait %v: want 0 or more", o.wait)
	}
	return o, nil
}

// run meets others on one side or the other.
func run(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	if o.serve != "" {
		return serve(ctx, comm, o, stdout)
	}
	return join(ctx, comm, o, stdout)
}

// serve publishes the name and accepts.
func serve(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) (err error) {
	var port string // matters at rank 0 only
	if comm.Rank() == 0 {
		world := comm.World()
		if port, err = world.OpenPort(ctx); err != nil {
			return err
		}
		if err := world.PublishName(ctx, o.serve, port); err != nil {
			return err
		}
	}
	for range o.times {
		inter, err := comm.Accept(ctx, port, 0)
		if err != nil {
			return err
		}
		if err := meet(ctx, inter, "accepted", stdout); err != nil {
			return err
		}
	}
	if comm.Rank() == 0 {
		if err := comm.World().UnpublishName(ctx, o.serve); err != nil {
			return err
		}
		return comm.World().ClosePort(port)
	}
	return nil
}

// join looks the name up and connects.
func join(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) (err error) {
	var port string
	if comm.Rank() == 0 {
		if port, err = find(ctx, comm.World(), o); err != nil {
			return err
		}
	}
	inter, err := comm.Connect(ctx, port, 0)
	if err != nil {
		return err
	}
	return meet(ctx, inter, "connected to", stdout)
}

func find(ctx context.Context, world *mpilib.World, o options) (port string, err error) {
	if o.wait == 0 {
		return world.LookupName(ctx, o.join)
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	return world.AwaitName(ctx, o.join)
}
