package calls

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// CartCreate implements MPI_Cart_create.
func (c *Comm) CartCreate(ctx context.Context, dims []int, periods []bool, reorder bool) (*Created, error) {
	t := settle.Terms{Kind: settle.CartCreate, Args: [settle.MaxArgs]settle.Arg{settle.List("dims", dims), settle.List("periods", periods), settle.List("reorder", reorder)}}
	cart, err := topology.NewCart(c.Group.Size(), dims, periods)
	t.Fault = err
	return c.lay(ctx, t, "grid", reorder, cart)
}

// GraphCreate implements MPI_Graph_create.
func (c *Comm) GraphCreate(ctx context.Context, index, edges []int, reorder bool) (*Created, error) {
	t := settle.Terms{Kind: settle.GraphCreate, Args: [settle.MaxArgs]settle.Arg{settle.List("index", index), settle.List("edges", edges), settle.List("reorder", reorder)}}
	graph, err := topology.NewGraph(c.Group.Size(), index, edges)
	t.Fault = err
	return c.lay(ctx, t, "graph", reorder, graph)
}

// layout is a topology that all ranks know completely.
type layout interface {
	Size() int
	Reorder(sites []int) (topology.Mapping, error)
}

// lay creates a communicator with the topology l, which is valid if t has no Fault.
func (c *Comm) lay(ctx context.Context, t settle.Terms, how string, reorder bool, l layout) (*Created, error) {
	call, id, err := c.nextSettled(ctx, t)
	if err != nil {
		return nil, err
	}
	var m topology.Mapping
	if reorder {
		places, err := call.Places(ctx)
		if err != nil {
			return nil, err
		}
		if m, err = l.Reorder(place.BySite(places)); err != nil {
			return nil, err
		}
	}
	g, err := m.Split(c.Group, c.Rank, l.Size())
	if err != nil || g == nil {
		return nil, err
	}
	return &Created{IDs: IDs{Comm: id}, Name: c.NameOf(how, id), Group: g, Layout: l, call: call}, nil
}

// CartSub implements MPI_Cart_sub; c's topology is cart.
func (c *Comm) CartSub(ctx context.Context, cart *topology.Cart, remain []bool) (*Created, error) {
	sub, slice, place, err := cart.Sub(c.Rank, remain)
	n, err := c.split(ctx, settle.Terms{Kind: settle.CartSub, Args: [settle.MaxArgs]settle.Arg{settle.List("remain", remain)}, Fault: err}, slice, place, "subgrid")
	if err != nil {
		return nil, err
	}
	n.Layout = sub
	return n, nil
}

// DistGraphCreateAdjacent implements MPI_Dist_graph_create_adjacent.
func (c *Comm) DistGraphCreateAdjacent(ctx context.Context, sources, sourceWeights, dests, destWeights []int, reorder bool) (*Created, error) {
	g, err := topology.Adjacent(c.Group.Size(), c.Rank, sources, sourceWeights, dests, destWeights)
	weighted := sourceWeights != nil || destWeights != nil
	t := distTerms(settle.DistGraphCreateAdjacent, weighted, reorder, err)
	return c.layPart(ctx, t, func(context.Context, *Call) (*topology.DistGraph, error) { return g, nil })
}

// DistGraphCreate implements MPI_Dist_graph_create.
func (c *Comm) DistGraphCreate(ctx context.Context, sources, degrees, dests, weights []int, reorder bool) (*Created, error) {
	mine, err := topology.EdgesOf(c.Group.Size(), sources, degrees, dests, weights)
	t := distTerms(settle.DistGraphCreate, weights != nil, reorder, err)
	return c.layPart(ctx, t, func(ctx context.Context, call *Call) (*topology.DistGraph, error) {
		edges, err := shareEdges(ctx, call, mine)
		if err != nil {
			return nil, err
		}
		return topology.Collect(c.Rank, edges, weights != nil), nil
	})
}

func distTerms(kind settle.Kind, weighted, reorder bool, fault error) settle.Terms {
	return settle.Terms{Kind: kind, Args: [settle.MaxArgs]settle.Arg{settle.List("whether there are weights", weighted), settle.List("reorder", reorder)}, Fault: fault}
}

// layPart creates a communicator with a topology of which each rank knows its part.
func (c *Comm) layPart(ctx context.Context, t settle.Terms, part func(context.Context, *Call) (*topology.DistGraph, error)) (*Created, error) {
	call, id, err := c.nextSettled(ctx, t)
	if err != nil {
		return nil, err
	}
	g, err := part(ctx, call)
	if err != nil {
		return nil, err
	}
	return &Created{IDs: IDs{Comm: id}, Name: c.NameOf("graph", id), Group: c.Group, Layout: g, call: call}, nil
}

// shareEdges sends every edge to its two ends and returns those of this rank, by contributing rank.
func shareEdges(ctx context.Context, call *Call, mine []topology.Edge) ([]topology.Edge, error) {
	bound := make([][]topology.Edge, call.Size())
	for _, e := range mine {
		bound[e.Source] = append(bound[e.Source], e)
		if e.Dest != e.Source {
			bound[e.Dest] = append(bound[e.Dest], e)
		}
	}
	return coll.Distribute(ctx, call, bound)
}

// neighbourhood returns the processes that the caller exchanges data with in neighbourhood
// collectives (MPI-4.1, section 8.6).
func (c *Comm) neighbourhood() (topology.Neighbourhood, error) {
	switch l := c.Layout.(type) {
	case *topology.Cart:
		return l.Neighbourhood(c.Rank)
	case *topology.Graph:
		return l.Neighbourhood(c.Rank)
	case *topology.DistGraph:
		return l.Neighbourhood(), nil
	}
	return topology.Neighbourhood{}, fmt.Errorf("%w: %s has no topology and so no neighbours; make one with CartCreate, GraphCreate or DistGraphCreate", mpi.ErrTopology, c.Name())
}
