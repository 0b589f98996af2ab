package mpilib

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
)

// inJob makes the tests run as one rank of a job that `isthmus run` has started, over the paths of
// that job: every process runs the same tests one after the other, and the worlds of the tests are
// the first ranks of the job. The options of a world are ignored then.
var inJob = flag.Bool("injob", false, "run the tests of the standard's rules in the job that this process is a rank of")

// TestMain leaves the job that the tests ran in.
func TestMain(m *testing.M) {
	status := m.Run()
	if *inJob {
		w, err := jobWorld()
		if err == nil {
			err = w.Finalize(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(reportReplicated(status))
}

// jobWorld is this process's world.
var jobWorld = sync.OnceValues(func() (*World, error) { return Init(context.Background()) })

// parallel is t.Parallel except in a job, where all processes must run the same test.
func parallel(t *testing.T) {
	if !*inJob {
		t.Parallel()
	}
}

// within runs f as one of the first ranks of the job. A process that fails exits, which ends the
// job, because other processes may wait for it.
func within(t *testing.T, ranks int, f func(ctx context.Context, c *Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	fail := func(err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s, %d ranks: %v\n", t.Name(), ranks, err)
			os.Exit(1)
		}
	}
	w, err := jobWorld()
	fail(err)
	if ranks > w.Comm().Size() {
		return
	}
	colour := 0
	if w.Comm().Rank() >= ranks {
		colour = Undefined
	}
	c, err := w.Comm().Split(ctx, colour, 0)
	fail(err)
	if c != nil {
		fail(f(ctx, c))
		fail(c.Free())
	}
}
