package mpilib

import (
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
)

// The collective calls that move slices, each written down once. What collective.go says
// of their arguments holds for all that is made of them.

// theBarrier has no arguments, so one does for all.
var theBarrier = operation{name: "Barrier", run: func(ctx context.Context, r *round) error { return r.barrier(ctx) }}

func barrier() *operation { return &theBarrier }

func bcastOf[T Elem](buf []T, root int) *operation {
	b, err := view(buf)
	return &operation{"Bcast", rooted[T](root, len(buf)), err, func(ctx context.Context, r *round) error {
		return r.bcast(ctx, b, root)
	}}
}

func reduceOf[T Elem](send, recv []T, op Op[T], root int) *operation {
	return reducing("Reduce", rooted[T](root, len(send)), send, recv, op, func(ctx context.Context, r *round, s, to []byte, o collectives.Op) error {
		return r.reduce(ctx, s, to, o, root)
	})
}

func allreduceOf[T Elem](send, recv []T, op Op[T]) *operation {
	return reducing("Allreduce", counted[T](len(send)), send, recv, op, func(ctx context.Context, r *round, s, to []byte, o collectives.Op) error {
		return r.allreduce(ctx, s, to, o)
	})
}

func reduceScatterOf[T Elem](send, recv []T, counts []int, op Op[T]) *operation {
	counts = times[T](counts)
	return reducing("ReduceScatter", counted[T](len(send)), send, recv, op, func(ctx context.Context, r *round, s, to []byte, o collectives.Op) error {
		return r.reduceScatter(ctx, s, to, counts, o)
	})
}

func reduceScatterBlockOf[T Elem](send, recv []T, op Op[T]) *operation {
	return reducing("ReduceScatterBlock", counted[T](len(send)), send, recv, op, func(ctx context.Context, r *round, s, to []byte, o collectives.Op) error {
		return r.reduceScatterBlock(ctx, s, to, o)
	})
}

func scanOf[T Elem](send, recv []T, op Op[T]) *operation {
	return reducing("Scan", counted[T](len(send)), send, recv, op, func(ctx context.Context, r *round, s, to []byte, o collectives.Op) error {
		return r.scan(ctx, s, to, o, collectives.Scan)
	})
}

func exscanOf[T Elem](send, recv []T, op Op[T]) *operation {
	return reducing("Exscan", counted[T](len(send)), send, recv, op, func(ctx context.Context, r *round, s, to []byte, o collectives.Op) error {
		return r.scan(ctx, s, to, o, collectives.Exscan)
	})
}

func gatherOf[T Elem](send, recv []T, root int) *operation {
	return moving("Gather", rooted[T](root, len(send)), send, recv, func(ctx context.Context, r *round, s, to []byte) error {
		return r.gather(ctx, s, to, root)
	})
}

func gathervOf[T Elem](send, recv []T, counts, displs []int, root int) *operation {
	counts, displs = times[T](counts), times[T](displs)
	return moving("Gatherv", rootOnly[T](root), send, recv, func(ctx context.Context, r *round, s, to []byte) error {
		return r.gatherv(ctx, s, to, counts, displs, root)
	})
}

func allgatherOf[T Elem](send, recv []T) *operation {
	return moving("Allgather", counted[T](len(send)), send, recv, func(ctx context.Context, r *round, s, to []byte) error {
		return r.allgather(ctx, s, to)
	})
}

func allgathervOf[T Elem](send, recv []T, counts, displs []int) *operation {
	counts, displs = times[T](counts), times[T](displs)
	return moving("Allgatherv", typeOnly[T](), send, recv, func(ctx context.Context, r *round, s, to []byte) error {
		return r.allgatherv(ctx, s, to, counts, displs)
	})
}

func scatterOf[T Elem](send, recv []T, root int) *operation {
	return moving("Scatter", rooted[T](root, len(recv)), send, recv, func(ctx context.Context, r *round, s, to []byte) error {
		return r.scatter(ctx, s, to, root)
	})
}

func scattervOf[T Elem](send []T, counts, displs []int, recv []T, root int) *operation {
	counts, displs = times[T](counts), times[T](displs)
	return moving("Scatterv", rootOnly[T](root), send, recv, func(ctx context.Context, r *round, s, to []byte) error {
		return r.scatterv(ctx, s, counts, displs, to, root)
	})
}

func alltoallOf[T Elem](send, recv []T) *operation {
	return moving("Alltoall", counted[T](len(send)), send, recv, func(ctx context.Context, r *round, s, to []byte) error {
		if n := r.comm.peers.Size(); len(send)%n != 0 || len(recv)%n != 0 {
			return fmt.Errorf("%w: %d elements to send and %d to receive are not %d equal blocks", ErrCount, len(send), len(recv), n)
		}
		return r.alltoall(ctx, s, to)
	})
}

func alltoallvOf[T Elem](send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *operation {
	scounts, sdispls = times[T](scounts), times[T](sdispls)
	rcounts, rdispls = times[T](rcounts), times[T](rdispls)
	return moving("Alltoallv", typeOnly[T](), send, recv, func(ctx context.Context, r *round, s, to []byte) error {
		return r.alltoallv(ctx, s, scounts, sdispls, to, rcounts, rdispls)
	})
}

func alltoallwOf(send, recv []Part) *operation {
	send, recv = slices.Clone(send), slices.Clone(recv)
	return &operation{name: "Alltoallw", run: func(ctx context.Context, r *round) error { return r.alltoallw(ctx, send, recv) }}
}

// moving is an operation that moves elements.
func moving[T Elem](name string, args debug.Args, send, recv []T, f func(ctx context.Context, r *round, s, to []byte) error) *operation {
	s, to, _, err := views(send, recv)
	return &operation{name, args, err, func(ctx context.Context, r *round) error { return f(ctx, r, s, to) }}
}

// reducing is an operation that reduces them.
func reducing[T Elem](name string, args debug.Args, send, recv []T, op Op[T], f func(ctx context.Context, r *round, s, to []byte, o collectives.Op) error) *operation {
	s, to, _, err := views(send, recv)
	o, opErr := bytesOp(op)
	return &operation{name, withOp(args, op, o, opErr), firstOf(err, opErr), func(ctx context.Context, r *round) error { return f(ctx, r, s, to, o) }}
}

func views[T Elem](send, recv []T) (s, r []byte, size int, err error) {
	if size, err = elemSize[T](); err != nil {
		return nil, nil, 0, err
	}
	s, _ = view(send)
	r, _ = view(recv)
	return s, r, size, nil
}

// times converts counts of elements to counts of bytes. What would overflow
// stays negative, and is refused for that.
func times[T Elem](counts []int) []int {
	size, err := elemSize[T]()
	if err != nil {
		return nil // who asks is told
	}
	out := make([]int, len(counts))
	for i, n := range counts {
		if n < 0 || n > (1<<62)/size {
			out[i] = -1
			continue
		}
		out[i] = n * size
	}
	return out
}
