package mpilib

import "github.com/isthmus-grid/isthmus/mpilib/internal/calls"

// The persistent variants of the collective calls of collective.go (MPI-4.1, section 6.13). An
// error in their arguments is returned when a started one is waited for; a request whose start has
// failed cannot be started again.

// BarrierInit prepares a Barrier (MPI_Barrier_init; MPI-4.1, section 6.13.1).
func BarrierInit(comm *Comm) *Persistent { return BarrierCall(comm).Init() }

// BcastInit prepares a Bcast (MPI_Bcast_init; MPI-4.1, section 6.13.2).
func BcastInit[T Elem](comm *Comm, buf []T, root int) *Persistent {
	return persistent(comm, calls.Bcast(buf, root))
}

// ReduceInit prepares a Reduce (MPI_Reduce_init; MPI-4.1, section 6.13.7).
func ReduceInit[T Elem](comm *Comm, send, recv []T, op Op[T], root int) *Persistent {
	return persistent(comm, calls.Reduce(send, recv, op.reduction(), root))
}

// AllreduceInit prepares an Allreduce (MPI_Allreduce_init; MPI-4.1, section 6.13.8).
func AllreduceInit[T Elem](comm *Comm, send, recv []T, op Op[T]) *Persistent {
	return persistent(comm, calls.Allreduce(send, recv, op.reduction()))
}

// ReduceScatterInit prepares a ReduceScatter (MPI_Reduce_scatter_init; MPI-4.1,
// section 6.13.10).
func ReduceScatterInit[T Elem](comm *Comm, send, recv []T, counts []int, op Op[T]) *Persistent {
	return persistent(comm, calls.ReduceScatter(send, recv, counts, op.reduction()))
}

// ReduceScatterBlockInit prepares a ReduceScatterBlock (MPI_Reduce_scatter_block_init;
// MPI-4.1, section 6.13.9).
func ReduceScatterBlockInit[T Elem](comm *Comm, send, recv []T, op Op[T]) *Persistent {
	return persistent(comm, calls.ReduceScatterBlock(send, recv, op.reduction()))
}

// ScanInit prepares a Scan (MPI_Scan_init; MPI-4.1, section 6.13.11).
func ScanInit[T Elem](comm *Comm, send, recv []T, op Op[T]) *Persistent {
	return persistent(comm, calls.Scan(send, recv, op.reduction()))
}

// ExscanInit prepares an Exscan (MPI_Exscan_init; MPI-4.1, section 6.13.12).
func ExscanInit[T Elem](comm *Comm, send, recv []T, op Op[T]) *Persistent {
	return persistent(comm, calls.Exscan(send, recv, op.reduction()))
}

// GatherInit prepares a Gather (MPI_Gather_init; MPI-4.1, section 6.13.3).
func GatherInit[T Elem](comm *Comm, send, recv []T, root int) *Persistent {
	return persistent(comm, calls.Gather(send, recv, root))
}

// GathervInit prepares a Gatherv (MPI_Gatherv_init; MPI-4.1, section 6.13.3).
func GathervInit[T Elem](comm *Comm, send, recv []T, counts, displs []int, root int) *Persistent {
	return persistent(comm, calls.Gatherv(send, recv, counts, displs, root))
}

// AllgatherInit prepares an Allgather (MPI_Allgather_init; MPI-4.1, section 6.13.5).
func AllgatherInit[T Elem](comm *Comm, send, recv []T) *Persistent {
	return persistent(comm, calls.Allgather(send, recv))
}

// AllgathervInit prepares an Allgatherv (MPI_Allgatherv_init; MPI-4.1, section 6.13.5).
func AllgathervInit[T Elem](comm *Comm, send, recv []T, counts, displs []int) *Persistent {
	return persistent(comm, calls.Allgatherv(send, recv, counts, displs))
}

// ScatterInit prepares a Scatter (MPI_Scatter_init; MPI-4.1, section 6.13.4).
func ScatterInit[T Elem](comm *Comm, send, recv []T, root int) *Persistent {
	return persistent(comm, calls.Scatter(send, recv, root))
}

// ScattervInit prepares a Scatterv (MPI_Scatterv_init; MPI-4.1, section 6.13.4).
func ScattervInit[T Elem](comm *Comm, send []T, counts, displs []int, recv []T, root int) *Persistent {
	return persistent(comm, calls.Scatterv(send, counts, displs, recv, root))
}

// AlltoallInit prepares an Alltoall (MPI_Alltoall_init; MPI-4.1, section 6.13.6).
func AlltoallInit[T Elem](comm *Comm, send, recv []T) *Persistent {
	return persistent(comm, calls.Alltoall(send, recv))
}

// AlltoallvInit prepares an Alltoallv (MPI_Alltoallv_init; MPI-4.1, section 6.13.6).
func AlltoallvInit[T Elem](comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *Persistent {
	return persistent(comm, calls.Alltoallv(send, scounts, sdispls, recv, rcounts, rdispls))
}

// AlltoallwInit prepares an Alltoallw (MPI_Alltoallw_init; MPI-4.1, section 6.13.6).
func AlltoallwInit(comm *Comm, send, recv []Part) *Persistent {
	return AlltoallwParts(comm, send, recv).Init()
}
