package mapping

import (
	"cmp"
	"slices"
)

// InOrder maps the tasks to the nodes in their order, that in which they came: JaceP2P-V2 without
// a mapping.
func InOrder(p Problem) Map {
	m := make(Map, p.Graph.Tasks())
	for task := range m {
		m[task] = task
	}
	return m
}

// Simple is SMa (algorithm 2): it fills the clusters with the tasks in order, the largest first, of equal
// ones the one with the lower number.
func Simple(p Problem) Map {
	m := make(Map, 0, p.Graph.Tasks())
	for _, nodes := range bySize(p.Nodes) {
		m = append(m, nodes[:min(len(nodes), cap(m)-len(m))]...)
	}
	return m
}

// bySize returns the nodes of each cluster, the largest first.
func bySize(a *Architecture) [][]int {
	all := a.clusters()
	slices.SortStableFunc(all, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	return all
}
