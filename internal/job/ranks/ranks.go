// Package ranks starts the processes of one job on this node and watches over
// them: it tells each its rank and how to reach the others, tags its output,
// passes signals on, and ends the whole lot when one fails. What starts the
// other nodes' share of the job is somebody else's business.
//
// All state belongs to Run; when it returns no process of the job is left, but
// for one that moved itself to another process group.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
)

// The environment by which a process learns its place; package mpilib reads it.
const (
	EnvRank   = "ISTHMUS_RANK"   // rank in the job's world
	EnvSize   = "ISTHMUS_SIZE"   // size of the world
	EnvHelper = "ISTHMUS_HELPER" // path of the helper's socket
	EnvDir    = "ISTHMUS_DIR"    // in place of EnvHelper: folder of the processes' own sockets
)

// grace is how long a process has between SIGTERM and SIGKILL.
const grace = 2 * time.Second

// Job says what to start.
type Job struct {
	Argv   []string
	First  int // rank of the first process here
	Count  int // processes here
	Size   int // processes of the whole job
	Key    jobkey.Key
	Helper string           // the helper's socket; empty: all ranks are here and meet in a folder
	Label  string           // tags output as [Label:rank]; empty: no tags
	Env    []string         // added to the environment
	Groups jobgroups.Layout // of the whole job; nil: it has none

	// Survive has the others go on when a process fails. That one was killed by a
	// signal does not fail the job then, as long as another ends well.
	Survive bool

	Stdin  io.Reader // goes to rank 0, if it is here; one that is no file may still be read when Run returns
	Stdout io.Writer // whole lines, from one process at a time; nil discards them
	Stderr io.Writer // as Stdout, and not at the same time
	Output Output    // in place of Stdout and Stderr; Run does not close it
}

// Check says what is contradictory, or returns nil.
func (j Job) Check() error {
	switch {
	case len(j.Argv) == 0:
		return errors.New("no program to run")
	case j.Count < 1:
		return fmt.Errorf("%d processes: want at least 1", j.Count)
	case j.Size < 1 || j.Size > math.MaxInt32:
		return fmt.Errorf("a job of %d processes: want 1 to %d", j.Size, math.MaxInt32)
	case j.First < 0 || j.Count > j.Size || j.First > j.Size-j.Count:
		return fmt.Errorf("ranks %d-%d do not lie in a job of %d", j.First, j.First+j.Count-1, j.Size)
	case j.Helper == "" && j.Count != j.Size:
		return fmt.Errorf("ranks %d-%d of %d run here and no helper was named, so they could not reach the others; give --helper or %s", j.First, j.First+j.Count-1, j.Size, EnvHelper)
	}
	_, err := jobgroups.Parse(j.Groups.String(), j.Size)
	return err
}

// ExitError says which process ended the job, and how.
type ExitError struct {
	Rank   int
	Status int // exit status, or 128 + signal; 126 and 127, as in shells, for a program that could not be started
	Err    error
}

func (e *ExitError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the status with which a launcher ends for the job.
func (e *ExitError) ExitCode() int { return e.Status }

// SignalError says which signal to this process ended the job.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return fmt.Sprintf("the job was ended: %v", e.Signal) }

// ExitCode returns 128 + signal, as shells do.
func (e *SignalError) ExitCode() int { return 128 + int(e.Signal) }

// Run starts the processes and returns when all have ended. If one fails, or
// ctx ends, or SIGINT, SIGTERM or SIGHUP comes, the others get SIGTERM and, 2 s
// later, SIGKILL. The error is an *ExitError of the process that failed first,
// a *SignalError, or wraps the cause of ctx's end. A signal that this process
// was started to ignore, as by nohup, ends nothing. See also Job.Survive.
func Run(ctx context.Context, j Job) error {
	if err := j.Check(); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer failOnSignal(fail)()
	place := EnvHelper + "=" + j.Helper
	if j.Helper == "" {
		dir, err := os.MkdirTemp("", "isthmus-job-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		place = EnvDir + "=" + dir
	}
	key, err := j.Key.File()
	if err != nil {
		return err
	}
	defer key.Close()
	output := j.Output
	if output == nil {
		lines := Lines(j.Stdout, j.Stderr)
		defer lines.Close() // a failed write was the rank's to suffer
		output = lines
	}
	var running sync.WaitGroup
	ended := &endings{survive: j.Survive, fail: fail}
	for i := range j.Count {
		rank := j.First + i
		p, err := start(ctx, j, rank, place, key, output)
		if err != nil {
			fail(&ExitError{Rank: rank, Status: StartStatus(err), Err: err})
			break
		}
		running.Go(func() {
			if err := p.Wait(); err != nil {
				ended.exitedWithError(&ExitError{Rank: rank, Status: p.Status(), Err: err})
			} else {
				ended.exitedOK()
			}
		})
	}
	running.Wait()
	cause := context.Cause(ctx)
	var exit *ExitError
	var signalled *SignalError
	switch {
	case errors.As(cause, &exit):
		return exit
	case errors.As(cause, &signalled):
		return signalled
	case cause != nil:
		return fmt.Errorf("the job was ended: %w", cause)
	}
	return ended.verdict()
}

// endings is how processes ended.
type endings struct {
	survive bool
	fail    func(error) // ends the job

	mu     sync.Mutex
	failed *ExitError // the first that ended with a status of its own
	killed *ExitError // the first that a signal ended
	good   bool       // one ended well
}

func (e *endings) exitedOK() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.good = true
}

func (e *endings) exitedWithError(how *ExitError) {
	if !e.survive {
		e.fail(how)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	first := &e.failed
	if how.Status > 128 {
		first = &e.killed
	}
	if *first == nil {
		*first = how
	}
}

// verdict is what a job's end means that nothing else has ended.
func (e *endings) verdict() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.failed != nil:
		return e.failed
	case e.killed != nil && !e.good:
		return e.killed
	}
	return nil
}

// failOnSignal calls fail at the first signal that is to end a job, until
// the returned function is called.
func failOnSignal(fail func(error)) (stop func()) {
	signals := make(chan os.Signal, 1)
	// Where nobody takes our output any more, we outlive that (os/signal,
	// "SIGPIPE"): the rank that wrote it meets the same, which ends the job.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	over := make(chan struct{})
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case s := <-signals:
			fail(&SignalError{s.(syscall.Signal)})
		case <-over:
		}
	})
	return func() {
		signal.Stop(signals)
		signal.Stop(broken)
		close(over)
		waiting.Wait()
	}
}

// ParseRanks reads "3" or "0-3".
func ParseRanks(s string) (first, count int, err error) {
	a, b, isRange := strings.Cut(s, "-")
	first, err = strconv.Atoi(a)
	last := first
	if err == nil && isRange {
		last, err = strconv.Atoi(b)
	}
	if err != nil || first < 0 || last < first || last >= math.MaxInt32 {
		return 0, 0, fmt.Errorf("ranks %q: want FIRST-LAST, such as 0-3", s)
	}
	return first, last - first + 1, nil
}
