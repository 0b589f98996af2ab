package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
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

// layout is a *topology.Cart, *topology.Graph or *topology.DistGraph. They are immutable, so
// duplicates share them.
type layout any

// TopoTest returns which kind of topology c has (MPI_Topo_test; MPI-4.1,
// section 8.5.5).
func (c *Comm) TopoTest() TopologyKind {
	switch c.layout.(type) {
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
func layoutOf[L layout](c *Comm, want TopologyKind) (l L, err error) {
	if err := c.core.Usable(); err != nil {
		return l, err
	}
	l, ok := c.layout.(L)
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
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, c.called("CartCreate", err)
	}
	t := settle.Terms{Kind: settle.CartCreate, Args: [settle.MaxArgs]settle.Arg{settle.List("dims", dims), settle.List("periods", periods), boolArg("reorder", reorder)}}
	cart, err := topology.NewCart(c.Size(), dims, periods)
	t.Fault = err
	made, err := c.lay(ctx, call, t, reorder, func() (layout, int, reorderer) { return cart, cart.Size(), cart.Reorder })
	return made, c.called("CartCreate", err)
}

// GraphCreate returns a communicator whose process i has the neighbours edges[index[i-1]:index[i]],
// where index[-1] counts as 0, and nil to processes of rank len(index) and above (MPI_Graph_create;
// MPI-4.1, section 8.5.3). reorder is as for CartCreate. All ranks give the same arguments. It is a
// collective call.
func (c *Comm) GraphCreate(ctx context.Context, index, edges []int, reorder bool) (*Comm, error) {
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, c.called("GraphCreate", err)
	}
	t := settle.Terms{Kind: settle.GraphCreate, Args: [settle.MaxArgs]settle.Arg{settle.List("index", index), settle.List("edges", edges), boolArg("reorder", reorder)}}
	graph, err := topology.NewGraph(c.Size(), index, edges)
	t.Fault = err
	made, err := c.lay(ctx, call, t, reorder, func() (layout, int, reorderer) { return graph, graph.Size(), graph.Reorder })
	return made, c.called("GraphCreate", err)
}

func boolArg(name string, v bool) settle.Arg { return settle.List(name, v) }

type reorderer func(sites []int) (topology.Mapping, error)

// lay creates a communicator with a topology that all ranks know completely. of returns the
// topology once the arguments are checked, and its size.
func (c *Comm) lay(ctx context.Context, call *collectiveCall, t settle.Terms, reorder bool, of func() (layout, int, reorderer)) (*Comm, error) {
	id, err := settle.Settle(ctx, call, t)
	if err != nil {
		return nil, err
	}
	l, size, mapping := of()
	var m topology.Mapping
	if reorder {
		sites, err := c.sites(ctx, call)
		if err != nil {
			return nil, err
		}
		if m, err = mapping(sites); err != nil {
			return nil, err
		}
	}
	g, err := m.Split(c.core.Group, c.core.Rank, size)
	if err != nil || g == nil {
		return nil, err
	}
	made := c.child(nameOf(c, shortNames[t.Kind], id), g, id)
	made.layout = l
	made.goesOnFrom(call)
	return made, nil
}

var shortNames = map[settle.Kind]string{
	settle.CartCreate: "grid", settle.GraphCreate: "graph", settle.DistGraphCreateAdjacent: "graph", settle.DistGraphCreate: "graph",
}

// sites returns a number for each rank, equal for ranks of one site.
func (c *Comm) sites(ctx context.Context, call *collectiveCall) ([]int, error) {
	places, err := c.places(ctx, call)
	if err != nil {
		return nil, err
	}
	return place.BySite(places), nil
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
	made, err := c.cartSub(ctx, remain)
	return made, c.called("CartSub", err)
}

func (c *Comm) cartSub(ctx context.Context, remain []bool) (*Comm, error) {
	cart, err := layoutOf[*topology.Cart](c, CartTopology)
	if err != nil {
		return nil, err
	}
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, err
	}
	sub, slice, place, err := cart.Sub(c.core.Rank, remain)
	t := settle.Terms{Kind: settle.CartSub, Args: [settle.MaxArgs]settle.Arg{settle.List("remain", remain)}, Fault: err}
	made, err := c.split(ctx, call, t, slice, place, "subgrid")
	if err != nil {
		return nil, err
	}
	made.layout = sub
	return made, nil
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
