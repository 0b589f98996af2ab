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

// NeighborAllgatherv is NeighborAllgather where neighbours may send different
// amounts: recv[displs[i]:displs[i]+counts[i]] is the i-th one's
// (MPI_Neighbor_allgatherv; MPI-4.1, section 8.6.1).
func NeighborAllgatherv[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts, displs []int) error {
	return blocking(ctx, comm, calls.NeighborAllgatherv(&comm.core, send, recv, counts, displs))
}

// NeighborAlltoall sends block i of send to the i-th neighbour to send to, and
// fills block i of recv from the i-th one to receive from
// (MPI_Neighbor_alltoall; MPI-4.1, section 8.6.2). All blocks have one size.
// The buffers must not overlap.
func NeighborAlltoall[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return blocking(ctx, comm, calls.NeighborAlltoall(&comm.core, send, recv))
}

// NeighborAlltoallv is NeighborAlltoall where blocks have different sizes:
// send[sdispls[i]:sdispls[i]+scounts[i]] goes to the i-th neighbour
// (MPI_Neighbor_alltoallv; MPI-4.1, section 8.6.2).
func NeighborAlltoallv[T Elem](ctx context.Context, comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	return blocking(ctx, comm, calls.NeighborAlltoallv(&comm.core, send, scounts, sdispls, recv, rcounts, rdispls))
}

// NeighborAlltoallw is NeighborAlltoall where every block has its own memory and its own type,
// created by PartOf or PartAs (MPI_Neighbor_alltoallw; MPI-4.1, section 8.6.2).
func NeighborAlltoallw(ctx context.Context, comm *Comm, send, recv []Part) error {
	return NeighborAlltoallwParts(comm, send, recv).Call(ctx)
}
