package core

// The persistent collective calls (MPI-5.0, section 6.13).

// persistent prepares a collective call and stores the handle of its request. No hints are known.
func persistent(call string, comm, info, out uintptr, d description) int32 {
	return onComm(call, comm, func(c *communicator) error {
		if _, err := infoOf(info); err != nil {
			return err
		}
		made, user, err := d.describe(c)
		if err != nil {
			return err
		}
		store(out, requests.add(&request{comm: c, collective: true, user: user, repeated: made.Init()}))
		return nil
	})
}

// BarrierInit prepares a Barrier.
func BarrierInit(comm, info, request uintptr) int32 {
	return persistent("MPI_Barrier_init", comm, info, request, barrier)
}

// BcastInit prepares a Bcast.
func BcastInit(buffer uintptr, count int64, datatype uintptr, root int32, comm, info, request uintptr) int32 {
	return persistent("MPI_Bcast_init", comm, info, request, bcast(buffer, count, datatype, root))
}

// GatherInit prepares a Gather.
func GatherInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm, info, request uintptr) int32 {
	return persistent("MPI_Gather_init", comm, info, request, gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root))
}

// GathervInit prepares a Gatherv.
func GathervInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype uintptr, root int32, comm, info, request uintptr, wide int32) int32 {
	return persistent("MPI_Gatherv_init", comm, info, request, gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, wide))
}

// ScatterInit prepares a Scatter.
func ScatterInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm, info, request uintptr) int32 {
	return persistent("MPI_Scatter_init", comm, info, request, scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root))
}

// ScattervInit prepares a Scatterv.
func ScattervInit(sendbuf, sendcounts, displs, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32, comm, info, request uintptr, wide int32) int32 {
	return persistent("MPI_Scatterv_init", comm, info, request, scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, wide))
}

// AllgatherInit prepares an Allgather.
func AllgatherInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm, info, request uintptr) int32 {
	return persistent("MPI_Allgather_init", comm, info, request, allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
}

// AllgathervInit prepares an Allgatherv.
func AllgathervInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype, comm, info, request uintptr, wide int32) int32 {
	return persistent("MPI_Allgatherv_init", comm, info, request, allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, wide))
}

// AlltoallInit prepares an Alltoall.
func AlltoallInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm, info, request uintptr) int32 {
	return persistent("MPI_Alltoall_init", comm, info, request, alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
}

// AlltoallvInit prepares an Alltoallv.
func AlltoallvInit(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm, info, request uintptr, wide int32) int32 {
	return persistent("MPI_Alltoallv_init", comm, info, request, alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, wide))
}

// AlltoallwInit prepares an Alltoallw.
func AlltoallwInit(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm, info, request uintptr, wide int32) int32 {
	return persistent("MPI_Alltoallw_init", comm, info, request, alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, wide))
}

// ReduceInit prepares a Reduce.
func ReduceInit(sendbuf, recvbuf uintptr, count int64, datatype, op uintptr, root int32, comm, info, request uintptr) int32 {
	return persistent("MPI_Reduce_init", comm, info, request, reduce(sendbuf, recvbuf, count, datatype, op, root))
}

// AllreduceInit prepares an Allreduce.
func AllreduceInit(sendbuf, recvbuf uintptr, count int64, datatype, op, comm, info, request uintptr) int32 {
	return persistent("MPI_Allreduce_init", comm, info, request, allreduce(sendbuf, recvbuf, count, datatype, op))
}

// ReduceScatterInit prepares a ReduceScatter.
func ReduceScatterInit(sendbuf, recvbuf, recvcounts, datatype, op, comm, info, request uintptr, wide int32) int32 {
	return persistent("MPI_Reduce_scatter_init", comm, info, request, reduceScatter(sendbuf, recvbuf, datatype, op, givenCounts(recvcounts, wide)))
}

// ReduceScatterBlockInit prepares a ReduceScatterBlock.
func ReduceScatterBlockInit(sendbuf, recvbuf uintptr, recvcount int64, datatype, op, comm, info, request uintptr) int32 {
	return persistent("MPI_Reduce_scatter_block_init", comm, info, request, reduceScatter(sendbuf, recvbuf, datatype, op, equalCounts(recvcount)))
}

// ScanInit prepares a Scan.
func ScanInit(sendbuf, recvbuf uintptr, count int64, datatype, op, comm, info, request uintptr) int32 {
	return persistent("MPI_Scan_init", comm, info, request, scan(sendbuf, recvbuf, count, datatype, op))
}

// ExscanInit prepares an Exscan.
func ExscanInit(sendbuf, recvbuf uintptr, count int64, datatype, op, comm, info, request uintptr) int32 {
	return persistent("MPI_Exscan_init", comm, info, request, exscan(sendbuf, recvbuf, count, datatype, op))
}
