package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// DistGraphCreateAdjacent returns a communicator in which each process specifies its own
// neighbours: it receives from sources and sends to dests (MPI_Dist_graph_create_adjacent; MPI-4.1,
// section 8.5.4). Weights, the amounts of traffic over the edges, are nil for a graph without
// weights (MPI_UNWEIGHTED). Both ends of an edge must specify it. Ranks are those of c: reorder is
// permitted and ignored. It is a collective call; the caller keeps the slices.
func (c *Comm) DistGraphCreateAdjacent(ctx context.Context, sources, sourceWeights, dests, destWeights []int, reorder bool) (*Comm, error) {
	n, err := c.core.DistGraphCreateAdjacent(ctx, sources, sourceWeights, dests, destWeights, reorder)
	return c.created("DistGraphCreateAdjacent", n, err)
}

// DistGraphCreate is DistGraphCreateAdjacent where every process specifies any edges of the graph:
// sources[i] sends to the next degrees[i] of dests (MPI_Dist_graph_create; MPI-4.1, section 8.5.4).
// Neighbours are ordered by the rank that specified them, and then in the order in which it did.
func (c *Comm) DistGraphCreate(ctx context.Context, sources, degrees, dests, weights []int, reorder bool) (*Comm, error) {
	n, err := c.core.DistGraphCreate(ctx, sources, degrees, dests, weights, reorder)
	return c.created("DistGraphCreate", n, err)
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
