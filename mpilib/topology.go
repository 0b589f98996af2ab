package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// TopologyKind is the kind of a communicator's topology.
type TopologyKind int

// The kinds of topologies (MPI-4.1, section 8.5.5).
const (
	NoTopology TopologyKind = iota
	CartTopology
	GraphTopology
	DistGraphTopology
)

func (k TopologyKind) String() string {
	names := [...]string{"no topology", "Cartesian topology", "graph topology", "distributed graph topology"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("TopologyKind(%d)", int(k))
	}
	return names[k]
}

// TopoTest returns which kind of topology c has (MPI_Topo_test; MPI-4.1,
// section 8.5.5).
func (c *Comm) TopoTest() TopologyKind {
	switch c.core.Layout.(type) {
	case *topology.Cart:
		return CartTopology
	case *topology.Graph:
		return GraphTopology
	case *topology.DistGraph:
		return DistGraphTopology
	}
	return NoTopology
}

// layoutOf returns c's topology if it is an L.
func layoutOf[L any](c *Comm, want TopologyKind) (l L, err error) {
	if err := c.core.Usable(); err != nil {
		return l, err
	}
	l, ok := c.core.Layout.(L)
	if !ok {
		return l, fmt.Errorf("%w: %s has %v and the call needs %v", ErrTopology, c.Name(), c.TopoTest(), want)
	}
	return l, nil
}

// DimsCreate sets the sizes that are 0 in dims, so that the product of all is nnodes and they are
// as close to each other as possible, in non-increasing order (MPI_Dims_create; MPI-4.1, section
// 8.5.2). On an error dims is unchanged.
func DimsCreate(nnodes int, dims []int) error {
	if err := topology.Dims(nnodes, dims); err != nil {
		return fmt.Errorf("mpilib: DimsCreate: %w", err)
	}
	return nil
}

// CartCreate returns a communicator whose first processes form a Cartesian grid of the given sizes,
// each dimension periodic if periods says so, and nil to the remaining processes (MPI_Cart_create;
// MPI-4.1, section 8.5.1). With reorder, ranks may differ from those in c: they are chosen so that
// neighbours are on one site where possible. All ranks give the same arguments. It is a collective
// call.
func (c *Comm) CartCreate(ctx context.Context, dims []int, periods []bool, reorder bool) (*Comm, error) {
	n, err := c.core.CartCreate(ctx, dims, periods, reorder)
	return c.created("CartCreate", n, err)
}

// GraphCreate returns a communicator whose process i has the neighbours edges[index[i-1]:index[i]],
// where index[-1] counts as 0, and nil to processes of rank len(index) and above (MPI_Graph_create;
// MPI-4.1, section 8.5.3). reorder is as for CartCreate. All ranks give the same arguments. It is a
// collective call.
func (c *Comm) GraphCreate(ctx context.Context, index, edges []int, reorder bool) (*Comm, error) {
	n, err := c.core.GraphCreate(ctx, index, edges, reorder)
	return c.created("GraphCreate", n, err)
}

// CartGet returns the sizes of a Cartesian communicator, which of its dimensions are periodic, and
// the caller's coordinates (MPI_Cart_get; MPI-4.1, section 8.5.5). The caller owns the slices.
func (c *Comm) CartGet() (dims []int, periods []bool, coords []int, err error) {
	cart, err := layoutOf[*topology.Cart](c, CartTopology)
	if err != nil {
		return nil, nil, nil, c.called("CartGet", err)
	}
	coords, err = cart.Coords(c.core.Rank)
	return cart.Dims(), cart.Periods(), coords, c.called("CartGet", err)
}

// CartRank returns the rank at some coordinates; those of a periodic dimension wrap around
// (MPI_Cart_rank; MPI-4.1, section 8.5.5).
func (c *Comm) CartRank(coords []int) (int, error) {
	cart, err := layoutOf[*topology.Cart](c, CartTopology)
	if err != nil {
		return Undefined, c.called("CartRank", err)
	}
	rank, err := cart.Rank(coords)
	return rank, c.called("CartRank", err)
}

// CartCoords returns the coordinates of a rank (MPI_Cart_coords; MPI-4.1, section 8.5.5). The
// caller owns the slice.
func (c *Comm) CartCoords(rank int) ([]int, error) {
	cart, err := layoutOf[*topology.Cart](c, CartTopology)
	if err != nil {
		return nil, c.called("CartCoords", err)
	}
	coords, err := cart.Coords(rank)
	return coords, c.called("CartCoords", err)
}

// CartShift returns the ranks that the caller receives from and sends to when every process sends
// disp places up a dimension: ProcNull beyond the end of a dimension that is not periodic
// (MPI_Cart_shift; MPI-4.1, section 8.5.6).
func (c *Comm) CartShift(dim, disp int) (source, dest int, err error) {
	cart, err := layoutOf[*topology.Cart](c, CartTopology)
	if err != nil {
		return Undefined, Undefined, c.called("CartShift", err)
	}
	source, dest, err = cart.Shift(c.core.Rank, dim, disp)
	return source, dest, c.called("CartShift", err)
}

// CartSub divides a grid into lower-dimensional ones, which keep the dimensions that remain
// selects, and returns the caller's (MPI_Cart_sub; MPI-4.1, section 8.5.7). All ranks give the same
// arguments. It is a collective call.
func (c *Comm) CartSub(ctx context.Context, remain []bool) (*Comm, error) {
	cart, err := layoutOf[*topology.Cart](c, CartTopology)
	if err != nil {
		return nil, c.called("CartSub", err)
	}
	n, err := c.core.CartSub(ctx, cart, remain)
	return c.created("CartSub", n, err)
}

// GraphGet returns the arguments of GraphCreate (MPI_Graph_get; MPI-4.1, section 8.5.5). The caller
// owns the slices.
func (c *Comm) GraphGet() (index, edges []int, err error) {
	graph, err := layoutOf[*topology.Graph](c, GraphTopology)
	if err != nil {
		return nil, nil, c.called("GraphGet", err)
	}
	return graph.Index(), graph.Edges(), nil
}

// GraphNeighbors returns the neighbours of a rank, as often and in the order in which they were
// given (MPI_Graph_neighbors; MPI-4.1, section 8.5.5). The caller owns the slice.
func (c *Comm) GraphNeighbors(rank int) ([]int, error) {
	graph, err := layoutOf[*topology.Graph](c, GraphTopology)
	if err != nil {
		return nil, c.called("GraphNeighbors", err)
	}
	list, err := graph.Neighbours(rank)
	return list, c.called("GraphNeighbors", err)
}
