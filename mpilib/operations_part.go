package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
)

// The collective calls that move Parts, each written down once.

func bcastPart(p buffer.Part, root int) *operation {
	return &operation{"Bcast", loose(root), p.Err, func(ctx context.Context, r *round) error {
		if r.rooted(root) {
			return r.bcast(ctx, p.Packed(), root)
		}
		b := p.Landing()
		err := r.bcast(ctx, b, root)
		if err == nil && root != ProcNull {
			p.Land(b)
		}
		return err
	}}
}

func gatherPart(send, recv buffer.Part, root int) *operation {
	return &operation{"Gather", loose(root), send.Err, func(ctx context.Context, r *round) error {
		return r.movePart(send, recv, r.rooted(root), func(s, to []byte) error { return r.gather(ctx, s, to, root) })
	}}
}

func allgatherPart(send, recv buffer.Part) *operation {
	return &operation{"Allgather", debug.Args{Loose: true}, send.Err, func(ctx context.Context, r *round) error {
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.allgather(ctx, s, to) })
	}}
}

func scatterPart(send, recv buffer.Part, root int) *operation {
	return &operation{name: "Scatter", args: loose(root), run: func(ctx context.Context, r *round) error {
		out := send
		if !r.rooted(root) {
			out = buffer.Part{}
		}
		return r.movePart(out, recv, root != Root && root != ProcNull, func(s, to []byte) error { return r.scatter(ctx, s, to, root) })
	}}
}

func alltoallPart(send, recv buffer.Part) *operation {
	return &operation{"Alltoall", debug.Args{Loose: true}, send.Err, func(ctx context.Context, r *round) error {
		if n := r.comm.peers.Size(); send.Size%n != 0 || recv.Size%n != 0 {
			return fmt.Errorf("%w: %d bytes to send and %d to receive are not %d equal blocks", ErrCount, send.Size, recv.Size, n)
		}
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.alltoall(ctx, s, to) })
	}}
}

func gathervPart(send buffer.Part, recv []buffer.Part, root int) *operation {
	return &operation{name: "Gatherv", args: loose(root), run: func(ctx context.Context, r *round) error {
		return r.rootedParts(ctx, send, recv, root, func(call *collectiveCall, one *buffer.Part) collectives.Request {
			return call.Isend(root, 0, one.Packed())
		}, func(ctx context.Context, call *collectiveCall, all []move) error { return call.exchange(ctx, nil, all) })
	}}
}

func scattervPart(send []buffer.Part, recv buffer.Part, root int) *operation {
	return &operation{name: "Scatterv", args: loose(root), run: func(ctx context.Context, r *round) error {
		return r.rootedParts(ctx, recv, send, root, func(call *collectiveCall, one *buffer.Part) collectives.Request {
			return call.irecvPart(root, one)
		}, func(ctx context.Context, call *collectiveCall, all []move) error { return call.exchange(ctx, all, nil) })
	}}
}

func allgathervPart(send buffer.Part, recv []buffer.Part) *operation {
	return &operation{"Allgatherv", debug.Args{Loose: true}, send.Err, func(ctx context.Context, r *round) error {
		if len(recv) != r.comm.peers.Size() {
			return fmt.Errorf("%w: %d parts to receive, for %d ranks", ErrCount, len(recv), r.comm.peers.Size())
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
		if err := r.allgatherv(ctx, send.Packed(), all, counts, displs); err != nil {
			return err
		}
		for i := range recv {
			recv[i].Scatter(all[displs[i]:][:counts[i]], 0)
		}
		return nil
	}}
}

// rooted reports whether this rank is the root.
func (r *round) rooted(root int) bool {
	return root == Root || root == r.comm.rank && !r.inter()
}

// movePart has f move packed bytes from one Part to another; receives tells whether
// this rank gets any.
func (r *round) movePart(send, recv buffer.Part, receives bool, f func(s, to []byte) error) error {
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

// rootedParts is a call in which the root has a Part for every rank and each of
// them has one for the root. What a rank has for itself goes the same way.
func (r *round) rootedParts(ctx context.Context, one buffer.Part, each []buffer.Part, root int,
	start func(*collectiveCall, *buffer.Part) collectives.Request, finish func(context.Context, *collectiveCall, []move) error) error {
	part := across
	if r.inter() {
		var err error
		if part, err = r.rootPart(root); err != nil || part == watches {
			return err
		}
	} else if err := r.comm.checkRoot(root); err != nil {
		return err
	}
	if !r.rooted(root) {
		each = nil
	} else if n := r.comm.peers.Size(); len(each) != n {
		return fmt.Errorf("%w: %d parts for %d ranks", ErrCount, len(each), n)
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
		err = firstOf(err, own.Wait(ctx))
	}
	return err
}
