package aiac

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// valuesTag is the tag of values in synchronous runs, and the number of their slots in asynchronous ones.
const valuesTag = 1

// sync is block Jacobi. Whether the block is the result is found out while the next one is computed already,
// which is dropped then: without that each iteration would cost another round trip between the sites.
func (r *run) sync(ctx context.Context) error {
	part, all := make([]float64, 1), make([]float64, 1)
	for ; ; r.result.Iterations++ {
		if err := r.exchange(ctx); err != nil {
			return err
		}
		part[0] = r.state.Residual()
		reduction := mpilib.Iallreduce(r.comm, part, all, mpilib.Max)
		r.keepCopy()
		var err error
		if r.result.Iterations < r.options.MaxIterations {
			if err = r.state.Step(); err == nil {
				err = r.save(ctx, r.result.Iterations+1)
			}
		}
		if _, failed := reduction.Wait(ctx); failed != nil {
			return failed
		}
		switch {
		case err != nil:
			return err
		case all[0] <= r.options.Tolerance:
			r.result.Task, r.result.Residual, r.result.Waves = r.copy, all[0], 0
			r.takeAll(r.copy)
			return nil
		case r.result.Iterations >= r.options.MaxIterations:
			return fmt.Errorf("%w: residual %g after %d iterations", ErrIterations, all[0], r.result.Iterations)
		}
	}
}

// exchange gives the values of the block to all who need them, and takes those of the others.
func (r *run) exchange(ctx context.Context) error {
	requests := make([]*mpilib.Request, 0, len(r.needs)+len(r.feeds))
	for _, n := range r.needs {
		requests = append(requests, mpilib.Irecv(r.comm, n.values, n.task, valuesTag))
	}
	for _, n := range r.feeds {
		r.state.Give(n.task, n.values)
		requests = append(requests, mpilib.Isend(r.comm, n.values, n.task, valuesTag))
	}
	if _, err := mpilib.Waitall(ctx, requests...); err != nil {
		return err
	}
	r.takeAll(r.state)
	r.result.Put += uint64(len(r.feeds))
	r.result.Sent += uint64(len(r.feeds))
	r.result.Received += uint64(len(r.needs))
	return nil
}

func (r *run) takeAll(t Task) {
	for _, n := range r.needs {
		t.Take(n.task, n.values)
	}
}
