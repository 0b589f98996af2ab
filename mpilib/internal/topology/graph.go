package topology

import (
	"fmt"
	"slices"
)

// A Graph is a topology that every process knows completely (8.5.3).
type Graph struct {
	index, edges []int
}

// NewGraph returns the graph whose node i has the neighbours edges[index[i-1]:index[i]], where
// index[-1] counts as 0 (MPI_Graph_create, 8.5.3). procs is the number of processes; those of rank
// Size and above have no place. A node may be its own neighbour, and another's several times, and
// need not be a neighbour of its neighbours. NewGraph does not keep the slices.
func NewGraph(procs int, index, edges []int) (*Graph, error) {
	if len(index) > procs {
		return nil, fmt.Errorf("topology: NewGraph: %w: a graph of %d nodes needs more than the %d processes there are", ErrArg, len(index), procs)
	}
	last := 0
	for i, end := range index {
		if end < last {
			return nil, fmt.Errorf("topology: NewGraph: index[%d] = %d: %w: it is less than %d, where the node's edges begin", i, end, ErrArg, last)
		}
		last = end
	}
	if last != len(edges) {
		return nil, fmt.Errorf("topology: NewGraph: %w: index counts %d edges, and there are %d", ErrArg, last, len(edges))
	}
	for i, to := range edges {
		if to < 0 || to >= len(index) {
			return nil, fmt.Errorf("topology: NewGraph: edges[%d] = %d: %w: the graph has %d nodes", i, to, ErrRank, len(index))
		}
	}
	return &Graph{slices.Clone(index), slices.Clone(edges)}, nil
}

// Size returns the number of nodes.
func (g *Graph) Size() int { return len(g.index) }

// Index returns the ends of the nodes' neighbours in Edges (MPI_Graph_get, 8.5.5). The caller owns
// the slice.
func (g *Graph) Index() []int { return slices.Clone(g.index) }

// Edges returns the neighbours of all nodes in turn (MPI_Graph_get, 8.5.5). The caller owns the
// slice.
func (g *Graph) Edges() []int { return slices.Clone(g.edges) }

// Neighbours returns the neighbours of rank with the multiplicity and order in which they were
// given (MPI_Graph_neighbors, 8.5.5). The caller owns the slice.
func (g *Graph) Neighbours(rank int) ([]int, error) {
	if rank < 0 || rank >= len(g.index) {
		return nil, fmt.Errorf("topology: Neighbours: rank %d: %w: the graph has %d nodes", rank, ErrRank, len(g.index))
	}
	return slices.Clone(g.neighbours(rank)), nil
}

func (g *Graph) neighbours(rank int) []int {
	begin := 0
	if rank > 0 {
		begin = g.index[rank-1]
	}
	return g.edges[begin:g.index[rank]]
}

// Neighbourhood returns the neighbours of rank in neighbourhood collectives, which it both receives
// from and sends to, in the order of Neighbours (8.6). An exchange ends only if every node
// is a neighbour of each of its neighbours as often as they are of it.
func (g *Graph) Neighbourhood(rank int) (Neighbourhood, error) {
	list, err := g.Neighbours(rank)
	if err != nil {
		return Neighbourhood{}, err
	}
	both := withSlots(list)
	return Neighbourhood{both, slices.Clone(both)}, nil
}
