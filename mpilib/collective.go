package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// The functions below, and the methods of Comm with their names, which move Parts,
// are collective calls: all ranks of a communicator make the same ones in the same
// order. Of an intercommunicator all ranks of both groups do (MPI-4.1, section
// 6.2.3): data then go from each group to the other. Where there is a root, it is
// in one group: it gives Root, the others of its group give ProcNull and take no
// part, and all of the other group give its rank.

// Barrier returns nil once every rank has entered it; on an intercommunicator,
// once every rank of the other group has (MPI_Barrier; MPI-4.1, section 6.3).
func Barrier(ctx context.Context, comm *Comm) error {
	return comm.collective("Barrier", callArgs{}, func(r *round) error { return r.barrier(ctx) })
}

// Bcast copies root's buf into buf on every rank (MPI_Bcast; MPI-4.1, section
// 6.4). All have the same length.
func Bcast[T Elem](ctx context.Context, comm *Comm, buf []T, root int) error {
	return comm.collective("Bcast", rooted[T](root, len(buf)), func(r *round) error {
		b, err := view(buf)
		if err != nil {
			return err
		}
		return r.bcast(ctx, b, root)
	})
}

// Reduce leaves at root, in recv, the elementwise reduction of every rank's
// send in rank order (MPI_Reduce; MPI-4.1, section 6.9.1). recv is as long as
// send at root, where it may be send itself, and ignored elsewhere.
func Reduce[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T], root int) error {
	return reduction(comm, "Reduce", rooted[T](root, len(send)), send, recv, op, func(r *round, s, to []byte, o collectives.Op) error {
		return r.reduce(ctx, s, to, o, root)
	})
}

// Allreduce is Reduce with the result, the same bits, on every rank
// (MPI_Allreduce; MPI-4.1, section 6.9.6); on an intercommunicator, that of the
// other group's ranks. recv is as long as send and may be send itself.
func Allreduce[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T]) error {
	return reduction(comm, "Allreduce", counted[T](len(send)), send, recv, op, func(r *round, s, to []byte, o collectives.Op) error {
		return r.allreduce(ctx, s, to, o)
	})
}

// ReduceScatter is Allreduce of which rank r gets only the counts[r] elements
// behind those of the lower ranks, in recv (MPI_Reduce_scatter; MPI-4.1, section
// 6.10.2). counts add up to the length of send, and are the same on all ranks; of
// an intercommunicator, on all ranks of the group, with the same sum in the other.
func ReduceScatter[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts []int, op Op[T]) error {
	return reduction(comm, "ReduceScatter", counted[T](len(send)), send, recv, op, func(r *round, s, to []byte, o collectives.Op) error {
		return r.reduceScatter(ctx, s, to, times(counts, o.Elem), o)
	})
}

// ReduceScatterBlock is ReduceScatter where every rank gets the same number of
// elements (MPI_Reduce_scatter_block; MPI-4.1, section 6.10.1).
func ReduceScatterBlock[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T]) error {
	return reduction(comm, "ReduceScatterBlock", counted[T](len(send)), send, recv, op, func(r *round, s, to []byte, o collectives.Op) error {
		counts := make([]int, comm.Size())
		for i := range counts {
			counts[i] = len(to)
		}
		return r.reduceScatter(ctx, s, to, counts, o)
	})
}

// Gather puts rank r's send at recv[r*len(send):] at root (MPI_Gather; MPI-4.1,
// section 6.5). recv has room for all of them there, and is ignored elsewhere.
func Gather[T Elem](ctx context.Context, comm *Comm, send, recv []T, root int) error {
	return moving(comm, "Gather", rooted[T](root, len(send)), send, recv, func(r *round, s, to []byte, _ int) error {
		return r.gather(ctx, s, to, root)
	})
}

// Gatherv puts rank r's send at recv[displs[r]:displs[r]+counts[r]] at root
// (MPI_Gatherv; MPI-4.1, section 6.5). Counts and displacements are in elements;
// they and recv are ignored elsewhere. counts[r] must be the length of rank r's
// send.
func Gatherv[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts, displs []int, root int) error {
	return moving(comm, "Gatherv", rootOnly[T](root), send, recv, func(r *round, s, to []byte, size int) error {
		return r.gatherv(ctx, s, to, times(counts, size), times(displs, size), root)
	})
}

// Allgather is Gather with the result on every rank (MPI_Allgather; MPI-4.1,
// section 6.7).
func Allgather[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return moving(comm, "Allgather", counted[T](len(send)), send, recv, func(r *round, s, to []byte, _ int) error {
		return r.allgather(ctx, s, to)
	})
}

// Allgatherv is Gatherv with the result on every rank; all give counts and
// displacements (MPI_Allgatherv; MPI-4.1, section 6.7).
func Allgatherv[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts, displs []int) error {
	return moving(comm, "Allgatherv", typeOnly[T](), send, recv, func(r *round, s, to []byte, size int) error {
		return r.allgatherv(ctx, s, to, times(counts, size), times(displs, size))
	})
}

// Scatter fills rank r's recv from root's send[r*len(recv):] (MPI_Scatter;
// MPI-4.1, section 6.6). send has the elements for all of them there, and is
// ignored elsewhere.
func Scatter[T Elem](ctx context.Context, comm *Comm, send, recv []T, root int) error {
	return moving(comm, "Scatter", rooted[T](root, len(recv)), send, recv, func(r *round, s, to []byte, _ int) error {
		return r.scatter(ctx, s, to, root)
	})
}

// Scatterv fills rank r's recv, which has counts[r] elements, from root's
// send[displs[r]:] (MPI_Scatterv; MPI-4.1, section 6.6). send, counts and
// displacements, in elements, are ignored elsewhere.
func Scatterv[T Elem](ctx context.Context, comm *Comm, send []T, counts, displs []int, recv []T, root int) error {
	return moving(comm, "Scatterv", rootOnly[T](root), send, recv, func(r *round, s, to []byte, size int) error {
		return r.scatterv(ctx, s, times(counts, size), times(displs, size), to, root)
	})
}

// Alltoall moves block d of rank s's send into block s of rank d's recv
// (MPI_Alltoall; MPI-4.1, section 6.8). Both hold a block for every rank, of one
// size. They must not overlap.
func Alltoall[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return moving(comm, "Alltoall", counted[T](len(send)), send, recv, func(r *round, s, to []byte, _ int) error {
		if n := comm.peers.Size(); len(send)%n != 0 || len(recv)%n != 0 {
			return fmt.Errorf("%w: %d elements to send and %d to receive are not %d equal blocks", ErrCount, len(send), len(recv), n)
		}
		return r.alltoall(ctx, s, to)
	})
}

// Alltoallv moves send[sdispls[d]:sdispls[d]+scounts[d]] of rank s into
// recv[rdispls[s]:rdispls[s]+rcounts[s]] of rank d (MPI_Alltoallv; MPI-4.1,
// section 6.8). Counts and displacements are in elements; what rank d expects of
// s must be what s has for d.
func Alltoallv[T Elem](ctx context.Context, comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	return moving(comm, "Alltoallv", typeOnly[T](), send, recv, func(r *round, s, to []byte, size int) error {
		return r.alltoallv(ctx, s, times(scounts, size), times(sdispls, size), to, times(rcounts, size), times(rdispls, size))
	})
}

// Alltoallw moves send[d] of rank s into recv[s] of rank d: every block is memory
// of its own and has a type of its own (MPI_Alltoallw; MPI-4.1, section 6.8).
func Alltoallw(ctx context.Context, comm *Comm, send, recv []Part) error {
	return comm.collective("Alltoallw", callArgs{}, func(r *round) error { return r.alltoallw(ctx, send, recv) })
}

// collective makes one collective call; args are as nextCall's.
func (c *Comm) collective(name string, args callArgs, f func(r *round) error) error {
	r, err := c.nextRound(args)
	if err == nil {
		err = f(r)
	}
	return c.called(name, err)
}

// moving is collective for calls that move elements; size is that of one.
func moving[T Elem](comm *Comm, name string, args callArgs, send, recv []T, f func(r *round, s, to []byte, size int) error) error {
	return comm.collective(name, args, func(r *round) error {
		s, to, size, err := views(send, recv)
		if err != nil {
			return err
		}
		return f(r, s, to, size)
	})
}

// reduction is collective for calls that reduce.
func reduction[T Elem](comm *Comm, name string, args callArgs, send, recv []T, op Op[T], f func(r *round, s, to []byte, o collectives.Op) error) error {
	return comm.collective(name, args.with(op), func(r *round) error {
		s, to, _, err := views(send, recv)
		if err != nil {
			return err
		}
		o, err := bytesOp(op)
		if err != nil {
			return err
		}
		return f(r, s, to, o)
	})
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
func times(counts []int, size int) []int {
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

// called says in which call err came up and has the communicator's error
// handler see it.
func (c *Comm) called(name string, err error) error {
	if w := c.world.watch; w != nil {
		w.left(c)
	}
	if err != nil {
		return c.raise(fmt.Errorf("mpilib: %s on %s, rank %d%s: %w", name, c.Name(), c.rank, c.world.watch.line(), err))
	}
	return nil
}

// nextCall begins a collective call of an intracommunicator. Also one that
// then fails for its arguments counts, so that the ranks stay in step. args are those
// that all ranks must give alike; they are for the debug mode.
func (c *Comm) nextCall(args ...callArgs) (*collectiveCall, error) {
	if c.isInter() {
		return nil, fmt.Errorf("%w: call Merge for one communicator of both groups, or use Local for this group's", ErrIntercomm)
	}
	c.mu.Lock()
	if err := c.usable(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if c.world.engine.Revoked(c.context) {
		c.mu.Unlock()
		return nil, ErrRevoked
	}
	tag := c.calls
	c.calls = (c.calls + 1) & MaxTag
	c.mu.Unlock()
	call := &collectiveCall{comm: c, context: c.context + collectiveContext, tag: int(tag)}
	if w := c.world.watch; w != nil {
		call.seen = w.entered(c, tag, args)
	}
	return call, nil
}

// collectiveCall is one collective call's collectives.Comm: its messages have
// a context that point-to-point messages do not, and the call's tag.
type collectiveCall struct {
	comm    *Comm
	context uint32
	tag     int
	seen    *calling // in debug mode; else nil
	pair    bool     // only two ranks make it, who need no other
	whole   *Comm    // whose call it is a part of, where that is not comm
}

// needs returns the communicator of which the call needs all processes, or nil.
func (c *collectiveCall) needs() *Comm {
	switch {
	case c.pair:
		return nil
	case c.whole != nil:
		return c.whole
	}
	return c.comm
}

// part notes that a request is a part of the call.
func (c *collectiveCall) part(r *Request) *Request {
	if r.seen != nil {
		r.seen.partOf(c.seen, r.what.send)
	}
	return r
}

func (c *collectiveCall) Rank() int { return c.comm.rank }
func (c *collectiveCall) Size() int { return c.comm.Size() }

func (c *collectiveCall) Send(ctx context.Context, dst int, buf []byte) error {
	return c.Isend(dst, buf).Wait(ctx)
}

func (c *collectiveCall) Recv(ctx context.Context, src int, buf []byte) error {
	return c.Irecv(src, buf).Wait(ctx)
}

func (c *collectiveCall) Isend(dst int, buf []byte) collectives.Request {
	what := transfer{comm: c.comm, send: true, peer: dst, tag: c.tag, elem: 1, needs: c.needs()}
	return exactly{c.part(c.comm.isend(what, c.context, buf, engine.Standard, false)), len(buf)}
}

func (c *collectiveCall) Irecv(src int, buf []byte) collectives.Request {
	what := transfer{comm: c.comm, peer: src, tag: c.tag, elem: 1, needs: c.needs()}
	return exactly{c.part(c.comm.irecv(what, c.context, buf)), len(buf)}
}

// WaitAny is that of several requests of this call.
func (c *collectiveCall) WaitAny(ctx context.Context, requests []collectives.Request) (int, error) {
	if len(requests) == 1 { // who waits for one alone may read its link itself
		q := requests[0].(exactly)
		if err := q.r.await(ctx); err != nil && ctx.Err() != nil {
			return 0, err
		}
		return 0, nil
	}
	all := make([]*Request, len(requests))
	for i, q := range requests {
		all[i] = q.(exactly).r
	}
	return waitAny(ctx, all)
}

// irecvPart is Irecv into a Part.
func (c *collectiveCall) irecvPart(src int, p *Part) collectives.Request {
	into := &arrival{part: *p, buf: p.landing()}
	what := transfer{comm: c.comm, peer: src, tag: c.tag, elem: 1, needs: c.needs()}
	r := c.part(c.comm.irecv(what, c.context, into.buf))
	r.into = into
	return exactly{r, p.size}
}

// exactly is a request whose message must have the length of its buffer.
type exactly struct {
	r *Request
	n int
}

func (e exactly) Wait(ctx context.Context) error {
	if err := e.r.await(ctx); err != nil {
		return err
	}
	st, err := e.r.status()
	if err == nil && !e.r.what.send && st.Bytes != e.n {
		err = fmt.Errorf("%w: the message has %d bytes, the buffer %d; do all ranks give the same counts?", ErrCount, st.Bytes, e.n)
	}
	return err
}
