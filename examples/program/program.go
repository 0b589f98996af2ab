// Package program is what the examples' programs have in common: flags, joining
// the job, leaving it and the exit code. It knows none of them and keeps no state.
package program

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Exit codes.
const (
	ok     = 0
	failed = 1
	usage  = 2
)

// Program is one of the examples, with options of type O.
type Program[O any] struct {
	Name string

	// Parse reads the arguments, those behind the program's name. It writes help to
	// stderr and returns flag.ErrHelp when it is asked for; another error is a mistake
	// of the user.
	Parse func(args []string, stderr io.Writer) (O, error)

	// Run is what each process of the job does. Its error is that of this process.
	Run func(ctx context.Context, comm *mpilib.Comm, o O, stdout io.Writer) error
}

// Main runs the program as a process of its job with the given arguments, and returns
// the exit code: 1 if the run failed, 2 for a mistake in the arguments. An interrupt
// ends the run.
func (p Program[O]) Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.Exec(ctx, args, os.Stdout, os.Stderr)
}

// Exec is Main with a context that ends the run, and with other files.
func (p Program[O]) Exec(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := p.Parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ok
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return usage
	}
	if err := p.inJob(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return failed
	}
	return ok
}

// WriteJSON writes each of the results as an object on a line of its own.
func WriteJSON[T any](w io.Writer, results []T) error {
	enc := json.NewEncoder(w)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// inJob joins the job, runs and leaves; it leaves after a failure too, so that the
// others hear of it at once.
func (p Program[O]) inJob(ctx context.Context, o O, stdout io.Writer) (err error) {
	world, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Finalize(ctx)) }()
	return p.Run(ctx, world.Comm(), o, stdout)
}
