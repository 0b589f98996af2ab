package mpilib

import "github.com/isthmus-grid/isthmus/mpilib/internal/calls"

// The nonblocking variants of the collective calls of collective.go (MPI-4.1, section 6.12).

// Ibarrier starts a Barrier (MPI_Ibarrier; MPI-4.1, section 6.12.1).
func Ibarrier(comm *Comm) *Request { return BarrierCall(comm).Start() }

// Ibcast starts a Bcast (MPI_Ibcast; MPI-4.1, section 6.12.2).
func Ibcast[T Elem](comm *Comm, buf []T, root int) *Request {
	return nonblocking(comm, calls.Bcast(buf, root))
}

// Ireduce starts a Reduce (MPI_Ireduce; MPI-4.1, section 6.12.7).
func Ireduce[T Elem](comm *Comm, send, recv []T, op Op[T], root int) *Request {
	return nonblocking(comm, calls.Reduce(send, recv, op.reduction(), root))
}

// Iallreduce starts an Allreduce (MPI_Iallreduce; MPI-4.1, section 6.12.8).
func Iallreduce[T Elem](comm *Comm, send, recv []T, op Op[T]) *Request {
	return nonblocking(comm, calls.Allreduce(send, recv, op.reduction()))
}

// IreduceScatter starts a ReduceScatter (MPI_Ireduce_scatter; MPI-4.1, section
// 6.12.10).
func IreduceScatter[T Elem](comm *Comm, send, recv []T, counts []int, op Op[T]) *Request {
	return nonblocking(comm, calls.ReduceScatter(send, recv, counts, op.reduction()))
}

// IreduceScatterBlock starts a ReduceScatterBlock (MPI_Ireduce_scatter_block; MPI-4.1,
// section 6.12.9).
func IreduceScatterBlock[T Elem](comm *Comm, send, recv []T, op Op[T]) *Request {
	return nonblocking(comm, calls.ReduceScatterBlock(send, recv, op.reduction()))
}

// Iscan starts a Scan (MPI_Iscan; MPI-4.1, section 6.12.11).
func Iscan[T Elem](comm *Comm, send, recv []T, op Op[T]) *Request {
	return nonblocking(comm, calls.Scan(send, recv, op.reduction()))
}

// Iexscan starts an Exscan (MPI_Iexscan; MPI-4.1, section 6.12.12).
func Iexscan[T Elem](comm *Comm, send, recv []T, op Op[T]) *Request {
	return nonblocking(comm, calls.Exscan(send, recv, op.reduction()))
}

// Igather starts a Gather (MPI_Igather; MPI-4.1, section 6.12.3).
func Igather[T Elem](comm *Comm, send, recv []T, root int) *Request {
	return nonblocking(comm, calls.Gather(send, recv, root))
}

// Igatherv starts a Gatherv (MPI_Igatherv; MPI-4.1, section 6.12.3).
func Igatherv[T Elem](comm *Comm, send, recv []T, counts, displs []int, root int) *Request {
	return nonblocking(comm, calls.Gatherv(send, recv, counts, displs, root))
}

// Iallgather starts an Allgather (MPI_Iallgather; MPI-4.1, section 6.12.5).
func Iallgather[T Elem](comm *Comm, send, recv []T) *Request {
	return nonblocking(comm, calls.Allgather(send, recv))
}

// Iallgatherv starts an Allgatherv (MPI_Iallgatherv; MPI-4.1, section 6.12.5).
func Iallgatherv[T Elem](comm *Comm, send, recv []T, counts, displs []int) *Request {
	return nonblocking(comm, calls.Allgatherv(send, recv, counts, displs))
}

// Iscatter starts a Scatter (MPI_Iscatter; MPI-4.1, section 6.12.4).
func Iscatter[T Elem](comm *Comm, send, recv []T, root int) *Request {
	return nonblocking(comm, calls.Scatter(send, recv, root))
}

// Iscatterv starts a Scatterv (MPI_Iscatterv; MPI-4.1, section 6.12.4).
func Iscatterv[T Elem](comm *Comm, send []T, counts, displs []int, recv []T, root int) *Request {
	return nonblocking(comm, calls.Scatterv(send, counts, displs, recv, root))
}

// Ialltoall starts an Alltoall (MPI_Ialltoall; MPI-4.1, section 6.12.6).
func Ialltoall[T Elem](comm *Comm, send, recv []T) *Request {
	return nonblocking(comm, calls.Alltoall(send, recv))
}

// Ialltoallv starts an Alltoallv (MPI_Ialltoallv; MPI-4.1, section 6.12.6).
func Ialltoallv[T Elem](comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *Request {
	return nonblocking(comm, calls.Alltoallv(send, scounts, sdispls, recv, rcounts, rdispls))
}

// Ialltoallw starts an Alltoallw (MPI_Ialltoallw; MPI-4.1, section 6.12.6).
func Ialltoallw(comm *Comm, send, recv []Part) *Request {
	return AlltoallwParts(comm, send, recv).Start()
}
