package mapping

import (
	"cmp"
	"slices"
)

// polish exchanges nodes within each cluster so that the greatest time of its tasks is as small as it can
// be: within a cluster only the time to compute depends on the node. The most powerful nodes are used.
func polish(p Problem, m Map) Map {
	m = slices.Clone(m)
	tasks := make([][]int, len(p.Nodes.Latency))
	for task, node := range m {
		c := p.Nodes.Cluster[node]
		tasks[c] = append(tasks[c], task)
	}
	nodes := p.Nodes.clusters()
	talks := make([]float64, len(m))
	for task := range m {
		talks[task] = p.talk(m, task, p.Nodes.Cluster[m[task]])
	}
	for c := range tasks {
		slices.SortStableFunc(nodes[c], func(a, b int) int { return cmp.Compare(p.Nodes.Power[b], p.Nodes.Power[a]) })
		p.polishCluster(m, tasks[c], nodes[c], talks)
	}
	return m
}

// polishCluster finds the least bound for which the tasks fit, by bisection: for a bound each task has a least
// power, and they fit if that holds with both in order.
func (p Problem) polishCluster(m Map, tasks, nodes []int, talks []float64) {
	low, high := 0.0, 0.0
	for _, task := range tasks {
		high = max(high, p.TaskTime(m, task))
		low = max(low, talks[task])
	}
	for range 40 {
		bound := (low + high) / 2
		if p.place(m, tasks, nodes, talks, bound) {
			high = bound
		} else {
			low = bound
		}
	}
	p.place(m, tasks, nodes, talks, high)
}

// place puts the tasks on the most powerful of the nodes so that no task takes longer than the bound, and
// reports whether that is possible; else it changes nothing.
func (p Problem) place(m Map, tasks, nodes []int, talks []float64, bound float64) bool {
	// The power that a task needs is cost / (bound - talk).
	slices.SortStableFunc(tasks, func(a, b int) int {
		return cmp.Compare(p.Graph.Cost[b]*(bound-talks[a]), p.Graph.Cost[a]*(bound-talks[b]))
	})
	for i, task := range tasks {
		if p.compute(task, nodes[i])+talks[task] > bound {
			return false
		}
	}
	for i, task := range tasks {
		m[task] = nodes[i]
	}
	return true
}
