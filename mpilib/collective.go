package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// The functions below, and the methods of Comm with their names, which transfer Parts, are
// collective calls: all ranks of a communicator make the same ones in the same order. For an
// intercommunicator, all ranks of both groups do (MPI-4.1, section 6.2.3): data then go from each
// group to the other. If there is a root, it is in one group: it gives Root, the others of its
// group give ProcNull and take no part, and all ranks of the other group give its rank.
//
// Each has two variants. Ibcast starts a Bcast and returns a Request (MPI-4.1, section 6.12):
// several may be pending, and other calls may be made in the meantime; the order in which they are
// started counts. BcastInit prepares a Bcast, and is a collective call itself; the Persistent that
// it returns may be started repeatedly, and several in any order, which may differ between ranks
// (section 6.13); an error in its arguments is returned when a started one is waited for, and one
// whose start has failed cannot be started again. Calls of different variants do not match each
// other, like calls with different names. The call owns its buffers until it is complete; slices of
// counts and displacements may be modified at once.
//
// In place (MPI_IN_PLACE): if a rank's part of what it receives is what it sends, the slice to send
// may be that very memory. Each call documents this; other memory shared by both slices is refused,
// with ErrArg. Calls of intercommunicators have nothing in place.

//go:generate go run ./internal/forms collective_forms.go collective.go neighbor.go collective_part.go

// Root is given as root by the root of a collective call of an intercommunicator (MPI_ROOT).
const Root = mpi.Root

// Barrier returns nil once every rank has entered it; on an intercommunicator,
// once every rank of the other group has (MPI_Barrier; MPI-4.1, section 6.3).
func Barrier(ctx context.Context, comm *Comm) error { return BarrierCall(comm).Call(ctx) }

// Bcast copies root's buf into buf on every rank (MPI_Bcast; MPI-4.1, section
// 6.4). All have the same length.
func Bcast[T Elem](ctx context.Context, comm *Comm, buf []T, root int) error {
	return blocking(ctx, comm, calls.Bcast(buf, root))
}

// Reduce leaves at root, in recv, the elementwise reduction of every rank's
// send in rank order (MPI_Reduce; MPI-4.1, section 6.9.1). recv is as long as
// send at root, where it may be send itself, and ignored elsewhere.
func Reduce[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T], root int) error {
	return blocking(ctx, comm, calls.Reduce(send, recv, op.reduction(), root))
}

// Allreduce is Reduce with the result, the same bits, on every rank
// (MPI_Allreduce; MPI-4.1, section 6.9.6); on an intercommunicator, that of the
// other group's ranks. recv is as long as send and may be send itself.
func Allreduce[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T]) error {
	return blocking(ctx, comm, calls.Allreduce(send, recv, op.reduction()))
}

// ReduceScatter is Allreduce, but rank r gets only counts[r] elements of the result, after those of
// the lower ranks, in recv (MPI_Reduce_scatter; MPI-4.1, section 6.10.2). counts add up to the
// length of send, and are the same on all ranks; for an intercommunicator, on all ranks of the
// group, with the same sum in the other. recv may be any part of send.
func ReduceScatter[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts []int, op Op[T]) error {
	return blocking(ctx, comm, calls.ReduceScatter(send, recv, counts, op.reduction()))
}

// ReduceScatterBlock is ReduceScatter where every rank gets the same number of
// elements (MPI_Reduce_scatter_block; MPI-4.1, section 6.10.1).
func ReduceScatterBlock[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T]) error {
	return blocking(ctx, comm, calls.ReduceScatterBlock(send, recv, op.reduction()))
}

// Scan leaves at rank r, in recv, the reduction of the sends of ranks 0 to r, in their order
// (MPI_Scan; MPI-4.1, section 6.11.1). recv is as long as send and may be send itself.
// Intercommunicators do not support it.
func Scan[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T]) error {
	return blocking(ctx, comm, calls.Scan(send, recv, op.reduction()))
}

// Exscan is Scan without a rank's own send: rank r gets the reduction of ranks 0 to r-1, and recv
// of rank 0 is unchanged (MPI_Exscan; MPI-4.1, section 6.11.2).
func Exscan[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T]) error {
	return blocking(ctx, comm, calls.Exscan(send, recv, op.reduction()))
}

// Gather puts rank r's send at recv[r*len(send):] at root (MPI_Gather; MPI-4.1, section 6.5). recv
// must hold all of them there, and is ignored elsewhere. At root send may be its own block of recv.
func Gather[T Elem](ctx context.Context, comm *Comm, send, recv []T, root int) error {
	return blocking(ctx, comm, calls.Gather(send, recv, root))
}

// Gatherv puts rank r's send at recv[displs[r]:displs[r]+counts[r]] at root
// (MPI_Gatherv; MPI-4.1, section 6.5). Counts and displacements are in elements;
// they and recv are ignored elsewhere. counts[r] must be the length of rank r's
// send. At root send may be its own block of recv.
func Gatherv[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts, displs []int, root int) error {
	return blocking(ctx, comm, calls.Gatherv(send, recv, counts, displs, root))
}

// Allgather is Gather with the result on every rank, where send may be the rank's own
// block of recv (MPI_Allgather; MPI-4.1, section 6.7).
func Allgather[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return blocking(ctx, comm, calls.Allgather(send, recv))
}

// Allgatherv is Gatherv with the result on every rank, where send may be the rank's own block of
// recv; all ranks give the same counts, but displacements may differ (MPI_Allgatherv; MPI-4.1,
// section 6.7).
func Allgatherv[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts, displs []int) error {
	return blocking(ctx, comm, calls.Allgatherv(send, recv, counts, displs))
}

// Scatter fills rank r's recv from root's send[r*len(recv):] (MPI_Scatter; MPI-4.1, section 6.6).
// send must hold the elements for all ranks there, and is ignored elsewhere. At root recv may be
// its own block of send.
func Scatter[T Elem](ctx context.Context, comm *Comm, send, recv []T, root int) error {
	return blocking(ctx, comm, calls.Scatter(send, recv, root))
}

// Scatterv fills rank r's recv, which has counts[r] elements, from root's
// send[displs[r]:] (MPI_Scatterv; MPI-4.1, section 6.6). send, counts and
// displacements, in elements, are ignored elsewhere. At root recv may be its own block
// of send.
func Scatterv[T Elem](ctx context.Context, comm *Comm, send []T, counts, displs []int, recv []T, root int) error {
	return blocking(ctx, comm, calls.Scatterv(send, counts, displs, recv, root))
}

// Alltoall moves block d of rank s's send into block s of rank d's recv (MPI_Alltoall; MPI-4.1,
// section 6.8). Both hold a block for every rank, all of one size. They may be the same slice.
func Alltoall[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return blocking(ctx, comm, calls.Alltoall(send, recv))
}

// Alltoallv moves send[sdispls[d]:sdispls[d]+scounts[d]] of rank s into
// recv[rdispls[s]:rdispls[s]+rcounts[s]] of rank d (MPI_Alltoallv; MPI-4.1, section 6.8). Counts
// and displacements are in elements; the count that rank d expects from s must be the count that s
// sends to d. The two may be the same slice.
func Alltoallv[T Elem](ctx context.Context, comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	return blocking(ctx, comm, calls.Alltoallv(send, scounts, sdispls, recv, rcounts, rdispls))
}

// Alltoallw moves send[d] of rank s into recv[s] of rank d: every block has its own memory and its
// own type (MPI_Alltoallw; MPI-4.1, section 6.8). send[r] and recv[r] may be the same memory.
func Alltoallw(ctx context.Context, comm *Comm, send, recv []Part) error {
	return AlltoallwParts(comm, send, recv).Call(ctx)
}
