package mapping

import (
	"cmp"
	"slices"
)

// The effort of Search.
const (
	searchStarts = 4       // maps to improve
	searchWork   = 4 << 20 // edges and nodes to look at for each
	searchRounds = 64      // times that the two kinds of steps alternate
)

// Search looks for the map with the least greatest time, [Problem.Time], and of equal ones that with
// the least cut. It starts from the maps of the other algorithms, with the paper's parameters, and from
// some that grow along the graph; it improves the best of them step by step, and is never worse than any.
//
// The problem is NP-hard, so the result need not be the best there is.
func Search(p Problem, seed uint64) Map {
	starts := []Map{InOrder(p), Simple(p), EdgeCut(p, .1), EdgeCut(p, .5), EdgeCut(p, .9), QuickMap(p, QuickMapOptions{Search: .5, Seed: seed})}
	starts = append(starts, growths(p)...)
	ranked := make([]rankedMap, 0, 2*len(starts))
	for _, m := range starts {
		ranked = append(ranked, p.rank(m), p.rank(polish(p, m)))
	}
	slices.SortStableFunc(ranked, rankedMap.compare)
	ranked = slices.CompactFunc(ranked, func(a, b rankedMap) bool { return slices.Equal(a.m, b.m) })
	best := ranked[0]
	for _, r := range ranked[:min(searchStarts, len(ranked))] {
		if r = p.improve(r); r.compare(best) < 0 {
			best = r
		}
	}
	return best.m
}

// rankedMap is a map and what Search compares.
type rankedMap struct {
	m         Map
	time, cut float64
}

func (p Problem) rank(m Map) rankedMap { return rankedMap{m, p.Time(m), p.Cut(m)} }

func (r rankedMap) compare(o rankedMap) int {
	return cmp.Or(cmp.Compare(r.time, o.time), cmp.Compare(r.cut, o.cut))
}

// improve alternates steps that lower the greatest time and steps that lower the cut, until none helps or
// the work is used up. A step of the second kind makes no task as slow as the slowest: so the greatest
// time, the number of tasks that have it, and the cut fall one after the other, and it ends.
func (p Problem) improve(r rankedMap) rankedMap {
	best, work := r, searchWork
	for range searchRounds {
		s := newSearch(p, r.m, work)
		for s.lowerTime() {
		}
		for s.lowerCut() {
		}
		work = s.work
		before := r
		r = p.rank(s.m)
		if q := p.rank(polish(p, r.m)); q.compare(r) < 0 {
			r = q
		}
		if r.compare(best) < 0 {
			best = r
		}
		if work <= 0 || r.compare(before) >= 0 {
			break
		}
	}
	return best
}

// search is the state of one run of steps.
type search struct {
	*assignment
	nodes [][]int // by cluster: its nodes, the most powerful first
	work  int
}

func newSearch(p Problem, m Map, work int) *search {
	s := &search{assignment: newAssignment(p, m), nodes: p.Nodes.clusters(), work: work}
	for _, nodes := range s.nodes {
		slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(p.Nodes.Power[b], p.Nodes.Power[a]) })
	}
	return s
}

// slowest returns a task with the greatest time.
func (s *search) slowest() int {
	s.work -= len(s.m)
	worst := 0
	for task, t := range s.time {
		if t > s.time[worst] {
			worst = task
		}
	}
	return worst
}

// less returns a bound that is clearly below a time: steps that only change rounding errors could go on
// for ever.
func less(time float64) float64 { return time * (1 - 1e-9) }

// lowerTime takes the best step that makes the slowest task, and all whose times it changes, faster than that
// was: the task to another node, alone or in exchange, or a neighbour to its cluster. It reports
// whether there is one.
func (s *search) lowerTime() bool {
	slow := s.slowest()
	limit := less(s.time[slow])
	best := step{worst: limit}
	s.consider()
	for node := range s.at {
		if s.work <= 0 {
			return false
		}
		s.work--
		if s.at[node] != slow && s.timeOn(slow, node) < best.worst {
			best = s.better(best, slow, node)
		}
	}
	for _, e := range s.p.Graph.Edges[slow] {
		if s.p.Nodes.Cluster[s.m[e.Task]] != s.p.Nodes.Cluster[s.m[slow]] {
			best = s.bringNear(best, e.Task, slow)
		}
	}
	if best.worst >= limit {
		return false
	}
	s.put(best.task, best.node)
	return true
}

// step is a move of a task to a node, in exchange with the task there if there is one, and the greatest time
// of all tasks whose times it changes.
type step struct {
	task, node int
	worst      float64
}

// better returns the better of a step and another one.
func (s *search) better(best step, task, node int) step {
	if worst := s.worstAfter(task, node); worst < best.worst {
		return step{task, node, worst}
	}
	return best
}

// bringNear tries to move a task to the cluster of another one.
func (s *search) bringNear(best step, task, to int) step {
	s.consider()
	for _, node := range s.nodes[s.p.Nodes.Cluster[s.m[to]]] {
		if s.work--; s.work <= 0 {
			break
		}
		if s.timeOn(task, node) < best.worst {
			best = s.better(best, task, node)
		}
		if s.at[node] < 0 {
			break // further free ones are not faster
		}
	}
	return best
}

// worstAfter returns the greatest of the times that a step would change.
func (s *search) worstAfter(task, node int) float64 {
	affected, from := s.affected(task, node), s.m[task]
	s.work -= 4 * len(affected)
	s.put(task, node)
	worst := slices.Max(s.timesOf(affected))
	s.put(task, from)
	return worst
}

// lowerCut goes through all tasks and moves each to where the cut gets less, if there is such a place and no task
// becomes as slow as the slowest. It reports whether it moved any.
func (s *search) lowerCut() (moved bool) {
	limit := s.time[s.slowest()]
	for task := range s.m {
		for cluster, weight := range s.weights(task) {
			if cluster != s.p.Nodes.Cluster[s.m[task]] && weight > 0 && s.work > 0 && s.moveTo(task, cluster, limit) {
				moved = true
				break
			}
		}
	}
	return moved
}

// weights returns the weight of a task's edges to each cluster.
func (s *search) weights(task int) []float64 {
	weights := make([]float64, len(s.nodes))
	s.work -= len(s.nodes) + len(s.p.Graph.Edges[task])
	for _, e := range s.p.Graph.Edges[task] {
		weights[s.p.Nodes.Cluster[s.m[e.Task]]] += e.Weight
	}
	return weights
}

// moveTo moves a task to a node of a cluster where the cut gets less, if there is one.
func (s *search) moveTo(task, cluster int, limit float64) bool {
	here := s.p.Nodes.Cluster[s.m[task]]
	weights := s.weights(task)
	gain := weights[cluster] - weights[here]
	s.consider()
	for _, node := range s.nodes[cluster] {
		other, total := s.at[node], gain
		if s.work--; s.work <= 0 {
			return false
		}
		if s.timeOn(task, node) > max(less(limit), s.time[task]) {
			if other < 0 {
				return false
			}
			continue
		}
		if other >= 0 {
			w := s.weights(other)
			total += w[here] - w[cluster] - 2*s.weight(task, other)
		}
		if total > 1e-9*weights[cluster] && s.putWithin(task, node, limit) {
			return true
		}
		if other < 0 {
			return false
		}
	}
	return false
}

// putWithin puts a task on a node, and reports whether it has; not if that slows down any task to the limit.
func (s *search) putWithin(task, node int, limit float64) bool {
	affected, from := s.affected(task, node), s.m[task]
	before := s.timesOf(affected)
	s.work -= 4 * len(affected)
	s.put(task, node)
	for i, t := range affected {
		if s.time[t] > max(less(limit), before[i]) {
			s.put(task, from)
			return false
		}
	}
	return true
}
