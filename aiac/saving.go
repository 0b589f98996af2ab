package aiac

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/aiac/checkpoint"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Checkpoints says what became of a task's states, and what they took. It is zero without Options.Checkpoint.
type Checkpoints struct {
	checkpoint.Counts
	Spent time.Duration // by this process, on its own states and on those that it holds
	Share float64       // which that is of the time of Run

	Restored uint64 // the iteration of the state from which the task started; 0: it began anew
	Missing  error  // why a process that replaces another one began anew although states are saved; else nil
}

// saving is the saving of states in a run.
type saving struct {
	exchange *checkpoint.Exchange
	polls    bool // the program has replicas, so there is no goroutine that serves
	stop     func()
	ended    chan error
}

// openSaving starts to hold and to save states, and loads the one that Options.Restore returns.
func (r *run) openSaving(ctx context.Context) error {
	c := *r.options.Checkpoint
	if c.Store == nil {
		c.Store = checkpoint.NewStore(0)
	}
	x, err := checkpoint.Open(ctx, r.comm, c)
	if err != nil {
		return err
	}
	if r.options.Restore == nil {
		c.Store.Clear() // it may have states of another run
	}
	r.serve(ctx, x, c.Decide != nil)
	if r.options.Restore == nil {
		return nil
	}
	return r.restore(ctx)
}

// serve has the exchange handle messages until closeSaving.
func (r *run) serve(ctx context.Context, x *checkpoint.Exchange, polls bool) {
	serving, stop := context.WithCancel(ctx)
	r.saving = &saving{exchange: x, polls: polls, stop: stop, ended: make(chan error, 1)}
	if polls {
		r.saving.ended <- nil
	} else {
		go func() { r.saving.ended <- x.Serve(serving) }()
	}
}

// openReplaceable is openSaving of a run whose lost tasks are replaced.
func (r *run) openReplaceable(ctx context.Context, world *mpilib.World) error {
	c := *r.options.Checkpoint
	if c.Store == nil {
		c.Store = checkpoint.NewStore(0)
	}
	c.Store.Clear() // it may have states of another run
	r.losses = make(chan struct{}, 1)
	x, err := checkpoint.OpenReplaceable(world, stateTag, c, func() {
		select {
		case r.losses <- struct{}{}:
		default: // who takes the one that is there looks for all losses
		}
	})
	if err != nil {
		return err
	}
	r.serve(ctx, x, false)
	if spare := world.Replacements(); spare.Comm.Rank() < spare.Ranks {
		return nil
	}
	r.options.Restore = r.newest
	return r.restore(ctx)
}

// newest returns the newest state of the task that a live task holds, or one without an iteration.
func (r *run) newest(ctx context.Context, x *checkpoint.Exchange) (checkpoint.State, error) {
	s, err := x.Fetch(ctx, r.task)
	if errors.Is(err, checkpoint.ErrNoState) {
		r.result.Checkpoints.Missing = err
		return checkpoint.State{}, nil
	}
	return s, err
}

// restore loads a state.
func (r *run) restore(ctx context.Context) error {
	s, err := r.options.Restore(ctx, r.saving.exchange)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if s.Iteration > 0 {
		if s.Task != r.task {
			return fmt.Errorf("%w: restore returned a state of task %d", ErrProblem, s.Task)
		}
		if len(s.Data) != 8*len(r.own) {
			return fmt.Errorf("%w: restore returned a state of %d bytes for one of %d numbers", ErrProblem, len(s.Data), len(r.own))
		}
		r.state.Take(r.task, appendFloats(r.own[:0], s.Data))
		r.result.Iterations, r.result.Checkpoints.Restored = s.Iteration, s.Iteration
	}
	if r.options.Mode == Async {
		return nil
	}
	// In synchronous runs all tasks are in the same iteration.
	highest := []uint64{r.result.Iterations}
	err = mpilib.Allreduce(ctx, r.comm, highest, highest, mpilib.Max)
	r.result.Iterations = highest[0]
	return err
}

// save saves the state after an iteration if one is due.
func (r *run) save(ctx context.Context, iteration uint64) error {
	if r.saving == nil {
		return nil
	}
	if r.saving.polls {
		if err := r.saving.exchange.Poll(ctx); err != nil {
			return err
		}
	}
	isDue, err := r.saving.exchange.IsDue(ctx)
	if err != nil || !isDue {
		return err
	}
	return r.saving.exchange.Save(iteration, func(b []byte) []byte {
		r.state.Give(r.task, r.own)
		return appendBytes(b, r.own)
	})
}

// closeSaving ends it, and counts.
func (r *run) closeSaving() {
	if r.saving == nil {
		return
	}
	x := r.saving.exchange
	c := &r.result.Checkpoints
	c.Counts = x.Counts()
	c.Spent, c.Share = x.Cost()
	r.saving.stop()
	<-r.saving.ended // its error was that of a Save, or nobody needs it any more
	x.Close()
}
