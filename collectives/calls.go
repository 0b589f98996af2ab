package collectives

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// Barrier returns nil once every rank has entered it.
func Barrier(ctx context.Context, c Comm) error {
	return carryOut(ctx, c, operation.Barrier, &Args{})
}

// Bcast copies root's buf into buf on every other rank. All lengths are equal.
func Bcast(ctx context.Context, c Comm, buf []byte, root int) error {
	return carryOut(ctx, c, operation.Bcast, &Args{Recv: buf, Root: root})
}

// Reduce leaves at root, in recv, the elementwise reduction of every rank's send: send(0) op
// send(1) op ... op send(p-1), grouped in any way and, if the operator is commutative, in any
// order; grouping and order depend only on the algorithm, the number of ranks and root. recv is as
// long as send at root, where it may be send itself, and ignored elsewhere.
func Reduce(ctx context.Context, c Comm, send, recv []byte, op Op, root int) error {
	return carryOut(ctx, c, operation.Reduce, &Args{Send: send, Recv: recv, Op: op, Root: root})
}

// Allreduce is Reduce with the result, the same bits, on every rank. recv is
// as long as send and may be send itself.
func Allreduce(ctx context.Context, c Comm, send, recv []byte, op Op) error {
	return carryOut(ctx, c, operation.Allreduce, &Args{Send: send, Recv: recv, Op: op})
}

// Gather puts rank r's send at recv[r*len(send):] at root. recv holds Size()
// such blocks at root and is ignored elsewhere. All sends are equally long.
func Gather(ctx context.Context, c Comm, send, recv []byte, root int) error {
	return carryOut(ctx, c, operation.Gather, &Args{Send: send, Recv: recv, Root: root})
}

// Gatherv puts rank r's send at recv[displs[r]:displs[r]+counts[r]] at root.
// recv, counts and displs (all in bytes) are ignored elsewhere; counts[r] must
// be the length of rank r's send.
func Gatherv(ctx context.Context, c Comm, send, recv []byte, counts, displs []int, root int) error {
	return carryOut(ctx, c, operation.Gatherv, &Args{Send: send, Recv: recv, RecvCounts: counts, RecvDispls: displs, Root: root})
}

// Allgather is Gather with the result on every rank.
func Allgather(ctx context.Context, c Comm, send, recv []byte) error {
	return carryOut(ctx, c, operation.Allgather, &Args{Send: send, Recv: recv})
}

// Scatter fills rank r's recv from root's send[r*len(recv):]. send holds
// Size() such blocks at root and is ignored elsewhere. All recvs are equally
// long.
func Scatter(ctx context.Context, c Comm, send, recv []byte, root int) error {
	return carryOut(ctx, c, operation.Scatter, &Args{Send: send, Recv: recv, Root: root})
}

// Allgatherv is Gatherv with the result on every rank; all have the same counts.
func Allgatherv(ctx context.Context, c Comm, send, recv []byte, counts, displs []int) error {
	return carryOut(ctx, c, operation.Allgatherv, &Args{Send: send, Recv: recv, RecvCounts: counts, RecvDispls: displs})
}

// Scatterv fills rank r's recv from root's send[displs[r]:displs[r]+counts[r]]. send,
// counts and displs (all in bytes) are ignored elsewhere; counts[r] must be the length
// of rank r's recv.
func Scatterv(ctx context.Context, c Comm, send []byte, counts, displs []int, recv []byte, root int) error {
	return carryOut(ctx, c, operation.Scatterv, &Args{Send: send, SendCounts: counts, SendDispls: displs, Recv: recv, Root: root})
}

// ReduceScatter reduces every rank's send as Allreduce does and leaves at rank r block r
// of the result, which is counts[r] bytes long. The blocks follow one another; all ranks
// have the same counts, in bytes. recv may be a part of send.
func ReduceScatter(ctx context.Context, c Comm, send, recv []byte, counts []int, op Op) error {
	return carryOut(ctx, c, operation.ReduceScatter, &Args{Send: send, Recv: recv, RecvCounts: counts, Op: op})
}

// ReduceScatterBlock is ReduceScatter with blocks of one length, that of recv.
func ReduceScatterBlock(ctx context.Context, c Comm, send, recv []byte, op Op) error {
	return carryOut(ctx, c, operation.ReduceScatterBlock, &Args{Send: send, Recv: recv, Op: op})
}

// Scan leaves at rank r, in recv, the reduction of the sends of ranks 0 to r. recv is as
// long as send and may be send itself.
func Scan(ctx context.Context, c Comm, send, recv []byte, op Op) error {
	return carryOut(ctx, c, operation.Scan, &Args{Send: send, Recv: recv, Op: op})
}

// Exscan is Scan without a rank's own send: rank r gets the reduction of ranks 0 to r-1, and rank
// 0's recv is left unchanged.
func Exscan(ctx context.Context, c Comm, send, recv []byte, op Op) error {
	return carryOut(ctx, c, operation.Exscan, &Args{Send: send, Recv: recv, Op: op})
}

// Alltoall moves block d of rank s's send into block s of rank d's recv. Both
// buffers hold Size() blocks of one size.
func Alltoall(ctx context.Context, c Comm, send, recv []byte) error {
	return carryOut(ctx, c, operation.Alltoall, &Args{Send: send, Recv: recv})
}

// Alltoallv moves send[sdispls[d]:sdispls[d]+scounts[d]] of rank s into
// recv[rdispls[s]:rdispls[s]+rcounts[s]] of rank d. Counts and displacements are in bytes; the
// count that rank d expects from s must be the count that s has for d.
func Alltoallv(ctx context.Context, c Comm, send []byte, scounts, sdispls []int, recv []byte, rcounts, rdispls []int) error {
	return carryOut(ctx, c, operation.Alltoallv, &Args{Send: send, SendCounts: scounts, SendDispls: sdispls,
		Recv: recv, RecvCounts: rcounts, RecvDispls: rdispls})
}

// carryOut checks the arguments, chooses an algorithm and runs it.
func carryOut(ctx context.Context, c Comm, collective operation.Operation, a *Args) error {
	p := c.Planner()
	if err := a.check(collective, p.rank, p.size); err != nil {
		return fmt.Errorf("collectives: %s: %w", collective, err)
	}
	what := a.call(collective)
	posts := 0
	if b, ok := c.(SharedBuffer); ok {
		posts = b.Posts()
	}
	i, ok := c.(Internal)
	alg, err := p.choose(&what, posts, ok && i.Internal())
	if err != nil {
		return err
	}
	return alg.run(ctx, c, a, &what)
}
