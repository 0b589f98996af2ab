package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// The collective calls that transfer slices, each defined once. What collective.go says of their
// arguments applies to all variants.

// theBarrier has no arguments, so one value is enough.
var theBarrier = operation{name: "Barrier", run: func(ctx context.Context, r *coll.Round) error { return r.Barrier(ctx) }}

func barrier() *operation { return &theBarrier }

func bcastOf[T Elem](buf []T, root int) *operation {
	b, err := buffer.View(buf)
	return &operation{"Bcast", debug.Rooted[T](root, len(buf)), err, func(ctx context.Context, r *coll.Round) error {
		return r.Bcast(ctx, b, root)
	}}
}

func reduceOf[T Elem](send, recv []T, op Op[T], root int) *operation {
	return reducing("Reduce", debug.Rooted[T](root, len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.Reduce(ctx, s, to, o, root)
	})
}

func allreduceOf[T Elem](send, recv []T, op Op[T]) *operation {
	return reducing("Allreduce", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.Allreduce(ctx, s, to, o)
	})
}

func reduceScatterOf[T Elem](send, recv []T, counts []int, op Op[T]) *operation {
	counts = buffer.Times[T](counts)
	return reducing("ReduceScatter", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.ReduceScatter(ctx, s, to, counts, o)
	})
}

func reduceScatterBlockOf[T Elem](send, recv []T, op Op[T]) *operation {
	return reducing("ReduceScatterBlock", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.ReduceScatterBlock(ctx, s, to, o)
	})
}

func scanOf[T Elem](send, recv []T, op Op[T]) *operation {
	return reducing("Scan", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.Scan(ctx, s, to, o, collectives.Scan)
	})
}

func exscanOf[T Elem](send, recv []T, op Op[T]) *operation {
	return reducing("Exscan", debug.Counted[T](len(send)), send, recv, op, func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error {
		return r.Scan(ctx, s, to, o, collectives.Exscan)
	})
}

func gatherOf[T Elem](send, recv []T, root int) *operation {
	return moving("Gather", debug.Rooted[T](root, len(send)), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Gather(ctx, s, to, root)
	})
}

func gathervOf[T Elem](send, recv []T, counts, displs []int, root int) *operation {
	counts, displs = buffer.Times[T](counts), buffer.Times[T](displs)
	return moving("Gatherv", debug.RootOnly[T](root), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Gatherv(ctx, s, to, counts, displs, root)
	})
}

func allgatherOf[T Elem](send, recv []T) *operation {
	return moving("Allgather", debug.Counted[T](len(send)), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Allgather(ctx, s, to)
	})
}

func allgathervOf[T Elem](send, recv []T, counts, displs []int) *operation {
	counts, displs = buffer.Times[T](counts), buffer.Times[T](displs)
	return moving("Allgatherv", debug.TypeOnly[T](), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Allgatherv(ctx, s, to, counts, displs)
	})
}

func scatterOf[T Elem](send, recv []T, root int) *operation {
	return moving("Scatter", debug.Rooted[T](root, len(recv)), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Scatter(ctx, s, to, root)
	})
}

func scattervOf[T Elem](send []T, counts, displs []int, recv []T, root int) *operation {
	counts, displs = buffer.Times[T](counts), buffer.Times[T](displs)
	return moving("Scatterv", debug.RootOnly[T](root), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Scatterv(ctx, s, counts, displs, to, root)
	})
}

func alltoallOf[T Elem](send, recv []T) *operation {
	return moving("Alltoall", debug.Counted[T](len(send)), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		if n := r.Peers; len(send)%n != 0 || len(recv)%n != 0 {
			return fmt.Errorf("%w: %d elements to send and %d to receive are not %d equal blocks", ErrCount, len(send), len(recv), n)
		}
		return r.Alltoall(ctx, s, to)
	})
}

func alltoallvOf[T Elem](send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *operation {
	scounts, sdispls = buffer.Times[T](scounts), buffer.Times[T](sdispls)
	rcounts, rdispls = buffer.Times[T](rcounts), buffer.Times[T](rdispls)
	return moving("Alltoallv", debug.TypeOnly[T](), send, recv, func(ctx context.Context, r *coll.Round, s, to []byte) error {
		return r.Alltoallv(ctx, s, scounts, sdispls, to, rcounts, rdispls)
	})
}

func alltoallwOf(send, recv []Part) *operation {
	out, in := inner(send), inner(recv)
	return &operation{name: "Alltoallw", run: func(ctx context.Context, r *coll.Round) error { return r.Alltoallw(ctx, out, in) }}
}

// moving is an operation that transfers elements.
func moving[T Elem](name string, args debug.Args, send, recv []T, f func(ctx context.Context, r *coll.Round, s, to []byte) error) *operation {
	s, to, _, err := buffer.Views(send, recv)
	return &operation{name, args, err, func(ctx context.Context, r *coll.Round) error { return f(ctx, r, s, to) }}
}

// reducing is an operation that reduces elements.
func reducing[T Elem](name string, args debug.Args, send, recv []T, op Op[T], f func(ctx context.Context, r *coll.Round, s, to []byte, o collectives.Op) error) *operation {
	s, to, _, err := buffer.Views(send, recv)
	o, opErr := bytesOp(op)
	return &operation{name, withOp(args, op, o, opErr), mpi.FirstOf(err, opErr), func(ctx context.Context, r *coll.Round) error { return f(ctx, r, s, to, o) }}
}
