package core

// The nonblocking collective calls (MPI-5.0, section 6.12).

// nonblocking starts a collective call and stores the handle of its request.
func nonblocking(call string, comm, out uintptr, d description) int32 {
	return onComm(call, comm, func(c *communicator) error {
		made, user, err := d.describe(c)
		if err != nil {
			return err
		}
		if user {
			reducing.Add(1)
		}
		store(out, requests.add(&request{comm: c, collective: true, user: user, once: made.Start()}))
		return nil
	})
}

// Ibarrier starts a Barrier.
func Ibarrier(comm, request uintptr) int32 {
	return nonblocking("MPI_Ibarrier", comm, request, barrier)
}

// Ibcast starts a Bcast.
func Ibcast(buffer uintptr, count int64, datatype uintptr, root int32, comm, request uintptr) int32 {
	return nonblocking("MPI_Ibcast", comm, request, bcast(buffer, count, datatype, root))
}

// Igather starts a Gather.
func Igather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm, request uintptr) int32 {
	return nonblocking("MPI_Igather", comm, request, gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root))
}

// Igatherv starts a Gatherv.
func Igatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype uintptr, root int32, comm, request uintptr, wide int32) int32 {
	return nonblocking("MPI_Igatherv", comm, request, gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, wide))
}

// Iscatter starts a Scatter.
func Iscatter(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm, request uintptr) int32 {
	return nonblocking("MPI_Iscatter", comm, request, scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root))
}

// Iscatterv starts a Scatterv.
func Iscatterv(sendbuf, sendcounts, displs, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm, request uintptr, wide int32) int32 {
	return nonblocking("MPI_Iscatterv", comm, request, scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, wide))
}

// Iallgather starts an Allgather.
func Iallgather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm, request uintptr) int32 {
	return nonblocking("MPI_Iallgather", comm, request, allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
}

// Iallgatherv starts an Allgatherv.
func Iallgatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request uintptr, wide int32) int32 {
	return nonblocking("MPI_Iallgatherv", comm, request, allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, wide))
}

// Ialltoall starts an Alltoall.
func Ialltoall(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm, request uintptr) int32 {
	return nonblocking("MPI_Ialltoall", comm, request, alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
}

// Ialltoallv starts an Alltoallv.
func Ialltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm, request uintptr, wide int32) int32 {
	return nonblocking("MPI_Ialltoallv", comm, request, alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, wide))
}

// Ialltoallw starts an Alltoallw.
func Ialltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm, request uintptr, wide int32) int32 {
	return nonblocking("MPI_Ialltoallw", comm, request, alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, wide))
}

// Ireduce starts a Reduce.
func Ireduce(sendbuf, recvbuf uintptr, count int64, datatype, op uintptr, root int32, comm, request uintptr) int32 {
	return nonblocking("MPI_Ireduce", comm, request, reduce(sendbuf, recvbuf, count, datatype, op, root))
}

// Iallreduce starts an Allreduce.
func Iallreduce(sendbuf, recvbuf uintptr, count int64, datatype, op, comm, request uintptr) int32 {
	return nonblocking("MPI_Iallreduce", comm, request, allreduce(sendbuf, recvbuf, count, datatype, op))
}

// IreduceScatter starts a ReduceScatter.
func IreduceScatter(sendbuf, recvbuf, recvcounts, datatype, op, comm, request uintptr, wide int32) int32 {
	return nonblocking("MPI_Ireduce_scatter", comm, request, reduceScatter(sendbuf, recvbuf, datatype, op, givenCounts(recvcounts, wide)))
}

// IreduceScatterBlock starts a ReduceScatterBlock.
func IreduceScatterBlock(sendbuf, recvbuf uintptr, recvcount int64, datatype, op, comm, request uintptr) int32 {
	return nonblocking("MPI_Ireduce_scatter_block", comm, request, reduceScatter(sendbuf, recvbuf, datatype, op, equalCounts(recvcount)))
}

// Iscan starts a Scan.
func Iscan(sendbuf, recvbuf uintptr, count int64, datatype, op, comm, request uintptr) int32 {
	return nonblocking("MPI_Iscan", comm, request, scan(sendbuf, recvbuf, count, datatype, op))
}

// Iexscan starts an Exscan.
func Iexscan(sendbuf, recvbuf uintptr, count int64, datatype, op, comm, request uintptr) int32 {
	return nonblocking("MPI_Iexscan", comm, request, exscan(sendbuf, recvbuf, count, datatype, op))
}
