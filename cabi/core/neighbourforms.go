package core

import "github.com/isthmus-grid/isthmus/mpilib"

// startedAt is the nonblocking form of a neighbourhood collective (MPI-5.0, section 8.7): the handle of its
// request goes to out.
func startedAt(out uintptr) neighbourForm {
	return func(c *communicator, send, recv []mpilib.Part) error {
		store(out, requests.add(&request{comm: c, once: mpilib.IneighborAlltoallw(c.Comm, send, recv)}))
		return nil
	}
}

// preparedAt is the persistent form (MPI-5.0, section 8.8). The info has no hints that mean anything.
func preparedAt(info, out uintptr) neighbourForm {
	return func(c *communicator, send, recv []mpilib.Part) error {
		if _, err := infoOf(info); err != nil {
			return err
		}
		store(out, requests.add(&request{comm: c, repeated: mpilib.NeighborAlltoallwInit(c.Comm, send, recv)}))
		return nil
	}
}

// IneighborAllgather starts a NeighborAllgather.
func IneighborAllgather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm, request uintptr) int32 {
	return neighborAllgather("MPI_Ineighbor_allgather", sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, startedAt(request))
}

// IneighborAllgatherv starts a NeighborAllgatherv.
func IneighborAllgatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request uintptr, wide int32) int32 {
	return neighborAllgatherv("MPI_Ineighbor_allgatherv", sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, wide, startedAt(request))
}

// IneighborAlltoall starts a NeighborAlltoall.
func IneighborAlltoall(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm, request uintptr) int32 {
	return neighborAlltoall("MPI_Ineighbor_alltoall", sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, startedAt(request))
}

// IneighborAlltoallv starts a NeighborAlltoallv.
func IneighborAlltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm, request uintptr, wide int32) int32 {
	return neighborAlltoallv("MPI_Ineighbor_alltoallv", sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm, wide, startedAt(request))
}

// IneighborAlltoallw starts a NeighborAlltoallw.
func IneighborAlltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm, request uintptr, wide int32) int32 {
	return neighborAlltoallw("MPI_Ineighbor_alltoallw", sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm, wide, startedAt(request))
}

// NeighborAllgatherInit prepares a NeighborAllgather.
func NeighborAllgatherInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm, info, request uintptr) int32 {
	return neighborAllgather("MPI_Neighbor_allgather_init", sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, preparedAt(info, request))
}

// NeighborAllgathervInit prepares a NeighborAllgatherv.
func NeighborAllgathervInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype, comm, info, request uintptr, wide int32) int32 {
	return neighborAllgatherv("MPI_Neighbor_allgatherv_init", sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, wide, preparedAt(info, request))
}

// NeighborAlltoallInit prepares a NeighborAlltoall.
func NeighborAlltoallInit(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm, info, request uintptr) int32 {
	return neighborAlltoall("MPI_Neighbor_alltoall_init", sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, preparedAt(info, request))
}

// NeighborAlltoallvInit prepares a NeighborAlltoallv.
func NeighborAlltoallvInit(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm, info, request uintptr, wide int32) int32 {
	return neighborAlltoallv("MPI_Neighbor_alltoallv_init", sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm, wide, preparedAt(info, request))
}

// NeighborAlltoallwInit prepares a NeighborAlltoallw.
func NeighborAlltoallwInit(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm, info, request uintptr, wide int32) int32 {
	return neighborAlltoallw("MPI_Neighbor_alltoallw_init", sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm, wide, preparedAt(info, request))
}
