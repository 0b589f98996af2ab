package core

import "github.com/isthmus-grid/isthmus/mpilib"

// GraphCreate makes a communicator with a graph that all processes know; MPI_COMM_NULL for those left out
// (MPI-5.0, section 8.5.3).
func GraphCreate(comm uintptr, nnodes int32, index, edges uintptr, reorder int32, newcomm uintptr) int32 {
	return onComm("MPI_Graph_create", comm, func(c *communicator) error {
		made, err := c.graph(nnodes, index, edges, reorder != 0)
		return c.create(made, err, newcomm)
	})
}

// graph makes a graph of what the program passed; nil for a process that is left out.
func (c *communicator) graph(nnodes int32, index, edges uintptr, reorder bool) (*mpilib.Comm, error) {
	ends, err := numbersOf("nodes", index, int(nnodes))
	if err != nil {
		return nil, err
	}
	all := 0
	if len(ends) > 0 {
		all = ends[len(ends)-1]
	}
	neighbours, err := numbersOf("edges", edges, all)
	if err != nil {
		return nil, err
	}
	return c.GraphCreate(background, ends, neighbours, reorder)
}

// GraphMap returns which rank GraphCreate with reordering gives the caller, MPI_UNDEFINED if it leaves
// it out. It is a collective call (MPI-5.0, section 8.5.8).
func GraphMap(comm uintptr, nnodes int32, index, edges, newrank uintptr) int32 {
	return onComm("MPI_Graph_map", comm, func(c *communicator) error {
		made, err := c.graph(nnodes, index, edges, true)
		return mapped(made, err, newrank)
	})
}

// GraphdimsGet returns the numbers of nodes and edges of a graph (MPI-5.0, section 8.5.5).
func GraphdimsGet(comm, nnodes, nedges uintptr) int32 {
	return onComm("MPI_Graphdims_get", comm, func(c *communicator) error {
		index, edges, err := c.GraphGet()
		if err == nil {
			store(nnodes, int32(len(index)))
			store(nedges, int32(len(edges)))
		}
		return err
	})
}

// GraphGet returns the graph.
func GraphGet(comm uintptr, maxindex, maxedges int32, index, edges uintptr) int32 {
	return onComm("MPI_Graph_get", comm, func(c *communicator) error {
		ends, neighbours, err := c.GraphGet()
		if err != nil {
			return err
		}
		if err := storeNumbers("nodes", index, maxindex, ends); err != nil {
			return err
		}
		return storeNumbers("edges", edges, maxedges, neighbours)
	})
}

// GraphNeighborsCount returns the number of a rank's neighbours.
func GraphNeighborsCount(comm uintptr, rank int32, count uintptr) int32 {
	return onComm("MPI_Graph_neighbors_count", comm, func(c *communicator) error {
		list, err := c.GraphNeighbors(int(rank))
		if err == nil {
			store(count, int32(len(list)))
		}
		return err
	})
}

// GraphNeighbors returns the neighbours of a rank.
func GraphNeighbors(comm uintptr, rank, max int32, neighbors uintptr) int32 {
	return onComm("MPI_Graph_neighbors", comm, func(c *communicator) error {
		list, err := c.GraphNeighbors(int(rank))
		if err != nil {
			return err
		}
		return storeNumbers("neighbours", neighbors, max, list)
	})
}

// What a program passes for the weights of a graph without any, and for no weights of one that has
// some. The front-ends of other ABIs have the same values.
const (
	unweighted   = uintptr(10) // MPI_UNWEIGHTED
	weightsEmpty = uintptr(11) // MPI_WEIGHTS_EMPTY
)

// weightsOf reads the weights of n edges: nil for a graph without weights.
func weightsOf(address uintptr, n int) ([]int, error) {
	switch address {
	case unweighted:
		return nil, nil
	case weightsEmpty:
		if n > 0 {
			return nil, failure(errArg, "%d edges with MPI_WEIGHTS_EMPTY; give their weights, or MPI_UNWEIGHTED on all processes", n)
		}
	}
	if n == 0 {
		return []int{}, nil
	}
	return numbersOf("weights", address, n)
}

// edgesOf reads the ranks at the other ends of n edges, and their weights.
func edgesOf(what string, ranks, weights uintptr, n int) (others, heavy []int, err error) {
	others, err = numbersOf(what, ranks, n)
	if err == nil {
		heavy, err = weightsOf(weights, len(others))
	}
	return others, heavy, err
}

// DistGraphCreateAdjacent makes a communicator with a graph of which each process gives its own edges
// (MPI-5.0, section 8.5.4).
func DistGraphCreateAdjacent(comm uintptr, indegree int32, sources, sourceWeights uintptr, outdegree int32, dests, destWeights, info uintptr, reorder int32, newcomm uintptr) int32 {
	return onComm("MPI_Dist_graph_create_adjacent", comm, func(c *communicator) error {
		from, fromWeights, err := edgesOf("sources", sources, sourceWeights, int(indegree))
		if err != nil {
			return err
		}
		to, toWeights, err := edgesOf("destinations", dests, destWeights, int(outdegree))
		if err != nil {
			return err
		}
		if _, err := infoOf(info); err != nil {
			return err
		}
		made, err := c.DistGraphCreateAdjacent(background, from, fromWeights, to, toWeights, reorder != 0)
		return c.create(made, err, newcomm)
	})
}

// DistGraphCreate makes one of which each process gives any edges: degrees[i] from sources[i].
func DistGraphCreate(comm uintptr, n int32, sources, degrees, dests, weights, info uintptr, reorder int32, newcomm uintptr) int32 {
	return onComm("MPI_Dist_graph_create", comm, func(c *communicator) error {
		from, err := numbersOf("sources", sources, int(n))
		if err != nil {
			return err
		}
		counts, err := numbersOf("degrees", degrees, int(n))
		if err != nil {
			return err
		}
		all := 0
		for _, d := range counts {
			if d < 0 {
				return failure(errArg, "a source with %d edges", d)
			}
			all += d
		}
		to, toWeights, err := edgesOf("destinations", dests, weights, all)
		if err != nil {
			return err
		}
		if _, err := infoOf(info); err != nil {
			return err
		}
		made, err := c.DistGraphCreate(background, from, counts, to, toWeights, reorder != 0)
		return c.create(made, err, newcomm)
	})
}

// DistGraphNeighborsCount returns the numbers of the caller's edges, and whether they have weights.
func DistGraphNeighborsCount(comm, indegree, outdegree, weighted uintptr) int32 {
	return onComm("MPI_Dist_graph_neighbors_count", comm, func(c *communicator) error {
		sources, weights, dests, _, err := c.DistGraphNeighbors()
		if err == nil {
			store(indegree, int32(len(sources)))
			store(outdegree, int32(len(dests)))
			store(weighted, logicalOf(weights != nil))
		}
		return err
	})
}

// DistGraphNeighbors returns the first of the caller's edges, as many as there is room for, and their
// weights where there are some and the program has not MPI_UNWEIGHTED in their place.
func DistGraphNeighbors(comm uintptr, maxin int32, sources, sourceWeights uintptr, maxout int32, dests, destWeights uintptr) int32 {
	return onComm("MPI_Dist_graph_neighbors", comm, func(c *communicator) error {
		from, fromWeights, to, toWeights, err := c.DistGraphNeighbors()
		if err != nil {
			return err
		}
		if err := storeEdges("sources", sources, sourceWeights, maxin, from, fromWeights); err != nil {
			return err
		}
		return storeEdges("destinations", dests, destWeights, maxout, to, toWeights)
	})
}

// storeEdges writes the first edges, as many as there is room for.
func storeEdges(what string, ranks, weights uintptr, room int32, others, heavy []int) error {
	if room < 0 {
		return failure(errArg, "room for %d %s", room, what)
	}
	n := min(len(others), int(room))
	if err := storeNumbers(what, ranks, room, others[:n]); err != nil {
		return err
	}
	if heavy == nil || weights == unweighted || weights == weightsEmpty {
		return nil
	}
	return storeNumbers("weights", weights, room, heavy[:n])
}
