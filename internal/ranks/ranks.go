// Package ranks starts the processes of one job on this node and watches over
// them: it tells each its rank and how to reach the others, tags its output,
// passes signals on, and ends the whole lot when one fails. What starts the
// other nodes' share of the job is somebody else's business.
//
// All state belongs to Run; when it returns no process of the job is left.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/jobkey"
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
	Helper string    // the helper's socket; empty: all ranks are here and meet in a folder
	Label  string    // tags output as [Label:rank]; empty: no tags
	Env    []string  // added to the environment
	Stdin  io.Reader // goes to rank 0, if it is here
	Stdout io.Writer // whole lines, from one process at a time
	Stderr io.Writer
}

// Check says what is contradictory, or returns nil.
func (j Job) Check() error {
	switch {
	case len(j.Argv) == 0:
		return errors.New("no program to run")
	case j.Count < 1:
		return fmt.Errorf("%d processes: want at least 1", j.Count)
	case j.First < 0 || j.First+j.Count > j.Size:
		return fmt.Errorf("ranks %d-%d do not lie in a job of %d", j.First, j.First+j.Count-1, j.Size)
	case j.Helper == "" && j.Count != j.Size:
		return fmt.Errorf("ranks %d-%d of %d run here and no helper was named, so they could not reach the others; give --helper or %s", j.First, j.First+j.Count-1, j.Size, EnvHelper)
	}
	return nil
}

// ExitError says which process ended the job, and how.
type ExitError struct {
	Rank   int
	Status int // exit status, or 128 + signal
	Err    error
}

func (e *ExitError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }
func (e *ExitError) Unwrap() error { return e.Err }

// Run starts the processes and returns when all have ended. If one fails, or
// ctx ends, or SIGINT, SIGTERM or SIGHUP comes, the others get SIGTERM and, 2 s
// later, SIGKILL. The error is an *ExitError of the process that failed first.
func Run(ctx context.Context, j Job) error {
	if err := j.Check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	place := EnvHelper + "=" + j.Helper
	if j.Helper == "" {
		dir, err := os.MkdirTemp("", "isthmus-job-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		place = EnvDir + "=" + dir
	}
	outputs := newOutputs(j)
	var running sync.WaitGroup
	for i := range j.Count {
		rank := j.First + i
		cmd, err := start(ctx, j, rank, place, outputs)
		if err != nil {
			fail(&ExitError{Rank: rank, Status: 127, Err: err})
			break
		}
		running.Go(func() {
			if err := wait(cmd); err != nil {
				fail(&ExitError{Rank: rank, Status: status(cmd), Err: err})
			}
		})
	}
	running.Wait()
	outputs.flush()
	var exit *ExitError
	if cause := context.Cause(ctx); errors.As(cause, &exit) {
		return exit
	} else if cause != nil {
		return fmt.Errorf("the job was ended: %w", cause)
	}
	return nil
}

func start(ctx context.Context, j Job, rank int, place string, outputs *outputs) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, j.Argv[0], j.Argv[1:]...)
	cmd.Env = append(os.Environ(), j.Env...)
	cmd.Env = append(cmd.Env, jobkey.EnvKey+"="+j.Key.String(), place,
		EnvRank+"="+strconv.Itoa(rank), EnvSize+"="+strconv.Itoa(j.Size))
	cmd.Stdout, cmd.Stderr = outputs.of(rank)
	if rank == 0 {
		cmd.Stdin = j.Stdin
	}
	cmd.SysProcAttr = group() // so that a signal reaches what it starts, too
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	return cmd, cmd.Start()
}

func wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	signalGroup(cmd.Process.Pid, syscall.SIGKILL) // what it left behind
	return err
}

func status(cmd *exec.Cmd) int {
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

func group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }

// ParseRanks reads "3" or "0-3".
func ParseRanks(s string) (first, count int, err error) {
	a, b, isRange := strings.Cut(s, "-")
	first, err = strconv.Atoi(a)
	last := first
	if err == nil && isRange {
		last, err = strconv.Atoi(b)
	}
	if err != nil || first < 0 || last < first {
		return 0, 0, fmt.Errorf("ranks %q: want FIRST-LAST, such as 0-3", s)
	}
	return first, last - first + 1, nil
}
