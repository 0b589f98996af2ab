package collectives

import (
	"context"
	"fmt"
)

// Barrier returns nil once every rank has entered it.
func Barrier(ctx context.Context, c Comm) error {
	return call(ctx, c, "barrier", &Args{})
}

// Bcast copies root's buf into buf on every other rank. All lengths are equal.
func Bcast(ctx context.Context, c Comm, buf []byte, root int) error {
	return call(ctx, c, "bcast", &Args{Recv: buf, Root: root})
}

// Reduce leaves at root, in recv, the elementwise reduction of every rank's
// send: send(0) op send(1) op ... op send(p-1), grouped in any way and, if the
// operator is commutative, in any order; which way depends on the algorithm,
// the number of ranks and root alone. recv is as long as send at root, where
// it may be send itself, and ignored elsewhere.
func Reduce(ctx context.Context, c Comm, send, recv []byte, op Op, root int) error {
	return call(ctx, c, "reduce", &Args{Send: send, Recv: recv, Op: op, Root: root})
}

// Allreduce is Reduce with the result, the same bits, on every rank. recv is
// as long as send and may be send itself.
func Allreduce(ctx context.Context, c Comm, send, recv []byte, op Op) error {
	return call(ctx, c, "allreduce", &Args{Send: send, Recv: recv, Op: op})
}

// Gather puts rank r's send at recv[r*len(send):] at root. recv holds Size()
// such blocks at root and is ignored elsewhere. All sends are equally long.
func Gather(ctx context.Context, c Comm, send, recv []byte, root int) error {
	return call(ctx, c, "gather", &Args{Send: send, Recv: recv, Root: root})
}

// Gatherv puts rank r's send at recv[displs[r]:displs[r]+counts[r]] at root.
// recv, counts and displs (all in bytes) are ignored elsewhere; counts[r] must
// be the length of rank r's send.
func Gatherv(ctx context.Context, c Comm, send, recv []byte, counts, displs []int, root int) error {
	return call(ctx, c, "gatherv", &Args{Send: send, Recv: recv, RecvCounts: counts, RecvDispls: displs, Root: root})
}

// Allgather is Gather with the result on every rank.
func Allgather(ctx context.Context, c Comm, send, recv []byte) error {
	return call(ctx, c, "allgather", &Args{Send: send, Recv: recv})
}

// Scatter fills rank r's recv from root's send[r*len(recv):]. send holds
// Size() such blocks at root and is ignored elsewhere. All recvs are equally
// long.
func Scatter(ctx context.Context, c Comm, send, recv []byte, root int) error {
	return call(ctx, c, "scatter", &Args{Send: send, Recv: recv, Root: root})
}

// Alltoall moves block d of rank s's send into block s of rank d's recv. Both
// buffers hold Size() blocks of one size.
func Alltoall(ctx context.Context, c Comm, send, recv []byte) error {
	return call(ctx, c, "alltoall", &Args{Send: send, Recv: recv})
}

// Alltoallv moves send[sdispls[d]:sdispls[d]+scounts[d]] of rank s into
// recv[rdispls[s]:rdispls[s]+rcounts[s]] of rank d. Counts and displacements
// are in bytes; what rank d expects of s must be what s has for d.
func Alltoallv(ctx context.Context, c Comm, send []byte, scounts, sdispls []int, recv []byte, rcounts, rdispls []int) error {
	return call(ctx, c, "alltoallv", &Args{Send: send, SendCounts: scounts, SendDispls: sdispls,
		Recv: recv, RecvCounts: rcounts, RecvDispls: rdispls})
}

// call checks, selects and runs.
func call(ctx context.Context, c Comm, collective string, a *Args) error {
	if err := a.check(collective, c.Rank(), c.Size()); err != nil {
		return fmt.Errorf("collectives: %s: %w", collective, err)
	}
	alg := choose(collective, a.shape(collective, c.Size()))
	return alg.start(ctx, c, a)
}
