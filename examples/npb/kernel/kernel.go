// Package kernel is the main program that the NAS kernels share: flags,
// joining the job, the report on rank 0 and the exit code. It knows no kernel
// and keeps no state.
package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Exit codes.
const (
	ok     = 0
	failed = 1 // a check value is wrong, or the run did not finish
	usage  = 2
)

// Runner runs one kernel on all ranks and returns the same Result on each.
type Runner func(ctx context.Context, comm *mpilib.Comm, c npb.Class) (npb.Result, error)

// Main runs a kernel as a process of its job, with the given arguments (those
// behind the program's name), and returns the exit code. An interrupt ends it.
func Main(name string, classes []npb.Class, run Runner, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opts, err := parse(name, classes, args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ok
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return usage
	}
	verified, err := inJob(ctx, opts, run, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // names the kernel or the library already
	}
	if err != nil || !verified {
		return failed
	}
	return ok
}

type options struct {
	class npb.Class
	json  bool
}

func parse(name string, classes []npb.Class, args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar((*string)(&o.class), "class", "S", fmt.Sprintf("problem `size`, one of %v", classes))
	flags.BoolVar(&o.json, "json", false, "print the result as one JSON object")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see %s --help", flags.Arg(0), name)
	}
	if !slices.Contains(classes, o.class) {
		return o, fmt.Errorf("no class %q, have %v", o.class, classes)
	}
	return o, nil
}

// inJob joins the job, runs and leaves. Leaving happens after a failure too,
// so that peers hear of it at once.
func inJob(ctx context.Context, o options, run Runner, stdout io.Writer) (verified bool, err error) {
	world, err := mpilib.Init(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, world.Finalize(ctx)) }()
	return report(ctx, world.Comm(), o, run, stdout)
}

func report(ctx context.Context, comm *mpilib.Comm, o options, run Runner, stdout io.Writer) (verified bool, err error) {
	r, err := run(ctx, comm, o.class)
	if err != nil {
		return false, err
	}
	if comm.Rank() != 0 {
		return r.Verified, nil
	}
	if o.json {
		err = json.NewEncoder(stdout).Encode(r)
	} else {
		_, err = r.WriteTo(stdout)
	}
	return r.Verified, err
}
