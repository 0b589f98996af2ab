package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
)

// Bcast is the package's Bcast of a Part. The ranks' types may differ as long as
// they have the same basic elements.
func (c *Comm) Bcast(ctx context.Context, p Part, root int) error {
	return c.collective("Bcast", loose(root), func(r *round) error {
		if p.err != nil {
			return p.err
		}
		if r.rooted(root) {
			return r.bcast(ctx, p.packed(), root)
		}
		b := p.landing()
		err := r.bcast(ctx, b, root)
		if err == nil && root != ProcNull {
			p.land(b)
		}
		return err
	})
}

// Gather is the package's Gather of Parts. recv has the elements of all ranks, one
// rank's behind the other's; it is ignored where there is no root.
func (c *Comm) Gather(ctx context.Context, send, recv Part, root int) error {
	return c.collective("Gather", loose(root), func(r *round) error {
		return r.movePart(send, recv, r.rooted(root), func(s, to []byte) error { return r.gather(ctx, s, to, root) })
	})
}

// Allgather is the package's Allgather of Parts; recv is as Gather's.
func (c *Comm) Allgather(ctx context.Context, send, recv Part) error {
	return c.collective("Allgather", callArgs{loose: true}, func(r *round) error {
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.allgather(ctx, s, to) })
	})
}

// Scatter is the package's Scatter of Parts. send has the elements of all ranks, one
// rank's behind the other's; it is ignored where there is no root.
func (c *Comm) Scatter(ctx context.Context, send, recv Part, root int) error {
	return c.collective("Scatter", loose(root), func(r *round) error {
		if !r.rooted(root) {
			send = Part{}
		}
		return r.movePart(send, recv, root != Root && root != ProcNull, func(s, to []byte) error { return r.scatter(ctx, s, to, root) })
	})
}

// Alltoall is the package's Alltoall of Parts, which have the elements for, and of,
// all ranks, one rank's behind the other's.
func (c *Comm) Alltoall(ctx context.Context, send, recv Part) error {
	return c.collective("Alltoall", callArgs{loose: true}, func(r *round) error {
		if n := c.peers.Size(); send.size%n != 0 || recv.size%n != 0 {
			return fmt.Errorf("%w: %d bytes to send and %d to receive are not %d equal blocks", ErrCount, send.size, recv.size, n)
		}
		return r.movePart(send, recv, true, func(s, to []byte) error { return r.alltoall(ctx, s, to) })
	})
}

// Gatherv is Gather with a Part for every rank: recv[r] is filled with rank r's send
// (MPI_Gatherv; MPI-4.1, section 6.5).
func (c *Comm) Gatherv(ctx context.Context, send Part, recv []Part, root int) error {
	return c.collective("Gatherv", loose(root), func(r *round) error {
		return r.rootedParts(ctx, send, recv, root, func(call *collectiveCall, one *Part) collectives.Request {
			return call.Isend(root, one.packed())
		}, func(call *collectiveCall, all []move) error { return call.exchange(ctx, nil, all) })
	})
}

// Scatterv is Scatter with a Part for every rank: send[r] goes to rank r
// (MPI_Scatterv; MPI-4.1, section 6.6).
func (c *Comm) Scatterv(ctx context.Context, send []Part, recv Part, root int) error {
	return c.collective("Scatterv", loose(root), func(r *round) error {
		return r.rootedParts(ctx, recv, send, root, func(call *collectiveCall, one *Part) collectives.Request {
			return call.irecvPart(root, one)
		}, func(call *collectiveCall, all []move) error { return call.exchange(ctx, all, nil) })
	})
}

// Allgatherv is Allgather with a Part for every rank: recv[r] is filled with rank
// r's send (MPI_Allgatherv; MPI-4.1, section 6.7).
func (c *Comm) Allgatherv(ctx context.Context, send Part, recv []Part) error {
	return c.collective("Allgatherv", callArgs{loose: true}, func(r *round) error {
		if send.err != nil {
			return send.err
		}
		if len(recv) != c.peers.Size() {
			return fmt.Errorf("%w: %d parts to receive, for %d ranks", ErrCount, len(recv), c.peers.Size())
		}
		counts := make([]int, len(recv))
		for i := range recv {
			if recv[i].err != nil {
				return recv[i].err
			}
			counts[i] = recv[i].size
		}
		displs, total, err := rowOf(counts, len(counts))
		if err != nil {
			return err
		}
		all := make([]byte, total)
		if err := r.allgatherv(ctx, send.packed(), all, counts, displs); err != nil {
			return err
		}
		for i := range recv {
			recv[i].scatter(all[displs[i]:][:counts[i]], 0)
		}
		return nil
	})
}

// rooted reports whether this rank is the root.
func (r *round) rooted(root int) bool {
	return root == Root || root == r.comm.rank && !r.inter()
}

// movePart has f move packed bytes from one Part to another; receives tells whether
// this rank gets any.
func (r *round) movePart(send, recv Part, receives bool, f func(s, to []byte) error) error {
	if send.err != nil {
		return send.err
	}
	if !receives {
		return f(send.packed(), nil)
	}
	if recv.err != nil {
		return recv.err
	}
	b := recv.landing()
	err := f(send.packed(), b)
	if err == nil {
		recv.land(b)
	}
	return err
}

// rootedParts is a call in which the root has a Part for every rank and each of
// them has one for the root. What a rank has for itself goes the same way.
func (r *round) rootedParts(ctx context.Context, one Part, each []Part, root int,
	start func(*collectiveCall, *Part) collectives.Request, finish func(*collectiveCall, []move) error) error {
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
		one = Part{}
	}
	for _, p := range append([]Part{one}, each...) { // before anything waits
		if p.err != nil {
			return p.err
		}
	}
	call := r.direct()
	var own collectives.Request
	if part == across {
		own = start(call, &one)
	}
	err := finish(call, moves(each))
	if own != nil {
		err = firstOf(err, own.Wait(ctx))
	}
	return err
}
