package mapping

import (
	"cmp"
	"slices"
)

// EdgeCut is F-EC (algorithm 3, after Farhat 1988): it goes through the clusters, the largest first, and
// puts a task into one only if a part delta of its neighbours would fit there too; those come next.
// Tasks that no neighbour brings come by their degree, the highest first.
//
// As printed it maps some tasks twice, forgets those of the last cluster, and does not end if
// no cluster has room enough. Here each task is queued and mapped once, at once; and once a task has been refused by
// all clusters in a row, it gets any free node, in the order of clusters.
func EdgeCut(p Problem, delta float64) Map {
	c := edgeCut{p: p, free: bySize(p.Nodes), m: make(Map, p.Graph.Tasks()), queued: make([]bool, p.Graph.Tasks())}
	tasks := make([]int, len(c.m))
	for task := range tasks {
		tasks[task], c.m[task] = task, -1
	}
	slices.SortStableFunc(tasks, func(a, b int) int { return cmp.Compare(len(p.Graph.Edges[b]), len(p.Graph.Edges[a])) })
	for _, task := range tasks {
		c.push(task)
		for len(c.queue) > 0 {
			c.place(c.queue[0], delta)
			c.queue = c.queue[1:]
		}
	}
	return c.m
}

// edgeCut is the state of F-EC.
type edgeCut struct {
	p       Problem
	m       Map
	free    [][]int // by cluster in their order: nodes without a task
	current int     // the cluster that is being filled
	queue   []int   // neighbours of mapped tasks
	queued  []bool  // whether a task is, or was, in the queue
}

// push queues a task, once.
func (c *edgeCut) push(task int) {
	if !c.queued[task] {
		c.queued[task] = true
		c.queue = append(c.queue, task)
	}
}

// place maps a task to the current cluster, or the next that takes it, or any that has a free node.
func (c *edgeCut) place(task int, delta float64) {
	need := 1 + delta*float64(len(c.p.Graph.Edges[task]))
	for range c.free {
		if need <= float64(len(c.free[c.current])) {
			c.take(task, c.current)
			return
		}
		c.current = (c.current + 1) % len(c.free)
	}
	c.take(task, slices.IndexFunc(c.free, func(nodes []int) bool { return len(nodes) > 0 }))
}

// take maps a task to the first free node of a cluster, and queues its neighbours.
func (c *edgeCut) take(task, cluster int) {
	c.m[task] = c.free[cluster][0]
	c.free[cluster] = c.free[cluster][1:]
	for _, e := range c.p.Graph.Edges[task] {
		c.push(e.Task)
	}
}
