package mapping

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// growthPowers bounds how many least powers growths try.
const growthPowers = 8

// growths returns maps that grow along the graph: a region of tasks takes a cluster, always adding the task
// with the most weight to it, and then another region the nearest next cluster. They use only nodes of
// a least power: all, or the faster ones that still suffice.
func growths(p Problem) (all []Map) {
	for _, least := range leastPowers(p) {
		eligible := make([][]int, len(p.Nodes.Latency))
		for node, c := range p.Nodes.Cluster {
			if p.Nodes.Power[node] >= least {
				eligible[c] = append(eligible[c], node)
			}
		}
		for _, first := range largest(eligible, 2) {
			all = append(all, grow(p, eligible, first))
		}
	}
	return all
}

// leastPowers returns powers of nodes such that the nodes of at least that power suffice: the greatest such
// power, the least of all, and some between them.
func leastPowers(p Problem) (powers []float64) {
	sorted := slices.Clone(p.Nodes.Power)
	slices.SortFunc(sorted, func(a, b float64) int { return cmp.Compare(b, a) })
	enough := slices.Compact(sorted[p.Graph.Tasks()-1:])
	for i := range min(growthPowers, len(enough)) {
		powers = append(powers, enough[i*(len(enough)-1)/max(1, min(growthPowers, len(enough))-1)])
	}
	return slices.Compact(powers)
}

// largest returns the clusters with the most eligible nodes, at most so many.
func largest(eligible [][]int, most int) []int {
	var all []int
	for c, nodes := range eligible {
		if len(nodes) > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(len(eligible[b]), len(eligible[a])) })
	return all[:min(most, len(all))]
}

// grow makes the map that begins at a cluster.
func grow(p Problem, eligible [][]int, first int) Map {
	g := growth{p: p, m: make(Map, p.Graph.Tasks()), weight: make([]float64, p.Graph.Tasks())}
	for task := range g.m {
		g.m[task] = -1
	}
	used := make([]bool, len(eligible))
	for cluster := first; g.placed < len(g.m); cluster = nextCluster(p, eligible, used) {
		used[cluster] = true
		g.fill(eligible[cluster])
	}
	return g.m
}

// nextCluster returns the cluster that is nearest to all used ones together, of equal ones the largest.
func nextCluster(p Problem, eligible [][]int, used []bool) int {
	best, least := -1, math.Inf(1)
	for c, nodes := range eligible {
		if used[c] || len(nodes) == 0 {
			continue
		}
		distance := 0.0
		for d := range used {
			if used[d] {
				distance += p.Nodes.Latency[c][d]
			}
		}
		if distance < least || distance == least && len(nodes) > len(eligible[best]) {
			best, least = c, distance
		}
	}
	return best
}

// growth is the state of grow. As a heap it has tasks by their weight to the region.
type growth struct {
	p      Problem
	m      Map
	placed int
	weight []float64 // by task: to the region that grows
	queue  []candidate
}

// A candidate is a task that may come next; it is outdated if its weight is no longer that of the task.
type candidate struct {
	task   int
	weight float64
}

func (g *growth) Len() int      { return len(g.queue) }
func (g *growth) Swap(i, j int) { g.queue[i], g.queue[j] = g.queue[j], g.queue[i] }
func (g *growth) Push(x any)    { g.queue = append(g.queue, x.(candidate)) }
func (g *growth) Less(i, j int) bool {
	a, b := g.queue[i], g.queue[j]
	return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.task, b.task)) < 0
}
func (g *growth) Pop() any {
	last := g.queue[len(g.queue)-1]
	g.queue = g.queue[:len(g.queue)-1]
	return last
}

// fill places a region on nodes.
func (g *growth) fill(nodes []int) {
	clear(g.weight)
	g.queue = g.queue[:0]
	for _, node := range nodes {
		if g.placed == len(g.m) {
			return
		}
		task := g.next()
		g.m[task] = node
		g.placed++
		for _, e := range g.p.Graph.Edges[task] {
			if g.m[e.Task] < 0 {
				g.weight[e.Task] += e.Weight
				heap.Push(g, candidate{e.Task, g.weight[e.Task]})
			}
		}
	}
}

// next returns the task that comes next into the region: the one with the most weight to it, or if none
// has any the one with the fewest neighbours that have no place, so that it grows from an end.
func (g *growth) next() int {
	for len(g.queue) > 0 {
		if c := heap.Pop(g).(candidate); g.m[c.task] < 0 && c.weight == g.weight[c.task] {
			return c.task
		}
	}
	best, least := -1, 0
	for task := range g.m {
		if g.m[task] >= 0 {
			continue
		}
		open := 0
		for _, e := range g.p.Graph.Edges[task] {
			if g.m[e.Task] < 0 {
				open++
			}
		}
		if best < 0 || open < least {
			best, least = task, open
		}
	}
	return best
}
