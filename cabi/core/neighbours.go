package core

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// A neighbourForm is mpilib's NeighborAlltoallw, blocking, nonblocking or persistent. All neighbourhood
// collectives (MPI-5.0, section 8.6) are that: they differ in how the program says what goes to each neighbour,
// and what comes from it.
type neighbourForm func(c *communicator, send, recv []mpilib.Part) error

// neighbourCall makes a call: parts has those for each of the neighbours, of which there are in to
// receive from and out to send to.
func neighbourCall(call string, sendbuf, comm uintptr, parts func(b *builder, in, out int) (send, recv []mpilib.Part), form neighbourForm) int32 {
	return onComm(call, comm, func(c *communicator) error {
		if sendbuf == inPlace {
			return failure(errBuffer, "MPI_IN_PLACE, which a call between neighbours does not take; give it a buffer of its own")
		}
		in, out, err := c.degrees()
		if err != nil {
			return err
		}
		var b builder
		send, recv := parts(&b, in, out)
		if b.err != nil {
			return b.err
		}
		return form(c, send, recv)
	})
}

// degrees returns how many neighbours the process receives from and sends to.
func (c *communicator) degrees() (in, out int, err error) {
	switch c.TopoTest() {
	case mpilib.CartTopology:
		dims, _, _, err := c.CartGet()
		return 2 * len(dims), 2 * len(dims), err
	case mpilib.GraphTopology:
		list, err := c.GraphNeighbors(c.Rank())
		return len(list), len(list), err
	case mpilib.DistGraphTopology:
		sources, _, dests, _, err := c.DistGraphNeighbors()
		return len(sources), len(dests), err
	}
	return 0, 0, failure(errTopology, "%s has no topology and so no neighbours; make one with MPI_Cart_create or MPI_Dist_graph_create", c.Name())
}

// sequence is n blocks of count elements, one behind the other.
func (b *builder) sequence(buf uintptr, count int64, datatype uintptr, n int) []mpilib.Part {
	out := make([]mpilib.Part, n)
	for i := range out {
		out[i] = b.block(buf, int64(i)*count, count, datatype)
	}
	return out
}

// placed is a block for each of n neighbours, each of its own type; displacements are in bytes,
// or addresses.
func (b *builder) placed(buf, counts, displs, datatypes uintptr, n int, wide int32) []mpilib.Part {
	out := make([]mpilib.Part, n)
	lengths, begins := integers(counts, n, wide), addresses(displs, int64(n))
	for i, datatype := range elements[uintptr](datatypes, n) {
		out[i] = b.part(buf+uintptr(begins[i]), int64(lengths[i]), datatype) // buf may be MPI_BOTTOM
	}
	return out
}

func neighborAllgather(call string, sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm uintptr, form neighbourForm) int32 {
	return neighbourCall(call, sendbuf, comm, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return slices.Repeat([]mpilib.Part{b.part(sendbuf, sendcount, sendtype)}, out), b.sequence(recvbuf, recvcount, recvtype, in)
	}, form)
}

func neighborAllgatherv(call string, sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype, comm uintptr, wide int32, form neighbourForm) int32 {
	return neighbourCall(call, sendbuf, comm, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return slices.Repeat([]mpilib.Part{b.part(sendbuf, sendcount, sendtype)}, out), b.blocks(recvbuf, recvcounts, displs, recvtype, in, wide)
	}, form)
}

func neighborAlltoall(call string, sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm uintptr, form neighbourForm) int32 {
	return neighbourCall(call, sendbuf, comm, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return b.sequence(sendbuf, sendcount, sendtype, out), b.sequence(recvbuf, recvcount, recvtype, in)
	}, form)
}

func neighborAlltoallv(call string, sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm uintptr, wide int32, form neighbourForm) int32 {
	return neighbourCall(call, sendbuf, comm, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return b.blocks(sendbuf, sendcounts, sdispls, sendtype, out, wide), b.blocks(recvbuf, recvcounts, rdispls, recvtype, in, wide)
	}, form)
}

func neighborAlltoallw(call string, sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm uintptr, wide int32, form neighbourForm) int32 {
	return neighbourCall(call, sendbuf, comm, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return b.placed(sendbuf, sendcounts, sdispls, sendtypes, out, wide), b.placed(recvbuf, recvcounts, rdispls, recvtypes, in, wide)
	}, form)
}

// exchanged is the blocking form.
func exchanged(c *communicator, send, recv []mpilib.Part) error {
	return mpilib.NeighborAlltoallw(background, c.Comm, send, recv)
}

// NeighborAllgather sends one block to all neighbours.
func NeighborAllgather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm uintptr) int32 {
	return neighborAllgather("MPI_Neighbor_allgather", sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, exchanged)
}

// NeighborAllgatherv is NeighborAllgather of blocks of different sizes.
func NeighborAllgatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype, comm uintptr, wide int32) int32 {
	return neighborAllgatherv("MPI_Neighbor_allgatherv", sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, wide, exchanged)
}

// NeighborAlltoall moves a block to and from each neighbour.
func NeighborAlltoall(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype, comm uintptr) int32 {
	return neighborAlltoall("MPI_Neighbor_alltoall", sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, exchanged)
}

// NeighborAlltoallv is NeighborAlltoall of blocks of different sizes.
func NeighborAlltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm uintptr, wide int32) int32 {
	return neighborAlltoallv("MPI_Neighbor_alltoallv", sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm, wide, exchanged)
}

// NeighborAlltoallw is NeighborAlltoallv with types of their own, and displacements in bytes.
func NeighborAlltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm uintptr, wide int32) int32 {
	return neighborAlltoallw("MPI_Neighbor_alltoallw", sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm, wide, exchanged)
}
