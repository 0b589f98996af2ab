package mpilib

import (
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// The neighbourhood collectives, each defined once.

func neighborAllgatherOf[T Elem](comm *Comm, send, recv []T) *operation {
	return comm.neighbourly("NeighborAllgather", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAllgather(n, send, recv)
	})
}

func neighborAllgathervOf[T Elem](comm *Comm, send, recv []T, counts, displs []int) *operation {
	return comm.neighbourly("NeighborAllgatherv", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAllgatherv(n, send, recv, counts, displs)
	})
}

func neighborAlltoallOf[T Elem](comm *Comm, send, recv []T) *operation {
	return comm.neighbourly("NeighborAlltoall", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAlltoall(n, send, recv)
	})
}

func neighborAlltoallvOf[T Elem](comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *operation {
	return comm.neighbourly("NeighborAlltoallv", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAlltoallv(n, send, scounts, sdispls, recv, rcounts, rdispls)
	})
}

func neighborAlltoallwOf(comm *Comm, send, recv []Part) *operation {
	return comm.neighbourly("NeighborAlltoallw", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAlltoallw(n, inner(send), inner(recv))
	})
}

// neighbourly is an operation that transfers a part to and from every neighbour.
func (c *Comm) neighbourly(name string, cut func(topology.Neighbourhood) (out, in []buffer.Part, err error)) *operation {
	n, err := c.neighbourhood()
	if c.core.IsInter() {
		err = coll.Intra()
	}
	var out, in []buffer.Part
	if err == nil {
		out, in, err = cut(n)
	}
	for _, list := range [][]buffer.Part{out, in} {
		for _, p := range list {
			err = mpi.FirstOf(err, p.Err)
		}
	}
	return &operation{name: name, err: err, run: coll.Neighbors(n, out, in)}
}
