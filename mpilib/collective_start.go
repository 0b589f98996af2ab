package mpilib

// The nonblocking variants of the collective calls of collective.go (MPI-4.1, section 6.12).

// Ibarrier starts a Barrier (MPI_Ibarrier; MPI-4.1, section 6.12.1).
func Ibarrier(comm *Comm) *Request {
	return barrier().start(comm)
}

// Ibcast starts a Bcast (MPI_Ibcast; MPI-4.1, section 6.12.2).
func Ibcast[T Elem](comm *Comm, buf []T, root int) *Request {
	return bcastOf(buf, root).start(comm)
}

// Ireduce starts a Reduce (MPI_Ireduce; MPI-4.1, section 6.12.7).
func Ireduce[T Elem](comm *Comm, send, recv []T, op Op[T], root int) *Request {
	return reduceOf(send, recv, op, root).start(comm)
}

// Iallreduce starts an Allreduce (MPI_Iallreduce; MPI-4.1, section 6.12.8).
func Iallreduce[T Elem](comm *Comm, send, recv []T, op Op[T]) *Request {
	return allreduceOf(send, recv, op).start(comm)
}

// IreduceScatter starts a ReduceScatter (MPI_Ireduce_scatter; MPI-4.1, section
// 6.12.10).
func IreduceScatter[T Elem](comm *Comm, send, recv []T, counts []int, op Op[T]) *Request {
	return reduceScatterOf(send, recv, counts, op).start(comm)
}

// IreduceScatterBlock starts a ReduceScatterBlock (MPI_Ireduce_scatter_block; MPI-4.1,
// section 6.12.9).
func IreduceScatterBlock[T Elem](comm *Comm, send, recv []T, op Op[T]) *Request {
	return reduceScatterBlockOf(send, recv, op).start(comm)
}

// Iscan starts a Scan (MPI_Iscan; MPI-4.1, section 6.12.11).
func Iscan[T Elem](comm *Comm, send, recv []T, op Op[T]) *Request {
	return scanOf(send, recv, op).start(comm)
}

// Iexscan starts an Exscan (MPI_Iexscan; MPI-4.1, section 6.12.12).
func Iexscan[T Elem](comm *Comm, send, recv []T, op Op[T]) *Request {
	return exscanOf(send, recv, op).start(comm)
}

// Igather starts a Gather (MPI_Igather; MPI-4.1, section 6.12.3).
func Igather[T Elem](comm *Comm, send, recv []T, root int) *Request {
	return gatherOf(send, recv, root).start(comm)
}

// Igatherv starts a Gatherv (MPI_Igatherv; MPI-4.1, section 6.12.3).
func Igatherv[T Elem](comm *Comm, send, recv []T, counts, displs []int, root int) *Request {
	return gathervOf(send, recv, counts, displs, root).start(comm)
}

// Iallgather starts an Allgather (MPI_Iallgather; MPI-4.1, section 6.12.5).
func Iallgather[T Elem](comm *Comm, send, recv []T) *Request {
	return allgatherOf(send, recv).start(comm)
}

// Iallgatherv starts an Allgatherv (MPI_Iallgatherv; MPI-4.1, section 6.12.5).
func Iallgatherv[T Elem](comm *Comm, send, recv []T, counts, displs []int) *Request {
	return allgathervOf(send, recv, counts, displs).start(comm)
}

// Iscatter starts a Scatter (MPI_Iscatter; MPI-4.1, section 6.12.4).
func Iscatter[T Elem](comm *Comm, send, recv []T, root int) *Request {
	return scatterOf(send, recv, root).start(comm)
}

// Iscatterv starts a Scatterv (MPI_Iscatterv; MPI-4.1, section 6.12.4).
func Iscatterv[T Elem](comm *Comm, send []T, counts, displs []int, recv []T, root int) *Request {
	return scattervOf(send, counts, displs, recv, root).start(comm)
}

// Ialltoall starts an Alltoall (MPI_Ialltoall; MPI-4.1, section 6.12.6).
func Ialltoall[T Elem](comm *Comm, send, recv []T) *Request {
	return alltoallOf(send, recv).start(comm)
}

// Ialltoallv starts an Alltoallv (MPI_Ialltoallv; MPI-4.1, section 6.12.6).
func Ialltoallv[T Elem](comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *Request {
	return alltoallvOf(send, scounts, sdispls, recv, rcounts, rdispls).start(comm)
}

// Ialltoallw starts an Alltoallw (MPI_Ialltoallw; MPI-4.1, section 6.12.6).
func Ialltoallw(comm *Comm, send, recv []Part) *Request {
	return alltoallwOf(send, recv).start(comm)
}
