package coll

import (
	"context"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
)

// The reductions of Parts. The operator is one of elements as they are in messages.

// ReducePart is Reduce of Parts.
func ReducePart(send, recv buffer.Part, op collectives.Op, root int) Run {
	return func(ctx context.Context, r *Round) error {
		return r.movePart(send, recv, r.rooted(root), func(s, to []byte) error { return r.Reduce(ctx, s, to, op, root) })
	}
}

// AllreducePart is Allreduce of Parts. Where they are messages as they are, the Run keeps only these: a small call's time is
// that of its allocations.
func AllreducePart(send, recv buffer.Part, op collectives.Op) Run {
	if send.Err == nil && recv.Err == nil && !send.Pieces && !recv.Pieces {
		s, to := send.Message, recv.Message
		return func(ctx context.Context, r *Round) error { return r.Allreduce(ctx, s, to, op) }
	}
	return func(ctx context.Context, r *Round) error {
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.Allreduce(ctx, s, to, op) })
	}
}

// ReduceScatterPart is ReduceScatter of Parts; counts are in bytes.
func ReduceScatterPart(send, recv buffer.Part, counts []int, op collectives.Op) Run {
	return func(ctx context.Context, r *Round) error {
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.ReduceScatter(ctx, s, to, counts, op) })
	}
}

// ReduceScatterBlockPart is ReduceScatterBlock of Parts.
func ReduceScatterBlockPart(send, recv buffer.Part, op collectives.Op) Run {
	return func(ctx context.Context, r *Round) error {
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.ReduceScatterBlock(ctx, s, to, op) })
	}
}

// ScanPart is Scan of Parts.
func ScanPart(send, recv buffer.Part, op collectives.Op) Run {
	return func(ctx context.Context, r *Round) error {
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.Scan(ctx, s, to, op, collectives.Scan) })
	}
}

// ExscanPart is Exscan of Parts. Rank 0's recv is not significant.
func ExscanPart(send, recv buffer.Part, op collectives.Op) Run {
	return func(ctx context.Context, r *Round) error {
		in := recv
		if r.Rank == 0 && (recv.Err != nil || recv.Pieces || recv.Size != send.Size) {
			in = buffer.PartOf(make([]byte, send.Size)) // unused
		}
		return r.movePart(send, in, true, func(s, to []byte) error { return r.Scan(ctx, s, to, op, collectives.Exscan) })
	}
}
