package mapping

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// QuickMapOptions are the parameters of [QuickMap].
type QuickMapOptions struct {
	Search   float64 // f, in (0, 1]: the part of the nodes that are tried at random in the first round
	Distance float64 // seconds: nodes of clusters that are so far from a neighbour's, and of its own, are tried
	Seed     uint64
}

// maxRounds bounds the rounds of QuickMap.
const maxRounds = 100

// QuickMap is AIAC-QM (algorithm 1): it maps the tasks in order to the nodes, the most powerful first, and
// then looks for a better node for each task by itself, among random ones and those near its neighbours,
// until no task can be moved.
//
// The printed algorithm is silent about nodes that have a task, and need not end. Here two tasks
// exchange places if the greater of their times falls; a neighbour whose time has grown becomes moveable
// again, as the text says; and it ends after 100 rounds, or as many as there are nodes. A task
// that improves its own time may worsen others', so the result is the best map of those after each
// round, the first one included.
func QuickMap(p Problem, o QuickMapOptions) Map {
	q := newQuickMap(p, o)
	best, least := slices.Clone(q.m), p.Time(q.m)
	for round := 1; round <= min(maxRounds, len(q.nodes)) && slices.Contains(q.moveable, true); round++ {
		for task := range q.m {
			if q.moveable[task] {
				q.improve(task, len(q.nodes)/round)
			}
		}
		if t := p.Time(q.m); t < least {
			best, least = slices.Clone(q.m), t
		}
	}
	return best
}

// quickMap is the state of AIAC-QM.
type quickMap struct {
	*assignment
	o        QuickMapOptions
	rng      *rand.Rand
	nodes    []int   // the most powerful first
	clusters [][]int // of each the nodes, the most powerful first
	moveable []bool

	tried []int // by cluster: the last task of which it was tried as near a neighbour
	best  int   // the best node for the task being considered
	least float64
}

func newQuickMap(p Problem, o QuickMapOptions) *quickMap {
	q := &quickMap{
		o: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), nodes: make([]int, len(p.Nodes.Power)), clusters: p.Nodes.clusters(),
		moveable: make([]bool, p.Graph.Tasks()), tried: make([]int, len(p.Nodes.Latency)),
	}
	for node := range q.nodes {
		q.nodes[node] = node
	}
	byPower := func(a, b int) int { return cmp.Compare(p.Nodes.Power[b], p.Nodes.Power[a]) }
	slices.SortStableFunc(q.nodes, byPower)
	for _, nodes := range q.clusters {
		slices.SortStableFunc(nodes, byPower)
	}
	for task := range q.moveable {
		q.moveable[task] = true
	}
	q.assignment = newAssignment(p, Map(q.nodes[:p.Graph.Tasks()]))
	return q
}

// improve looks for a better node for a task, among so many of the most powerful and those near its
// neighbours.
func (q *quickMap) improve(task, among int) {
	q.consider()
	q.best, q.least = q.m[task], q.time[task]
	for range int(q.o.Search * float64(among)) {
		q.try(task, q.nodes[q.rng.IntN(among)])
	}
	for _, e := range q.p.Graph.Edges[task] {
		here := q.p.Nodes.Cluster[q.m[e.Task]]
		for cluster, latency := range q.p.Nodes.Latency[here] {
			if (cluster == here || latency <= q.o.Distance) && q.tried[cluster] != q.now {
				q.tried[cluster] = q.now
				q.tryCluster(task, cluster)
			}
		}
	}
	q.moveable[task] = false
	if q.best != q.m[task] {
		q.move(task)
	}
}

// tryCluster tries all nodes of a cluster. They come by power: once one is too slow all further ones are, and
// after a free one none is better.
func (q *quickMap) tryCluster(task, cluster int) {
	talk := q.talkFrom(task, cluster)
	for _, node := range q.clusters[cluster] {
		if q.p.compute(task, node)+talk >= q.least {
			return
		}
		q.try(task, node)
		if q.at[node] < 0 {
			return
		}
	}
}

// try makes a node the best for a task if it is better than the best so far.
func (q *quickMap) try(task, node int) {
	other := q.at[node]
	if other == task || q.p.compute(task, node)+q.talkFrom(task, q.p.Nodes.Cluster[node]) >= q.least {
		return // also an exchange with a neighbour takes that long, if clusters are nearer within than to others
	}
	t := q.timeOn(task, node)
	if t < q.least && (other < 0 || max(t, q.timeAway(task, node)) < max(q.time[task], q.time[other])) {
		q.best, q.least = node, t
	}
}

// move moves a task to its best node, and makes those moveable whose times grow.
func (q *quickMap) move(task int) {
	affected := q.affected(task, q.best)
	before := q.timesOf(affected)
	q.put(task, q.best)
	for i, t := range affected {
		if t != task && q.time[t] > before[i] {
			q.moveable[t] = true
		}
	}
}
