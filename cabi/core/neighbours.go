package core

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// neighbourly describes a call between neighbours: parts has those for each of the neighbours, of which there are in to receive
// from and out to send to. All neighbourhood collectives (MPI-5.0, section 8.6) are mpilib's NeighborAlltoallw: they differ in how
// the program says what goes to each neighbour, and what comes from it, and in what ranks in Go call them.
func neighbourly(call string, sendbuf uintptr, parts func(b *builder, in, out int) (send, recv []mpilib.Part)) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		in, out, err := c.degrees()
		if sendbuf == inPlace {
			err = failure(errBuffer, "MPI_IN_PLACE, which a call between neighbours does not take; give it a buffer of its own")
		}
		if err != nil {
			b.failed(err)
			return mpilib.Collective{}
		}
		send, recv := parts(b, in, out)
		return mpilib.NeighborAlltoallwParts(c.Comm, send, recv).As(call)
	}
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

// neighborAllgather describes a NeighborAllgather.
func neighborAllgather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr) description {
	return neighbourly("NeighborAllgather", sendbuf, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return slices.Repeat([]mpilib.Part{b.part(sendbuf, sendcount, sendtype)}, out), b.sequence(recvbuf, recvcount, recvtype, in)
	})
}

// neighborAllgatherv describes a NeighborAllgatherv.
func neighborAllgatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype uintptr, wide int32) description {
	return neighbourly("NeighborAllgatherv", sendbuf, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return slices.Repeat([]mpilib.Part{b.part(sendbuf, sendcount, sendtype)}, out), b.blocks(recvbuf, recvcounts, displs, recvtype, in, wide)
	})
}

// neighborAlltoall describes a NeighborAlltoall.
func neighborAlltoall(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr) description {
	return neighbourly("NeighborAlltoall", sendbuf, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return b.sequence(sendbuf, sendcount, sendtype, out), b.sequence(recvbuf, recvcount, recvtype, in)
	})
}

// neighborAlltoallv describes a NeighborAlltoallv.
func neighborAlltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype uintptr, wide int32) description {
	return neighbourly("NeighborAlltoallv", sendbuf, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return b.blocks(sendbuf, sendcounts, sdispls, sendtype, out, wide), b.blocks(recvbuf, recvcounts, rdispls, recvtype, in, wide)
	})
}

// neighborAlltoallw describes a NeighborAlltoallw.
func neighborAlltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes uintptr, wide int32) description {
	return neighbourly("NeighborAlltoallw", sendbuf, func(b *builder, in, out int) (send, recv []mpilib.Part) {
		return b.placed(sendbuf, sendcounts, sdispls, sendtypes, out, wide), b.placed(recvbuf, recvcounts, rdispls, recvtypes, in, wide)
	})
}
