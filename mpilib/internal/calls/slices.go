package calls

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// The operations that transfer slices. Their arguments are those of package mpilib's functions of
// the same names.

// theBarrier has no arguments, so one value is enough.
var theBarrier = Operation{Name: "Barrier", run: func(ctx context.Context, r *coll.Round) error { return r.Barrier(ctx) }}

// Barrier is the operation of that name.
func Barrier() *Operation { return &theBarrier }

// Bcast is the operation of that name.
func Bcast[T any](buf []T, root int) *Operation {
	b, err := buffer.View(buf)
	return &Operation{"Bcast", debug.Rooted[T](root, len(buf)), err, func(ctx context.Context, r *coll.Round) error {
		return r.Bcast(ctx, b, root)
	}}
}

// Reduce is the operation of that name.
func Reduce[T any](send, recv []T, op Reduction, root int) *Operation {
	return reducing("Reduce", debug.Rooted[T](root, len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.Reduce(ctx, s, to, o, root)
	})
}

// Allreduce is the operation of that name.
func Allreduce[T any](send, recv []T, op Reduction) *Operation {
	return reducing("Allreduce", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.Allreduce(ctx, s, to, o)
	})
}

// ReduceScatter is the operation of that name.
func ReduceScatter[T any](send, recv []T, counts []int, op Reduction) *Operation {
	counts = buffer.Times[T](counts)
	return reducing("ReduceScatter", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.ReduceScatter(ctx, s, to, counts, o)
	})
}

// ReduceScatterBlock is the operation of that name.
func ReduceScatterBlock[T any](send, recv []T, op Reduction) *Operation {
	return reducing("ReduceScatterBlock", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.ReduceScatterBlock(ctx, s, to, o)
	})
}

// Scan is the operation of that name.
func Scan[T any](send, recv []T, op Reduction) *Operation {
	return reducing("Scan", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.Scan(ctx, s, to, o, collectives.Scan)
	})
}

// Exscan is the operation of that name.
func Exscan[T any](send, recv []T, op Reduction) *Operation {
	return reducing("Exscan", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.Scan(ctx, s, to, o, collectives.Exscan)
	})
}

// Gather is the operation of that name.
func Gather[T any](send, recv []T, root int) *Operation {
	return moving("Gather", debug.Rooted[T](root, len(send)), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Gather(ctx, s, to, root)
	})
}

// Gatherv is the operation of that name.
func Gatherv[T any](send, recv []T, counts, displs []int, root int) *Operation {
	counts, displs = buffer.Times[T](counts), buffer.Times[T](displs)
	return moving("Gatherv", debug.RootOnly[T](root), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Gatherv(ctx, s, to, counts, displs, root)
	})
}

// Allgather is the operation of that name.
func Allgather[T any](send, recv []T) *Operation {
	return moving("Allgather", debug.Counted[T](len(send)), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Allgather(ctx, s, to)
	})
}

// Allgatherv is the operation of that name.
func Allgatherv[T any](send, recv []T, counts, displs []int) *Operation {
	counts, displs = buffer.Times[T](counts), buffer.Times[T](displs)
	return moving("Allgatherv", debug.TypeOnly[T](), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Allgatherv(ctx, s, to, counts, displs)
	})
}

// Scatter is the operation of that name.
func Scatter[T any](send, recv []T, root int) *Operation {
	return moving("Scatter", debug.Rooted[T](root, len(recv)), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Scatter(ctx, s, to, root)
	})
}

// Scatterv is the operation of that name.
func Scatterv[T any](send []T, counts, displs []int, recv []T, root int) *Operation {
	counts, displs = buffer.Times[T](counts), buffer.Times[T](displs)
	return moving("Scatterv", debug.RootOnly[T](root), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Scatterv(ctx, s, counts, displs, to, root)
	})
}

// Alltoall is the operation of that name.
func Alltoall[T any](send, recv []T) *Operation {
	return moving("Alltoall", debug.Counted[T](len(send)), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		if n := r.Peers; len(send)%n != 0 || len(recv)%n != 0 {
			return fmt.Errorf("%w: %d elements to send and %d to receive are not %d equal blocks", mpi.ErrCount, len(send), len(recv), n)
		}
		return r.Alltoall(ctx, s, to)
	})
}

// Alltoallv is the operation of that name.
func Alltoallv[T any](send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *Operation {
	scounts, sdispls = buffer.Times[T](scounts), buffer.Times[T](sdispls)
	rcounts, rdispls = buffer.Times[T](rcounts), buffer.Times[T](rdispls)
	return moving("Alltoallv", debug.TypeOnly[T](), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Alltoallv(ctx, s, scounts, sdispls, to, rcounts, rdispls)
	})
}

// Alltoallw is the operation of that name.
func Alltoallw(send, recv []buffer.Part) *Operation {
	return &Operation{Name: "Alltoallw", run: func(ctx context.Context, r *coll.Round) error { return r.Alltoallw(ctx, send, recv) }}
}

// moving is an operation that transfers elements.
func moving[T any](name string, args debug.Args, send, recv []T, f func(ctx context.Context, r *coll.Round, s, to []byte) error) *Operation {
	s, to, _, err := buffer.Views(send, recv)
	return &Operation{name, args, err, func(ctx context.Context, r *coll.Round) error { return f(ctx, r, s, to) }}
}

// reducing is an operation that reduces elements.
func reducing[T any](name string, args debug.Args, send, recv []T, op Reduction, f func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error) *Operation {
	s, to, _, err := buffer.Views(send, recv)
	args.Op = op.Name
	o := op.Op
	return &Operation{name, args, mpi.FirstOf(err, op.Err), func(ctx context.Context, r *coll.Round) error { return f(ctx, r, s, to, o) }}
}

// Reduction is a reduction of elements as bytes.
type Reduction struct {
	Name string
	Op   collectives.Op
	Err  error // why it cannot be used, or nil
}

// ReductionOf returns the Reduction of elements by apply.
func ReductionOf[T any](name string, commutative bool, apply func(inout, in []T)) Reduction {
	op, err := coll.Op(name, commutative, apply)
	return Reduction{name, op, err}
}
