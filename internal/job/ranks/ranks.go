// Package ranks starts the processes of one job on this node and supervises them: it passes each
// its rank and the location of the others, tags its output, forwards signals, and ends all
// processes when one fails. It does not start the processes of other nodes.
//
// All state belongs to Run; when it returns no process of the job is left, except one that moved
// itself to another process group.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
)

// The environment that describes a process's place in the job; package mpilib reads it.
const (
	EnvRank   = "ISTHMUS_RANK"       // rank in the job's world
	EnvSize   = "ISTHMUS_SIZE"       // size of the world
	EnvFirst  = "ISTHMUS_FIRST_RANK" // rank of the first process of another launcher, which starts a share of them
	EnvHelper = "ISTHMUS_HELPER"     // path of the helper's socket
	EnvDir    = "ISTHMUS_DIR"        // in place of EnvHelper: folder of the processes' own sockets
	EnvReport = "ISTHMUS_REPORT"     // where the process writes its links: a file to append to, or a folder
)

// The environment of a process of a job with replicated ranks. Replica c of rank k of n is registered
// with its helper as process c*n + k, of EnvReplicas * n, but for a pinned rank 0, which has replica 0
// only.
const (
	EnvReplica           = "ISTHMUS_COPY"               // which replica of its rank the process is; not set: 0
	EnvReplicas          = "ISTHMUS_COPIES"             // of each rank; not set: 1, or replicas are independent
	EnvReplicaTable      = "ISTHMUS_REPLICA_TABLE"      // parallel or primary: which replicas serve which
	EnvSendDeterministic = "ISTHMUS_SEND_DETERMINISTIC" // 1: no send depends on the order of arrivals
)

// The environment of a process of a job whose lost processes are replaced. Such a process has a number from
// EnvSize on as its EnvRank; with replicas one from EnvReplicas * EnvSize on as its EnvProcess.
const (
	EnvSpares       = "ISTHMUS_SPARES"       // how many process numbers there are beyond EnvSize
	EnvReplacements = "ISTHMUS_REPLACEMENTS" // the rank that each process so far goes on with: of EnvSize, EnvSize+1, ..., separated by commas; may be empty
	EnvProcess      = "ISTHMUS_PROCESS"      // with replicas: the number of a process that comes in place of replica EnvReplica of EnvRank, which is lost
)

// grace is how long a process has between SIGTERM and SIGKILL.
const grace = 2 * time.Second

// Job describes the processes to start.
type Job struct {
	Argv   []string
	First  int // rank of the first process here
	Count  int // processes here
	Size   int // processes of the whole job
	Key    jobkey.Key
	Helper string           // the helper's socket; empty: all ranks are here and meet in a folder
	Label  string           // tags output as [Label:rank]; empty: no tags
	Env    []string         // added to the environment
	Groups jobgroups.Layout // of the whole job; nil for none

	// Survive makes the other processes continue when one fails. A process killed by a signal then
	// does not fail the job, as long as another one exits with status 0.
	Survive bool

	Started func() // called once all processes have been started; nil: not

	Stdin  io.Reader // goes to rank 0, if it is here; may still be read when Run returns, unless it is a file
	Stdout io.Writer // whole lines, from one process at a time; nil discards them
	Stderr io.Writer // like Stdout, and never concurrently with it
	Output Output    // instead of Stdout and Stderr; Run does not close it
}

// Check returns an error if the settings contradict each other.
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

// ExitError is the exit of the process that ended the job.
type ExitError struct {
	Rank   int
	Status int  // exit status, or 128 + signal; 126 and 127, as in shells, for a program that could not be started
	Killed bool // a signal ended it, or it was lost: a program may also exit with a status above 128
	Err    error
}

func (e *ExitError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit status of a launcher for the job.
func (e *ExitError) ExitCode() int { return e.Status }

// SignalError is the signal to this process that ended the job.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return fmt.Sprintf("the job was ended: %v", e.Signal) }

// ExitCode returns 128 + signal, as in shells.
func (e *SignalError) ExitCode() int { return 128 + int(e.Signal) }

// Run starts the processes and returns when all have ended. If one fails, or ctx ends, or this
// process receives one of EndSignals, the others get SIGTERM and, 2 s later, SIGKILL. The
// error is an *ExitError of the process that failed first, a *SignalError, or wraps the cause of
// ctx's end. A signal that this process was started to ignore, as by nohup, ends nothing. See also
// Job.Survive. If this process is killed, the ranks end too, with what they have started.
func Run(ctx context.Context, j Job) error {
	if err := j.Check(); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer failOnSignal(fail)()
	place, dir := EnvHelper+"="+j.Helper, ""
	if j.Helper == "" {
		var err error
		if dir, err = os.MkdirTemp("", "isthmus-job-"); err != nil {
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
		defer lines.Close() // the rank got the error of a failed write
		output = lines
	}
	g := startGuard(dir)
	defer g.end()
	var running sync.WaitGroup
	ended := &endings{survive: j.Survive, fail: fail}
	defer holdThread()()
	started := true
	for i := range j.Count {
		rank := j.First + i
		p, err := start(ctx, j, rank, place, key, output)
		if err != nil {
			fail(&ExitError{Rank: rank, Status: StartStatus(err), Err: err})
			started = false
			break
		}
		g.add(p.PID())
		running.Go(func() {
			err := p.Wait()
			g.remove(p.PID())
			if lost := p.OutputError(); lost != nil {
				fail(&ExitError{Rank: rank, Status: 1, Err: fmt.Errorf("its output: %w", lost)})
			}
			if err != nil {
				ended.exitedWithError(&ExitError{Rank: rank, Status: p.Status(), Killed: p.Killer() != 0, Err: err})
			} else {
				ended.exitedOK(rank, stillListed(dir, rank))
			}
		})
	}
	if started && j.Started != nil {
		j.Started()
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

// endings records how processes ended.
type endings struct {
	survive bool
	fail    func(error) // ends the job

	mu     sync.Mutex
	failed *ExitError // the first that exited with a status other than 0
	killed *ExitError // the first that a signal ended
	good   bool       // one exited with status 0
	early  []int      // ranks that exited with status 0 and are missed by the others
}

// exitedOK records an exit with status 0, of a process that has left the job, or is early.
func (e *endings) exitedOK(rank int, early bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.good = true
	if early {
		e.early = append(e.early, rank)
	}
}

func (e *endings) exitedWithError(how *ExitError) {
	e.mu.Lock()
	if len(e.early) > 0 { // which is more likely to be the cause
		how.Err = fmt.Errorf("%w, after rank %d had ended with status 0 and without Finalize", how.Err, e.early[0])
	}
	e.mu.Unlock()
	if !e.survive {
		e.fail(how)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	first := &e.failed
	if how.Killed {
		first = &e.killed
	}
	if *first == nil {
		*first = how
	}
}

// verdict returns the result of a job that nothing else has ended.
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

// stillListed reports whether a process of a job that meets in a folder has ended and left its socket
// there: it has not left the job as the library does in Finalize.
func stillListed(dir string, rank int) bool {
	if dir == "" {
		return false
	}
	sockets, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("rank-%d-*.sock", rank)))
	return err == nil && len(sockets) > 0
}

// EndSignals are the signals that end a job: those that a terminal sends, Ctrl-C's and Ctrl-\'s among them,
// and the one that asks a process to end.
var EndSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// failOnSignal calls fail at the first signal that must end a job, until the returned function is
// called.
func failOnSignal(fail func(error)) (stop func()) {
	signals := make(chan os.Signal, 1)
	// If our output is no longer read, this process survives it (os/signal, "SIGPIPE"): the rank
	// that wrote the output gets the same signal, which ends the job.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	over := make(chan struct{})
	for _, s := range EndSignals {
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
