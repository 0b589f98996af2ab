package aiac

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/aiac/checkpoint"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// A Mode says when a task iterates.
type Mode uint8

// The modes.
const (
	Sync  Mode = iota // with the values of all tasks' last iteration
	Async             // with what has come
)

// String returns the name by which ParseMode knows the mode.
func (m Mode) String() string {
	if m == Async {
		return "async"
	}
	return "sync"
}

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	for _, m := range []Mode{Sync, Async} {
		if name == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("aiac: mode %q, want sync or async", name)
}

// Options are alike on all ranks.
type Options struct {
	Mode      Mode
	Tolerance float64 // the greatest residual of a row of the result; above 0

	// Hold is for how many iterations in a row a task's own tolerance must hold before an asynchronous run
	// looks at the residual of all; 0: DefaultHold.
	Hold int

	// MaxIterations ends a run that does not converge, with ErrIterations; 0: a million. In an asynchronous
	// run each task counts its own.
	MaxIterations uint64

	// Checkpoint has the tasks save their states at other tasks (package checkpoint), at most so often that it takes a share
	// of the time; nil: no states are saved. A Store of the program's keeps the states that this process holds beyond
	// the run. On all ranks it is nil, or on none.
	Checkpoint *checkpoint.Config

	// Restore returns the state from which this rank's task starts, for instance what x.Fetch(ctx, x.Task()) returns, or a State without an
	// iteration to start anew; nil: all start anew, and what the Stores hold is dropped. It is called once all ranks hold states, and
	// needs Checkpoint, without Decide. On all ranks it is nil, or on none.
	Restore func(ctx context.Context, x *checkpoint.Exchange) (checkpoint.State, error)
}

const (
	DefaultHold          = 3
	defaultMaxIterations = 1_000_000
)

// ErrIterations says that the result is not there after MaxIterations.
var ErrIterations = errors.New("no convergence")

// ErrProblem says that a problem or the options contradict themselves.
var ErrProblem = errors.New("not a problem that can be run")

// A Result is one task's part of the solution, and what it took.
type Result struct {
	Task       Task    // with its block of the result
	Residual   float64 // of the whole vector
	Iterations uint64  // of this task, with those before the state from which it started
	Counts
	Checkpoints Checkpoints
}

// Counts says what became of values. Those of synchronous runs are all put, sent and received.
type Counts struct {
	Put, Overwritten, Sent uint64 // by this task
	Received, Unused       uint64 // for this task; Unused: a newer one came before the next iteration
	Waves                  uint64 // copies of the block for a residual of all
}

// Run iterates until the residual of all tasks' blocks together is at most the tolerance. It is a collective
// call: every rank of comm calls it with the same problem and options, and has the task of its rank. After an
// error on one rank the others may wait until ctx is done or that rank ends.
func Run(ctx context.Context, comm *mpilib.Comm, p Problem, o Options) (*Result, error) {
	o.Hold, o.MaxIterations = orDefault(o.Hold, DefaultHold), orDefault(o.MaxIterations, defaultMaxIterations)
	if err := check(comm.Size(), p, o); err != nil {
		return nil, fmt.Errorf("aiac: %w", err)
	}
	c, err := comm.Dup(ctx)
	if err != nil {
		return nil, fmt.Errorf("aiac: %w", err)
	}
	defer c.Free()
	r, err := newRun(c, c.Rank(), p, o)
	defer r.closeSaving()
	if err == nil && o.Checkpoint != nil {
		err = r.openSaving(ctx)
	}
	if err == nil && o.Mode == Sync {
		err = r.sync(ctx)
	} else if err == nil {
		err = r.async(ctx, fixed(p.Tasks()))
	}
	if err != nil {
		return nil, fmt.Errorf("aiac: task %d, iteration %d: %w", comm.Rank(), r.iterations(), err)
	}
	return &r.result, nil
}

func orDefault[T comparable](v, or T) T {
	var zero T
	if v == zero {
		return or
	}
	return v
}

func check(ranks int, p Problem, o Options) error {
	switch {
	case p.Tasks() != ranks:
		return fmt.Errorf("%w: %d tasks on %d ranks", ErrProblem, p.Tasks(), ranks)
	case !(o.Tolerance > 0) || math.IsInf(o.Tolerance, 1):
		return fmt.Errorf("%w: tolerance %g", ErrProblem, o.Tolerance)
	case o.Hold < 1:
		return fmt.Errorf("%w: hold %d iterations", ErrProblem, o.Hold)
	case o.Restore != nil && (o.Checkpoint == nil || o.Checkpoint.Decide != nil):
		return fmt.Errorf("%w: Restore needs Checkpoint, without Decide", ErrProblem)
	}
	for from := range ranks {
		for to := range ranks {
			if n := p.Values(from, to); n < 0 || n == 0 && from == to {
				return fmt.Errorf("%w: task %d needs %d values of task %d", ErrProblem, to, n, from)
			}
		}
	}
	return nil
}

// run is one call of Run.
type run struct {
	comm    *mpilib.Comm
	problem Problem
	options Options
	task    int
	needs   []neighbour
	feeds   []neighbour
	state   Task
	copy    Task          // has the block of a copy
	own     []float64     // memory for a state
	saving  *saving       // nil: no states are saved
	losses  chan struct{} // the exchange of saving has heard of some; nil without replacements
	result  Result
}

// neighbour is a task that this one needs, or that needs this one, with memory for its values.
type neighbour struct {
	task   int
	values []float64
}

func newRun(c *mpilib.Comm, task int, p Problem, o Options) (*run, error) {
	r := &run{comm: c, problem: p, options: o, task: task, own: make([]float64, p.Values(task, task))}
	for other := range p.Tasks() {
		if other == task {
			continue
		}
		if n := p.Values(other, task); n > 0 {
			r.needs = append(r.needs, neighbour{other, make([]float64, n)})
		}
		if n := p.Values(task, other); n > 0 {
			r.feeds = append(r.feeds, neighbour{other, make([]float64, n)})
		}
	}
	var err error
	if r.state, err = p.New(r.task); err != nil {
		return r, err
	}
	r.copy, err = p.New(r.task)
	return r, err
}

func (r *run) iterations() uint64 { return r.result.Iterations }

// keepCopy copies the block as it is.
func (r *run) keepCopy() {
	r.state.Give(r.task, r.own)
	r.copy.Take(r.task, r.own)
	r.result.Waves++
}
