package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// twoSites puts ranks on nodes of their own, the even ones at one site.
var twoSites = mpilib.WithPlaces(func(rank int) (site, node string) { return fmt.Sprint("s", rank%2), fmt.Sprint("n", rank) })

// serve opens an Exchange and serves until f has returned.
func serve(ctx context.Context, c *mpilib.Comm, config Config, f func(x *Exchange) error) error {
	x, err := Open(ctx, c, config)
	if err != nil {
		return err
	}
	defer x.Close()
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- x.Serve(serving) }()
	err = f(x)
	stop()
	return errors.Join(err, <-ended)
}

// stateOf returns the data of a state of a task, of several pieces.
func stateOf(task int, iteration uint64) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("task %d, iteration %d;", task, iteration)), 5000)
}

// saveUntilKept saves until so many states are whole at their holders.
func saveUntilKept(ctx context.Context, x *Exchange, iteration *uint64, kept uint64) error {
	for x.Counts().Kept < kept {
		isDue, err := x.IsDue(ctx)
		if err != nil {
			return err
		}
		if !isDue {
			time.Sleep(100 * time.Microsecond) // an iteration
			continue
		}
		*iteration++
		if err := x.Save(*iteration, func(b []byte) []byte { return append(b, stateOf(x.Task(), *iteration)...) }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// often has states saved all the time.
var often = Config{Share: 1, First: 1}

// Every rank saves; then every rank fetches every task's state.
func TestExchange(t *testing.T) {
	const n = 6
	var mu sync.Mutex
	last := make([]uint64, n) // iterations
	mpilib.TestWorld(t, n, func(ctx context.Context, c *mpilib.Comm) error {
		return serve(ctx, c, often, func(x *Exchange) error {
			me := c.Rank()
			var iteration uint64
			if err := saveUntilKept(ctx, x, &iteration, 10); err != nil {
				return err
			}
			mu.Lock()
			last[me] = iteration
			mu.Unlock()
			if err := mpilib.Barrier(ctx, c); err != nil {
				return err
			}
			for task := range n {
				s, err := x.Fetch(ctx, task)
				if err != nil {
					return err
				}
				// With two under way at most, the one before these is whole.
				if s.Task != task || s.Iteration+2 < last[task] || s.Iteration > last[task] || !bytes.Equal(s.Data, stateOf(task, s.Iteration)) {
					t.Errorf("rank %d gets task %d's iteration %d, %d bytes; the last is %d", me, task, s.Iteration, len(s.Data), last[task])
				}
			}
			if spent, share := x.Cost(); spent <= 0 || share <= 0 || share > 2 {
				t.Errorf("saving took %v, a share of %g", spent, share)
			}
			return mpilib.Barrier(ctx, c)
		})
	}, twoSites)
}

func TestExchangeArguments(t *testing.T) {
	mpilib.TestWorld(t, 2, func(ctx context.Context, c *mpilib.Comm) error {
		for _, bad := range []Config{{Share: 1.5}, {Share: -1}, {First: -1}, {Power: []float64{1}}} {
			if _, err := Open(ctx, c, bad); err == nil {
				t.Errorf("%+v: no error", bad)
			}
		}
		return serve(ctx, c, Config{Store: NewStore(10), Share: 1, First: 1}, func(x *Exchange) error {
			if err := x.Save(1, func(b []byte) []byte { return append(b, make([]byte, 11)...) }); !errors.Is(err, ErrTooLarge) {
				t.Errorf("11 bytes of 10: %v", err)
			}
			if _, err := x.Fetch(ctx, 2); err == nil {
				t.Error("task 2 of 2 has a state")
			}
			if _, err := x.Fetch(ctx, 0); !errors.Is(err, ErrNoState) {
				t.Errorf("before a state was saved: %v", err)
			}
			return mpilib.Barrier(ctx, c)
		})
	}, twoSites)
}

// When a state is due depends on times, which differ between replicas: without Decide they would send different messages.
func TestReplicasNeedDecide(t *testing.T) {
	mpilib.TestWorld(t, 2, func(ctx context.Context, c *mpilib.Comm) error {
		if _, err := Open(ctx, c, Config{}); !errors.Is(err, mpilib.ErrReplicated) {
			t.Errorf("with replicas and without Decide: %v", err)
		}
		return mpilib.Barrier(ctx, c)
	}, mpilib.WithReplicas(2))
}
