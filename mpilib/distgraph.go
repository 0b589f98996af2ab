package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// DistGraphCreateAdjacent returns a communicator in which each process specifies its own
// neighbours: it receives from sources and sends to dests (MPI_Dist_graph_create_adjacent; MPI-4.1,
// section 8.5.4). Weights, the amounts of traffic over the edges, are nil for a graph without
// weights (MPI_UNWEIGHTED). Both ends of an edge must specify it. Ranks are those of c: reorder is
// permitted and ignored. It is a collective call; the caller keeps the slices.
func (c *Comm) DistGraphCreateAdjacent(ctx context.Context, sources, sourceWeights, dests, destWeights []int, reorder bool) (*Comm, error) {
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, c.called("DistGraphCreateAdjacent", err)
	}
	g, err := topology.Adjacent(c.Size(), c.core.Rank, sources, sourceWeights, dests, destWeights)
	weighted := sourceWeights != nil || destWeights != nil
	t := distTerms(settle.DistGraphCreateAdjacent, weighted, reorder, err)
	made, err := c.layPart(ctx, call, t, func(context.Context, *collectiveCall) (*topology.DistGraph, error) { return g, nil })
	return made, c.called("DistGraphCreateAdjacent", err)
}

// DistGraphCreate is DistGraphCreateAdjacent where every process specifies any edges of the graph:
// sources[i] sends to the next degrees[i] of dests (MPI_Dist_graph_create; MPI-4.1, section 8.5.4).
// Neighbours are ordered by the rank that specified them, and then in the order in which it did.
func (c *Comm) DistGraphCreate(ctx context.Context, sources, degrees, dests, weights []int, reorder bool) (*Comm, error) {
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, c.called("DistGraphCreate", err)
	}
	mine, err := topology.EdgesOf(c.Size(), sources, degrees, dests, weights)
	t := distTerms(settle.DistGraphCreate, weights != nil, reorder, err)
	made, err := c.layPart(ctx, call, t, func(ctx context.Context, call *collectiveCall) (*topology.DistGraph, error) {
		edges, err := shareEdges(ctx, call, mine)
		if err != nil {
			return nil, err
		}
		return topology.Collect(c.core.Rank, edges, weights != nil), nil
	})
	return made, c.called("DistGraphCreate", err)
}

func distTerms(kind settle.Kind, weighted, reorder bool, fault error) settle.Terms {
	return settle.Terms{Kind: kind, Args: [settle.MaxArgs]settle.Arg{boolArg("whether there are weights", weighted), boolArg("reorder", reorder)}, Fault: fault}
}

func (c *Comm) layPart(ctx context.Context, call *collectiveCall, t settle.Terms, part func(context.Context, *collectiveCall) (*topology.DistGraph, error)) (*Comm, error) {
	id, err := settle.Settle(ctx, call, t)
	if err != nil {
		return nil, err
	}
	g, err := part(ctx, call)
	if err != nil {
		return nil, err
	}
	made := c.child(nameOf(c, shortNames[t.Kind], id), c.core.Group, id)
	made.layout = g
	made.goesOnFrom(call)
	return made, nil
}

// shareEdges sends every edge to its two ends and returns those of this rank,
// by contributing rank.
func shareEdges(ctx context.Context, call *collectiveCall, mine []topology.Edge) ([]topology.Edge, error) {
	bound := make([][]topology.Edge, call.Size())
	for _, e := range mine {
		bound[e.Source] = append(bound[e.Source], e)
		if e.Dest != e.Source {
			bound[e.Dest] = append(bound[e.Dest], e)
		}
	}
	return coll.Distribute(ctx, call, bound)
}

// DistGraphNeighbors returns the processes that the caller receives from and sends to in a
// distributed graph, and the edges' weights, nil if there are none (MPI_Dist_graph_neighbors;
// MPI-4.1, section 8.5.5). The caller owns the slices.
func (c *Comm) DistGraphNeighbors() (sources, sourceWeights, dests, destWeights []int, err error) {
	g, err := layoutOf[*topology.DistGraph](c, DistGraphTopology)
	if err != nil {
		return nil, nil, nil, nil, c.called("DistGraphNeighbors", err)
	}
	sources, sourceWeights = g.Sources()
	dests, destWeights = g.Dests()
	return sources, sourceWeights, dests, destWeights, nil
}

// neighbourhood returns the processes that the caller exchanges data with in neighbourhood
// collectives (MPI-4.1, section 8.6).
func (c *Comm) neighbourhood() (topology.Neighbourhood, error) {
	switch l := c.layout.(type) {
	case *topology.Cart:
		return l.Neighbourhood(c.core.Rank)
	case *topology.Graph:
		return l.Neighbourhood(c.core.Rank)
	case *topology.DistGraph:
		return l.Neighbourhood(), nil
	}
	return topology.Neighbourhood{}, fmt.Errorf("%w: %s has no topology and so no neighbours; make one with CartCreate, GraphCreate or DistGraphCreate", ErrTopology, c.Name())
}
