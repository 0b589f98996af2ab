package coll

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Run carries out a collective call, whose arguments are in it.
type Run func(ctx context.Context, r *Round) error

// BcastPart is Bcast of Parts.
func BcastPart(p buffer.Part, root int) Run {
	return func(ctx context.Context, r *Round) error {
		if r.rooted(root) {
			return r.Bcast(ctx, p.Packed(), root)
		}
		b := p.Landing()
		err := r.Bcast(ctx, b, root)
		if err == nil && root != mpi.ProcNull {
			p.Land(b)
		}
		return err
	}
}

// GatherPart is Gather of Parts.
func GatherPart(send, recv buffer.Part, root int) Run {
	return func(ctx context.Context, r *Round) error {
		return r.movePart(send, recv, r.rooted(root), func(s, to []byte) error { return r.Gather(ctx, s, to, root) })
	}
}

// AllgatherPart is Allgather of Parts.
func AllgatherPart(send, recv buffer.Part) Run {
	return func(ctx context.Context, r *Round) error {
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.Allgather(ctx, s, to) })
	}
}

// ScatterPart is Scatter of Parts.
func ScatterPart(send, recv buffer.Part, root int) Run {
	return func(ctx context.Context, r *Round) error {
		out := send
		if !r.rooted(root) {
			out = buffer.Part{}
		}
		return r.movePart(out, recv, root != mpi.Root && root != mpi.ProcNull, func(s, to []byte) error { return r.Scatter(ctx, s, to, root) })
	}
}

// AlltoallPart is Alltoall of Parts.
func AlltoallPart(send, recv buffer.Part) Run {
	return func(ctx context.Context, r *Round) error {
		if n := r.Peers; send.Size%n != 0 || recv.Size%n != 0 {
			return fmt.Errorf("%w: %d bytes to send and %d to receive are not %d equal blocks", mpi.ErrCount, send.Size, recv.Size, n)
		}
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.Alltoall(ctx, s, to) })
	}
}

// GathervPart is Gatherv of Parts.
func GathervPart(send buffer.Part, recv []buffer.Part, root int) Run {
	return func(ctx context.Context, r *Round) error {
		return r.rootedParts(ctx, send, recv, root, func(call Call, one *buffer.Part) collectives.Request {
			return call.Isend(root, 0, one.Packed())
		}, func(ctx context.Context, call Call, all []move) error { return exchange(ctx, call, nil, all) })
	}
}

// ScattervPart is Scatterv of Parts.
func ScattervPart(send []buffer.Part, recv buffer.Part, root int) Run {
	return func(ctx context.Context, r *Round) error {
		return r.rootedParts(ctx, recv, send, root, func(call Call, one *buffer.Part) collectives.Request {
			return call.IrecvPart(root, one)
		}, func(ctx context.Context, call Call, all []move) error { return exchange(ctx, call, all, nil) })
	}
}

// AllgathervPart is Allgatherv of Parts.
func AllgathervPart(send buffer.Part, recv []buffer.Part) Run {
	return func(ctx context.Context, r *Round) error {
		if len(recv) != r.Peers {
			return fmt.Errorf("%w: %d parts to receive, for %d ranks", mpi.ErrCount, len(recv), r.Peers)
		}
		counts := make([]int, len(recv))
		for i := range recv {
			if recv[i].Err != nil {
				return recv[i].Err
			}
			counts[i] = recv[i].Size
		}
		displs, total, err := rowOf(counts, len(counts))
		if err != nil {
			return err
		}
		all := make([]byte, total)
		if err := r.Allgatherv(ctx, send.Packed(), all, counts, displs); err != nil {
			return err
		}
		for i := range recv {
			recv[i].Scatter(all[displs[i]:][:counts[i]], 0)
		}
		return nil
	}
}

// rooted reports whether this rank is the root.
func (r *Round) rooted(root int) bool {
	return root == mpi.Root || root == r.Rank && !r.Inter
}

// movePart lets f move packed bytes from one Part to another; receives reports whether this rank
// receives any.
func (r *Round) movePart(send, recv buffer.Part, receives bool, f func(s, to []byte) error) error {
	if send.Err != nil {
		return send.Err
	}
	if !receives {
		return f(send.Packed(), nil)
	}
	if recv.Err != nil {
		return recv.Err
	}
	b := recv.Landing()
	err := f(send.Packed(), b)
	if err == nil {
		recv.Land(b)
	}
	return err
}

// rootedParts is a call in which the root has a Part for every rank and each of them has one for
// the root. A rank's data for itself takes the same path.
func (r *Round) rootedParts(ctx context.Context, one buffer.Part, each []buffer.Part, root int,
	start func(Call, *buffer.Part) collectives.Request, finish func(context.Context, Call, []move) error) error {
	part := across
	if r.Inter {
		var err error
		if part, err = r.rootPart(root); err != nil || part == watches {
			return err
		}
	} else if err := r.checkRoot(root); err != nil {
		return err
	}
	if !r.rooted(root) {
		each = nil
	} else if n := r.Peers; len(each) != n {
		return fmt.Errorf("%w: %d parts for %d ranks", mpi.ErrCount, len(each), n)
	}
	if part == isRoot {
		one = buffer.Part{}
	}
	for _, p := range append([]buffer.Part{one}, each...) { // before anything waits
		if p.Err != nil {
			return p.Err
		}
	}
	call := r.direct()
	var own collectives.Request
	if part == across {
		own = start(call, &one)
	}
	err := finish(ctx, call, moves(each))
	if own != nil {
		err = mpi.FirstOf(err, own.Wait(ctx))
	}
	return err
}
