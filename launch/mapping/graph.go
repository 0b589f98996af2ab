package mapping

// A Graph is a program's tasks and who talks to whom (the paper's TIG). It must not change while it is
// used.
type Graph struct {
	Cost  []float64 // e, by task: of one iteration, in the unit of [Architecture.Power] times a second
	Edges [][]Edge  // by task; each edge is at both its ends, with the same weight
}

// An Edge leads to a task.
type Edge struct {
	Task   int
	Weight float64 // c: how many messages an iteration sends; more than 0
}

// Tasks returns the number of tasks.
func (g *Graph) Tasks() int { return len(g.Cost) }

// EdgeCount returns the number of edges.
func (g *Graph) EdgeCount() int {
	ends := 0
	for _, edges := range g.Edges {
		ends += len(edges)
	}
	return ends / 2
}

// Band returns the graph of a banded system in blocks of rows: each task talks to those whose rows its
// half-bandwidth reaches, and all costs and weights are 1.
func Band(tasks, rows, halfBandwidth int) *Graph {
	size := (rows + tasks - 1) / tasks
	reach := (halfBandwidth + size - 1) / size
	g := &Graph{make([]float64, tasks), make([][]Edge, tasks)}
	for t := range tasks {
		g.Cost[t] = 1
		for u := max(0, t-reach); u <= min(tasks-1, t+reach); u++ {
			if u != t {
				g.Edges[t] = append(g.Edges[t], Edge{u, 1})
			}
		}
	}
	return g
}
