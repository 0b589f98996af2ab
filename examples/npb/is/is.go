// Package is is the NAS Parallel Benchmark IS, "integer sort": ten times over,
// every key of a large array is given its rank, the number of keys smaller
// than it. Each iteration is an Allreduce, an Alltoall and an Alltoallv that
// moves nearly all keys, so the kernel measures the network more than the
// processor.
//
// The rules are those of NAS report RNR-94-007, section 2.7, and of NPB's
// bucket-sort program. NPB asks for a power of two of ranks; here any number
// will do, and the results are the same.
package is

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Run sorts the class's keys with all ranks of comm and returns the same
// Result on each. ctx ends it at the next message; its error is then wrapped.
// A wrong check value is no error: see Result.Verified.
//
// Iterations are ten, after one that is not timed, as NPB counts. The keys are
// made before the clock starts, each rank's own part.
func Run(ctx context.Context, comm *mpilib.Comm, c npb.Class) (npb.Result, error) {
	p, ok := problems[c]
	if !ok {
		return npb.Result{}, fmt.Errorf("is: no class %q, have %v", c, Classes)
	}
	s := newSorter(comm, p)
	if err := s.iterate(ctx, 1); err != nil { // fills caches and opens links
		return npb.Result{}, fmt.Errorf("is: warm-up: %w", err)
	}
	if err := mpilib.Barrier(ctx, comm); err != nil {
		return npb.Result{}, fmt.Errorf("is: %w", err)
	}
	s.inMessages, s.found = 0, make([]int64, 0, iterations*tests)
	start := time.Now()
	for it := 1; it <= iterations; it++ {
		if err := s.iterate(ctx, it); err != nil {
			return npb.Result{}, fmt.Errorf("is: iteration %d: %w", it, err)
		}
	}
	times := []float64{time.Since(start).Seconds(), s.inMessages.Seconds()}

	checks, err := s.verify(ctx)
	if err != nil {
		return npb.Result{}, fmt.Errorf("is: verification: %w", err)
	}
	slowest, err := tally.Slowest(ctx, comm, times...)
	if err != nil {
		return npb.Result{}, fmt.Errorf("is: combining the times: %w", err)
	}
	r := npb.Result{
		Kernel: "IS", Class: c, Size: fmt.Sprintf("%d keys", p.keys()), Ranks: comm.Size(), Iterations: iterations,
		Seconds: slowest[0], CommTime: slowest[1], Mops: float64(iterations) * float64(p.keys()) / slowest[0] / 1e6,
		Operation: "keys ranked",
	}
	r.Verify(checks)
	return r, nil
}
