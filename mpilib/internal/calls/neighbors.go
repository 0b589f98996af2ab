package calls

import (
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// The operations between the neighbours of a topology.

// NeighborAllgather is the operation of that name.
func NeighborAllgather[T any](c *Comm, send, recv []T) *Operation {
	return c.neighbourly("NeighborAllgather", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAllgather(n, send, recv)
	})
}

// NeighborAllgatherv is the operation of that name.
func NeighborAllgatherv[T any](c *Comm, send, recv []T, counts, displs []int) *Operation {
	return c.neighbourly("NeighborAllgatherv", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAllgatherv(n, send, recv, counts, displs)
	})
}

// NeighborAlltoall is the operation of that name.
func NeighborAlltoall[T any](c *Comm, send, recv []T) *Operation {
	return c.neighbourly("NeighborAlltoall", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAlltoall(n, send, recv)
	})
}

// NeighborAlltoallv is the operation of that name.
func NeighborAlltoallv[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *Operation {
	return c.neighbourly("NeighborAlltoallv", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAlltoallv(n, send, scounts, sdispls, recv, rcounts, rdispls)
	})
}

// NeighborAlltoallw is the operation of that name.
func NeighborAlltoallw(c *Comm, send, recv []buffer.Part) *Operation {
	return c.neighbourly("NeighborAlltoallw", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		return coll.NeighborAlltoallw(n, send, recv)
	})
}

// neighbourly is an operation that transfers a part to and from every neighbour.
func (c *Comm) neighbourly(name string, cut func(topology.Neighbourhood) (out, in []buffer.Part, err error)) *Operation {
	n, err := c.neighbourhood()
	if c.IsInter() {
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
	return &Operation{Name: name, err: err, run: coll.Neighbors(n, out, in)}
}
