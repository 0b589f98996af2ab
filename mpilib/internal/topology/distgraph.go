package topology

import (
	"fmt"
	"slices"
)

// An Edge is one directed edge of a distributed graph: Source sends to Dest. The ranks are old
// ranks until a topology is made from them.
type Edge struct {
	Source, Dest int
	Weight       int // 0 if the graph has no weights
}

// A DistGraph is one process's part of a distributed graph (8.5.4): only its own neighbours, so
// memory does not grow with the job.
type DistGraph struct {
	rank                     int
	sources, dests           []int
	sourceWeight, destWeight []int // nil if the graph has no weights
}

// Adjacent returns the part of a process that names its own neighbours
// (MPI_Dist_graph_create_adjacent, 8.5.4). procs is the number of processes and rank is the
// caller's own. A neighbour may be named several times and may be the process itself. Both weights
// are nil for a graph without weights (MPI_UNWEIGHTED); the weights of no neighbours may be nil or
// empty. Neighbours keep this order (8.5.5). Adjacent does not keep the slices.
func Adjacent(procs, rank int, sources, sourceWeights, dests, destWeights []int) (*DistGraph, error) {
	if rank < 0 || rank >= procs {
		return nil, fmt.Errorf("topology: Adjacent: rank %d: %w: there are %d processes", rank, ErrRank, procs)
	}
	g := &DistGraph{rank: rank, sources: slices.Clone(sources), dests: slices.Clone(dests)}
	weighted := sourceWeights != nil || destWeights != nil
	for _, side := range []struct {
		name           string
		ranks, weights []int
		keep           *[]int
	}{{"sources", sources, sourceWeights, &g.sourceWeight}, {"dests", dests, destWeights, &g.destWeight}} {
		if err := checkRanks(procs, side.name, side.ranks); err != nil {
			return nil, fmt.Errorf("topology: Adjacent: %w", err)
		}
		if !weighted {
			continue
		}
		if err := checkWeights(side.name, side.weights, len(side.ranks)); err != nil {
			return nil, fmt.Errorf("topology: Adjacent: %w", err)
		}
		*side.keep = append([]int{}, side.weights...)
	}
	return g, nil
}

// EdgesOf returns the edges that one process contributes to a graph
// (MPI_Dist_graph_create, 8.5.4): sources[i] sends to the next degrees[i] of
// dests. Any process may contribute any edge. weights is nil for a graph without
// weights (MPI_UNWEIGHTED), and otherwise as long as dests.
func EdgesOf(procs int, sources, degrees, dests, weights []int) ([]Edge, error) {
	if len(degrees) != len(sources) {
		return nil, fmt.Errorf("topology: EdgesOf: %w: %d degrees for %d sources", ErrArg, len(degrees), len(sources))
	}
	if err := checkRanks(procs, "sources", sources); err != nil {
		return nil, fmt.Errorf("topology: EdgesOf: %w", err)
	}
	if err := checkRanks(procs, "dests", dests); err != nil {
		return nil, fmt.Errorf("topology: EdgesOf: %w", err)
	}
	if weights != nil {
		if err := checkWeights("dests", weights, len(dests)); err != nil {
			return nil, fmt.Errorf("topology: EdgesOf: %w", err)
		}
	}
	edges := make([]Edge, 0, len(dests))
	for i, degree := range degrees {
		begin := len(edges)
		if degree < 0 || degree > len(dests)-begin {
			return nil, fmt.Errorf("topology: EdgesOf: degrees[%d] = %d: %w: %d of %d dests are left", i, degree, ErrArg, len(dests)-begin, len(dests))
		}
		for j := begin; j < begin+degree; j++ {
			e := Edge{Source: sources[i], Dest: dests[j]}
			if weights != nil {
				e.Weight = weights[j]
			}
			edges = append(edges, e)
		}
	}
	if len(edges) != len(dests) {
		return nil, fmt.Errorf("topology: EdgesOf: %w: the degrees count %d edges, and there are %d dests", ErrArg, len(edges), len(dests))
	}
	return edges, nil
}

// Collect returns rank's part of the graph with the given edges; it ignores those of other
// processes. Neighbours are in the order of edges. The two ends of parallel edges must see them in
// the same order, as they do when edges are ordered by contributing process and then as EdgesOf
// returns them. Collect does not keep edges.
func Collect(rank int, edges []Edge, weighted bool) *DistGraph {
	g := &DistGraph{rank: rank}
	if weighted {
		g.sourceWeight, g.destWeight = []int{}, []int{}
	}
	for _, e := range edges {
		if e.Dest == rank {
			g.sources = append(g.sources, e.Source)
			if weighted {
				g.sourceWeight = append(g.sourceWeight, e.Weight)
			}
		}
		if e.Source == rank {
			g.dests = append(g.dests, e.Dest)
			if weighted {
				g.destWeight = append(g.destWeight, e.Weight)
			}
		}
	}
	return g
}

// Rank returns the rank whose part it is.
func (g *DistGraph) Rank() int { return g.rank }

// Sources returns the ranks that rank receives from and the edges' weights, nil if there are none
// (MPI_Dist_graph_neighbors, 8.5.5). The caller owns the slices.
func (g *DistGraph) Sources() (ranks, weights []int) {
	return slices.Clone(g.sources), slices.Clone(g.sourceWeight)
}

// Dests returns the ranks that rank sends to and the edges' weights, nil if there are none
// (MPI_Dist_graph_neighbors, 8.5.5). The caller owns the slices.
func (g *DistGraph) Dests() (ranks, weights []int) {
	return slices.Clone(g.dests), slices.Clone(g.destWeight)
}

// Neighbourhood returns rank's neighbours in neighbourhood collectives, in the
// order of Sources and of Dests (8.6).
func (g *DistGraph) Neighbourhood() Neighbourhood {
	return Neighbourhood{withSlots(g.sources), withSlots(g.dests)}
}

func checkRanks(procs int, name string, ranks []int) error {
	for i, r := range ranks {
		if r < 0 || r >= procs {
			return fmt.Errorf("%s[%d] = %d: %w: there are %d processes", name, i, r, ErrRank, procs)
		}
	}
	return nil
}

func checkWeights(name string, weights []int, n int) error {
	if len(weights) != n {
		return fmt.Errorf("%w: %d weights for %d %s", ErrArg, len(weights), n, name)
	}
	for i, w := range weights {
		if w < 0 {
			return fmt.Errorf("weight %d of %s: %w: %d is negative", i, name, ErrArg, w)
		}
	}
	return nil
}
