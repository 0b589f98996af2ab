package aiac

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/aiac/checkpoint"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// A run that ends without a result has saved states, from which the next one goes on: it needs fewer iterations than one that
// starts anew, and has as good a result. A run that starts anew forgets them.
func TestCheckpoint(t *testing.T) {
	const tolerance = 1e-9
	for _, mode := range []Mode{Sync, Async} {
		p := line{4, 5, .01}
		sites := mpilib.WithPlaces(func(rank int) (string, string) { return fmt.Sprint("s", rank/2), fmt.Sprint("n", rank) })
		var mu sync.Mutex
		x := make([]float64, p.tasks*p.rows)
		mpilib.TestWorld(t, p.tasks, func(ctx context.Context, c *mpilib.Comm) error {
			config := &checkpoint.Config{Store: checkpoint.NewStore(0), Share: 1, First: 1}
			o := Options{Tolerance: tolerance, Checkpoint: config, MaxIterations: 200}
			if err := runOut(ctx, c, p, o); err != nil {
				return err
			}
			var from checkpoint.State
			o.Mode, o.MaxIterations, o.Restore = mode, 100000, func(ctx context.Context, x *checkpoint.Exchange) (_ checkpoint.State, err error) {
				from, err = x.Fetch(ctx, x.Task())
				return from, err
			}
			r, err := Run(ctx, c, p, o)
			if err != nil {
				return err
			}
			if from.Iteration == 0 || from.Iteration > 200 || r.Iterations < from.Iteration || len(from.Data) != 8*p.rows {
				t.Errorf("%v: task %d starts from iteration %d, %d bytes, and ends at %d", mode, c.Rank(), from.Iteration, len(from.Data), r.Iterations)
			}
			whole, _ := jacobi(p, 0, from.Iteration)
			if block := whole[c.Rank()*p.rows:][:p.rows]; !bytes.Equal(from.Data, appendBytes(nil, block)) {
				t.Errorf("%v: task %d: the state of iteration %d is not %v", mode, c.Rank(), from.Iteration, block)
			}
			if s := r.Checkpoints; s.Saved == 0 || s.Kept == 0 || s.Bytes == 0 || s.Spent <= 0 || s.Share <= 0 {
				t.Errorf("%v: task %d: %+v", mode, c.Rank(), s)
			}
			mu.Lock()
			copy(x[c.Rank()*p.rows:], r.Task.(*lineTask).x)
			mu.Unlock()
			o.Mode, o.MaxIterations, o.Restore = Sync, 10, nil
			if err := runOut(ctx, c, p, o); err != nil {
				return err
			}
			for task := range p.tasks {
				if s, ok := config.Store.Newest(task); ok && s.Iteration > 10 {
					t.Errorf("%v: a run that starts anew has kept iteration %d", mode, s.Iteration)
				}
			}
			return nil
		}, sites)
		whole := &lineTask{line: line{1, p.tasks * p.rows, p.shift}, x: x}
		if residual := whole.Residual(); !(residual <= 1.001*tolerance) || math.IsNaN(residual) {
			t.Errorf("%v: the residual of the restored run is %g", mode, residual)
		}
	}
}

// runOut has a run end after so many iterations.
func runOut(ctx context.Context, c *mpilib.Comm, p line, o Options) error {
	if _, err := Run(ctx, c, p, o); !errors.Is(err, ErrIterations) {
		return fmt.Errorf("after %d iterations: %w", o.MaxIterations, err)
	}
	return mpilib.Barrier(ctx, c) // the end of one would be an error of the other
}

// What Restore returns is loaded: a task that starts from the solution has it.
func TestRestore(t *testing.T) {
	p := line{2, 3, .5}
	mpilib.TestWorld(t, p.tasks, func(ctx context.Context, c *mpilib.Comm) error {
		ones := appendBytes(nil, []float64{1, 1, 1})
		o := Options{Tolerance: 1e-9, Checkpoint: &checkpoint.Config{}}
		for _, s := range []checkpoint.State{{}, {Task: c.Rank(), Iteration: uint64(40 + c.Rank()), Data: ones}} {
			o.Restore = func(context.Context, *checkpoint.Exchange) (checkpoint.State, error) { return s, nil }
			r, err := Run(ctx, c, p, o)
			if err != nil {
				return err
			}
			if isRestored := r.Iterations == 41; isRestored != (s.Iteration > 0) {
				t.Errorf("from %+v: %d iterations", s, r.Iterations)
			}
		}
		for _, s := range []checkpoint.State{{Task: 1 - c.Rank(), Iteration: 1, Data: ones}, {Task: c.Rank(), Iteration: 1, Data: ones[8:]}} {
			o.Restore = func(context.Context, *checkpoint.Exchange) (checkpoint.State, error) { return s, nil }
			if _, err := Run(ctx, c, p, o); !errors.Is(err, ErrProblem) {
				t.Errorf("from %+v: %v", s, err)
			}
		}
		o.Checkpoint = nil
		if _, err := Run(ctx, c, p, o); !errors.Is(err, ErrProblem) {
			t.Errorf("without Checkpoint: %v", err)
		}
		return mpilib.Barrier(ctx, c)
	})
}
