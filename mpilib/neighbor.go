package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
)

// Neighbourhood collectives. Each has two variants, as in collective.go: the nonblocking one of
// MPI-4.1, section 8.7, and the persistent one of section 8.8.

// NeighborAllgather sends the same data to every neighbour: block i of recv is what the i-th
// neighbour sent (MPI_Neighbor_allgather; MPI-4.1, section 8.6.1). recv has as many blocks of
// len(send) elements as there are neighbours to receive from. Blocks of neighbours beyond a grid's
// edge are unchanged. Like all calls of this kind it is collective.
func NeighborAllgather[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return blocking(ctx, comm, calls.NeighborAllgather(&comm.core, send, recv))
}

// IneighborAllgather starts a NeighborAllgather (MPI_Ineighbor_allgather).
func IneighborAllgather[T Elem](comm *Comm, send, recv []T) *Request {
	return nonblocking(comm, calls.NeighborAllgather(&comm.core, send, recv))
}

// NeighborAllgatherInit prepares a NeighborAllgather (MPI_Neighbor_allgather_init).
func NeighborAllgatherInit[T Elem](comm *Comm, send, recv []T) *Persistent {
	return persistent(comm, calls.NeighborAllgather(&comm.core, send, recv))
}

// NeighborAllgatherv is NeighborAllgather where neighbours may send different
// amounts: recv[displs[i]:displs[i]+counts[i]] is the i-th one's
// (MPI_Neighbor_allgatherv; MPI-4.1, section 8.6.1).
func NeighborAllgatherv[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts, displs []int) error {
	return blocking(ctx, comm, calls.NeighborAllgatherv(&comm.core, send, recv, counts, displs))
}

// IneighborAllgatherv starts a NeighborAllgatherv (MPI_Ineighbor_allgatherv).
func IneighborAllgatherv[T Elem](comm *Comm, send, recv []T, counts, displs []int) *Request {
	return nonblocking(comm, calls.NeighborAllgatherv(&comm.core, send, recv, counts, displs))
}

// NeighborAllgathervInit prepares a NeighborAllgatherv (MPI_Neighbor_allgatherv_init).
func NeighborAllgathervInit[T Elem](comm *Comm, send, recv []T, counts, displs []int) *Persistent {
	return persistent(comm, calls.NeighborAllgatherv(&comm.core, send, recv, counts, displs))
}

// NeighborAlltoall sends block i of send to the i-th neighbour to send to, and
// fills block i of recv from the i-th one to receive from
// (MPI_Neighbor_alltoall; MPI-4.1, section 8.6.2). All blocks have one size.
// The buffers must not overlap.
func NeighborAlltoall[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return blocking(ctx, comm, calls.NeighborAlltoall(&comm.core, send, recv))
}

// IneighborAlltoall starts a NeighborAlltoall (MPI_Ineighbor_alltoall).
func IneighborAlltoall[T Elem](comm *Comm, send, recv []T) *Request {
	return nonblocking(comm, calls.NeighborAlltoall(&comm.core, send, recv))
}

// NeighborAlltoallInit prepares a NeighborAlltoall (MPI_Neighbor_alltoall_init).
func NeighborAlltoallInit[T Elem](comm *Comm, send, recv []T) *Persistent {
	return persistent(comm, calls.NeighborAlltoall(&comm.core, send, recv))
}

// NeighborAlltoallv is NeighborAlltoall where blocks have different sizes:
// send[sdispls[i]:sdispls[i]+scounts[i]] goes to the i-th neighbour
// (MPI_Neighbor_alltoallv; MPI-4.1, section 8.6.2).
func NeighborAlltoallv[T Elem](ctx context.Context, comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	return blocking(ctx, comm, calls.NeighborAlltoallv(&comm.core, send, scounts, sdispls, recv, rcounts, rdispls))
}

// IneighborAlltoallv starts a NeighborAlltoallv (MPI_Ineighbor_alltoallv).
func IneighborAlltoallv[T Elem](comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *Request {
	return nonblocking(comm, calls.NeighborAlltoallv(&comm.core, send, scounts, sdispls, recv, rcounts, rdispls))
}

// NeighborAlltoallvInit prepares a NeighborAlltoallv (MPI_Neighbor_alltoallv_init).
func NeighborAlltoallvInit[T Elem](comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *Persistent {
	return persistent(comm, calls.NeighborAlltoallv(&comm.core, send, scounts, sdispls, recv, rcounts, rdispls))
}

// NeighborAlltoallw is NeighborAlltoall where every block has its own memory and its own type,
// created by PartOf or PartAs (MPI_Neighbor_alltoallw; MPI-4.1, section 8.6.2).
func NeighborAlltoallw(ctx context.Context, comm *Comm, send, recv []Part) error {
	return NeighborAlltoallwParts(comm, send, recv).Call(ctx)
}

// IneighborAlltoallw starts a NeighborAlltoallw (MPI_Ineighbor_alltoallw).
func IneighborAlltoallw(comm *Comm, send, recv []Part) *Request {
	return NeighborAlltoallwParts(comm, send, recv).Start()
}

// NeighborAlltoallwInit prepares a NeighborAlltoallw (MPI_Neighbor_alltoallw_init).
func NeighborAlltoallwInit(comm *Comm, send, recv []Part) *Persistent {
	return NeighborAlltoallwParts(comm, send, recv).Init()
}
