// Package mapping decides which node runs which task of a program whose tasks talk along a graph. It
// implements the model and the algorithms of Couturier, Laymani and Miquée ("Mapping Asynchronous
// Iterative Applications on Heterogeneous Distributed Architectures"), whose names and equation
// numbers the comments use, and one of its own, [Search]. [Simulate] runs a mapped program.
//
// No node gets two tasks: it may be lost, and then one task is lost.
//
// Everything is a function of its arguments, the seed included: the package keeps no state and knows
// no hosts, offers or measurements. Equal arguments give equal maps.
package mapping

import (
	"fmt"
	"math"
)

// A Problem is what is to be mapped.
type Problem struct {
	Graph *Graph
	Nodes *Architecture
}

// An Architecture is the nodes there are, in clusters: nodes of one cluster are the same distance from
// each other and from those of another cluster (GG in the paper).
type Architecture struct {
	Power   []float64   // wn, by node: cost per second, more than 0
	Cluster []int       // by node: its row in Latency
	Latency [][]float64 // wl: seconds between nodes of two clusters, symmetric; on the diagonal, of one
}

// A Map is the node of each task.
type Map []int

// Check returns an error if the problem is inconsistent, or has more tasks than nodes.
func (p Problem) Check() error {
	a := p.Nodes
	if len(a.Power) != len(a.Cluster) {
		return fmt.Errorf("mapping: %d powers and %d clusters of nodes", len(a.Power), len(a.Cluster))
	}
	if n := p.Graph.Tasks(); n > len(a.Power) {
		return fmt.Errorf("mapping: %d tasks on %d nodes: each needs its own", n, len(a.Power))
	}
	for node, power := range a.Power {
		if !(power > 0) || math.IsInf(power, 0) {
			return fmt.Errorf("mapping: node %d has power %g: want more than 0", node, power)
		}
		if c := a.Cluster[node]; c < 0 || c >= len(a.Latency) {
			return fmt.Errorf("mapping: node %d is in cluster %d of %d", node, c, len(a.Latency))
		}
	}
	return a.checkLatency()
}

func (a *Architecture) checkLatency() error {
	for i, row := range a.Latency {
		if len(row) != len(a.Latency) {
			return fmt.Errorf("mapping: %d latencies from cluster %d, and %d clusters", len(row), i, len(a.Latency))
		}
		for j, l := range row {
			if !(l >= 0) || math.IsInf(l, 0) || l != a.Latency[j][i] {
				return fmt.Errorf("mapping: latency %g from cluster %d to %d, %g back: want the same, not negative", l, i, j, a.Latency[j][i])
			}
		}
	}
	return nil
}

// clusters returns the nodes of each cluster, in order.
func (a *Architecture) clusters() [][]int {
	all := make([][]int, len(a.Latency))
	for node, c := range a.Cluster {
		all[c] = append(all[c], node)
	}
	return all
}

// TaskTime returns ET(V_i), equation (2): the seconds of one iteration of a task.
func (p Problem) TaskTime(m Map, task int) float64 {
	return p.compute(task, m[task]) + p.talk(m, task, p.Nodes.Cluster[m[task]])
}

// compute returns the seconds that a task computes on a node.
func (p Problem) compute(task, node int) float64 { return p.Graph.Cost[task] / p.Nodes.Power[node] }

// talk returns the seconds that a task would communicate from a cluster, its neighbours being where
// they are.
func (p Problem) talk(m Map, task, cluster int) float64 {
	latency, total := p.Nodes.Latency[cluster], 0.0
	for _, e := range p.Graph.Edges[task] {
		total += e.Weight * latency[p.Nodes.Cluster[m[e.Task]]]
	}
	return total
}

// Time returns ET(App), equation (1): the time of the slowest task.
func (p Problem) Time(m Map) float64 {
	worst := 0.0
	for task := range m {
		worst = max(worst, p.TaskTime(m, task))
	}
	return worst
}

// Cut returns the weight of the edges between tasks in different clusters.
func (p Problem) Cut(m Map) float64 {
	total := 0.0
	for task, edges := range p.Graph.Edges {
		for _, e := range edges {
			if task < e.Task && p.Nodes.Cluster[m[task]] != p.Nodes.Cluster[m[e.Task]] {
				total += e.Weight
			}
		}
	}
	return total
}

// CheckMap returns an error if a map does not give every task a node of its own.
func (p Problem) CheckMap(m Map) error {
	if len(m) != p.Graph.Tasks() {
		return fmt.Errorf("mapping: a map of %d of %d tasks", len(m), p.Graph.Tasks())
	}
	used := make(map[int]int, len(m))
	for task, node := range m {
		if node < 0 || node >= len(p.Nodes.Power) {
			return fmt.Errorf("mapping: task %d is on node %d of %d", task, node, len(p.Nodes.Power))
		}
		if other, taken := used[node]; taken {
			return fmt.Errorf("mapping: tasks %d and %d are both on node %d", other, task, node)
		}
		used[node] = task
	}
	return nil
}
