package mapping

import "slices"

// An assignment is a map that changes step by step, with the time of each task.
type assignment struct {
	p    Problem
	m    Map
	at   []int     // by node: its task, or -1
	time []float64 // by task: TaskTime, but for rounding

	cost []float64 // scratch of talkFrom: by cluster, valid if stamp is that of now
	seen []int
	now  int
}

func newAssignment(p Problem, m Map) *assignment {
	a := &assignment{
		p: p, m: slices.Clone(m), at: make([]int, len(p.Nodes.Power)), time: make([]float64, len(m)),
		cost: make([]float64, len(p.Nodes.Latency)), seen: make([]int, len(p.Nodes.Latency)),
	}
	for node := range a.at {
		a.at[node] = -1
	}
	for task, node := range m {
		a.at[node] = task
		a.time[task] = p.TaskTime(m, task)
	}
	return a
}

// consider begins to look at one task: talkFrom is of that.
func (a *assignment) consider() { a.now++ }

// talkFrom returns what Problem.talk does for the task being considered, computed once for each cluster.
func (a *assignment) talkFrom(task, cluster int) float64 {
	if a.seen[cluster] != a.now {
		a.seen[cluster], a.cost[cluster] = a.now, a.p.talk(a.m, task, cluster)
	}
	return a.cost[cluster]
}

// timeOn returns the time of the task being considered on another node, from which a task on it
// would have gone to this one's.
func (a *assignment) timeOn(task, node int) float64 {
	return a.p.compute(task, node) + a.talkFrom(task, a.p.Nodes.Cluster[node]) + a.apart(task, node)
}

// apart returns by how much exchanging places with the task on a node, if there is one and it is a
// neighbour, makes their talk longer than it is with the other one where it was.
func (a *assignment) apart(task, node int) float64 {
	other := a.at[node]
	if other < 0 {
		return 0
	}
	here, there := a.p.Nodes.Cluster[a.m[task]], a.p.Nodes.Cluster[node]
	return a.weight(task, other) * (a.p.Nodes.Latency[here][there] - a.p.Nodes.Latency[there][there])
}

// weight returns the weight of the edge between two tasks; 0: there is none.
func (a *assignment) weight(task, other int) float64 {
	for _, e := range a.p.Graph.Edges[task] {
		if e.Task == other {
			return e.Weight
		}
	}
	return 0
}

// timeAway returns the time that the task on a node would have on the node of task, if they exchanged places.
func (a *assignment) timeAway(task, node int) float64 {
	other, here := a.at[node], a.p.Nodes.Cluster[a.m[task]]
	there := a.p.Nodes.Cluster[node]
	between := a.weight(task, other) * (a.p.Nodes.Latency[here][there] - a.p.Nodes.Latency[here][here])
	return a.p.compute(other, a.m[task]) + a.p.talk(a.m, other, here) + between
}

// put moves a task to a node, and a task that is there to the node that this one leaves.
func (a *assignment) put(task, node int) {
	from, other := a.m[task], a.at[node]
	a.relocate(task, node)
	a.at[from], a.at[node] = other, task
	if other >= 0 {
		a.relocate(other, from)
	}
}

// relocate changes a task's node, its time and the times of its neighbours.
func (a *assignment) relocate(task, node int) {
	here, there := a.p.Nodes.Cluster[a.m[task]], a.p.Nodes.Cluster[node]
	if here != there {
		for _, e := range a.p.Graph.Edges[task] {
			row := a.p.Nodes.Latency[a.p.Nodes.Cluster[a.m[e.Task]]]
			a.time[e.Task] += e.Weight * (row[there] - row[here])
		}
	}
	a.m[task] = node
	a.time[task] = a.p.TaskTime(a.m, task)
}

// affected returns the tasks whose times change if a task is put on a node: it, the one that is there, and the
// neighbours of both, perhaps twice.
func (a *assignment) affected(task, node int) []int {
	all := []int{task}
	if other := a.at[node]; other >= 0 {
		all = append(all, other)
	}
	for _, t := range slices.Clone(all) {
		for _, e := range a.p.Graph.Edges[t] {
			all = append(all, e.Task)
		}
	}
	return all
}

// timesOf returns the times of tasks.
func (a *assignment) timesOf(tasks []int) []float64 {
	times := make([]float64, len(tasks))
	for i, task := range tasks {
		times[i] = a.time[task]
	}
	return times
}
