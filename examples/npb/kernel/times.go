package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Timed runs a kernel on all ranks at the same time, and returns its result with the greatest of all
// ranks' times, in seconds: of the whole run, and of its messages, which the stopwatch measures.
func Timed[T any](ctx context.Context, comm *mpilib.Comm, messages *npb.Stopwatch, run func() (T, error)) (result T, slowest []float64, err error) {
	if err := mpilib.Barrier(ctx, comm); err != nil {
		return result, nil, err
	}
	messages.Reset()
	start := time.Now()
	if result, err = run(); err != nil {
		return result, nil, err
	}
	if slowest, err = tally.Slowest(ctx, comm, time.Since(start).Seconds(), messages.Seconds()); err != nil {
		return result, nil, fmt.Errorf("combining the times: %w", err)
	}
	return result, slowest, nil
}
