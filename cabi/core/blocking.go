package core

// The blocking collective calls (MPI-5.0, chapter 6).

// Barrier waits for all processes.
func Barrier(comm uintptr) int32 {
	return blocking("MPI_Barrier", comm, barrier)
}

// Bcast copies the root's buffer.
func Bcast(buffer uintptr, count int64, datatype uintptr, root int32, comm uintptr) int32 {
	return blocking("MPI_Bcast", comm, bcast(buffer, count, datatype, root))
}

// Gather collects a block of each process at the root.
func Gather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm uintptr) int32 {
	return blocking("MPI_Gather", comm, gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root))
}

// Gatherv is Gather of blocks of different sizes.
func Gatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype uintptr, root int32, comm uintptr, wide int32) int32 {
	return blocking("MPI_Gatherv", comm, gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, wide))
}

// Scatter gives each process a block of the root's.
func Scatter(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm uintptr) int32 {
	return blocking("MPI_Scatter", comm, scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root))
}

// Scatterv is Scatter of blocks of different sizes.
func Scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm uintptr, wide int32) int32 {
	return blocking("MPI_Scatterv", comm, scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, wide))
}

// Allgather is Gather to all.
func Allgather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm uintptr) int32 {
	return blocking("MPI_Allgather", comm, allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
}

// Allgatherv is Gatherv to all.
func Allgatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype, comm uintptr, wide int32) int32 {
	return blocking("MPI_Allgatherv", comm, allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, wide))
}

// Alltoall moves a block from each process to each.
func Alltoall(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm uintptr) int32 {
	return blocking("MPI_Alltoall", comm, alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
}

// Alltoallv is Alltoall of blocks of different sizes.
func Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm uintptr, wide int32) int32 {
	return blocking("MPI_Alltoallv", comm, alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, wide))
}

// Alltoallw is Alltoallv with types of their own, and displacements in bytes.
func Alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm uintptr, wide int32) int32 {
	return blocking("MPI_Alltoallw", comm, alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, wide))
}

// Reduce reduces to the root.
func Reduce(sendbuf, recvbuf uintptr, count int64, datatype, op uintptr, root int32, comm uintptr) int32 {
	return blocking("MPI_Reduce", comm, reduce(sendbuf, recvbuf, count, datatype, op, root))
}

// Allreduce reduces to all.
func Allreduce(sendbuf, recvbuf uintptr, count int64, datatype, op, comm uintptr) int32 {
	return blocking("MPI_Allreduce", comm, allreduce(sendbuf, recvbuf, count, datatype, op))
}

// ReduceScatter reduces, and gives each process a block of the result.
func ReduceScatter(sendbuf, recvbuf, recvcounts, datatype, op, comm uintptr, wide int32) int32 {
	return blocking("MPI_Reduce_scatter", comm, reduceScatter(sendbuf, recvbuf, datatype, op, givenCounts(recvcounts, wide)))
}

// ReduceScatterBlock is ReduceScatter in equal blocks.
func ReduceScatterBlock(sendbuf, recvbuf uintptr, recvcount int64, datatype, op, comm uintptr) int32 {
	return blocking("MPI_Reduce_scatter_block", comm, reduceScatter(sendbuf, recvbuf, datatype, op, equalCounts(recvcount)))
}

// Scan reduces what the processes up to this one have.
func Scan(sendbuf, recvbuf uintptr, count int64, datatype, op, comm uintptr) int32 {
	return blocking("MPI_Scan", comm, scan(sendbuf, recvbuf, count, datatype, op))
}

// Exscan is Scan without this process.
func Exscan(sendbuf, recvbuf uintptr, count int64, datatype, op, comm uintptr) int32 {
	return blocking("MPI_Exscan", comm, exscan(sendbuf, recvbuf, count, datatype, op))
}
