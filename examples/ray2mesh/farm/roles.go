package farm

import "fmt"

// A pattern is who deals to whom.
type pattern string

// The patterns. In the vanilla one the master deals to all others; in the
// hierarchical one to a boss in each cluster, who deals to the cluster's workers. auto
// is vanilla below so many processes that bosses, who trace no rays, pay.
const (
	vanilla      pattern = "vanilla"
	hierarchical pattern = "hierarchical"
	auto         pattern = "auto"

	enoughForBosses = 30
)

// A kind is what a rank does.
type kind int

const (
	worker kind = iota
	boss
	master
)

// cast is the roles of a job's ranks.
type cast struct {
	kinds           []kind
	group           []int // the boss of a worker, a boss itself, -1 of who is dealt to by the master
	bosses, workers int
}

// newCast gives rank 0 the master's role, and the others theirs by their clusters, of
// which clusters has the number of each rank's. With bosses, it is the first other rank of
// each cluster; a cluster with only one has no workers to deal to, so that one is a worker
// of the master's.
func newCast(clusters []int, p pattern) (cast, error) {
	if len(clusters) < 2 {
		return cast{}, fmt.Errorf("%d rank: want a master and at least one worker; start two ranks or more", len(clusters))
	}
	c := cast{kinds: make([]kind, len(clusters)), group: make([]int, len(clusters))}
	ofCluster := make(map[int][]int)
	for r, cluster := range clusters {
		c.group[r] = -1
		if r > 0 {
			ofCluster[cluster] = append(ofCluster[cluster], r)
		}
	}
	c.kinds[0] = master
	for _, members := range ofCluster {
		if p == vanilla || p == auto && len(clusters) < enoughForBosses || len(members) < 2 {
			c.workers += len(members)
			continue
		}
		c.kinds[members[0]] = boss
		c.bosses++
		c.workers += len(members) - 1
		for _, r := range members {
			c.group[r] = members[0]
		}
	}
	return c, nil
}

// workersOf returns how many workers a boss has.
func (c cast) workersOf(boss int) (n int64) {
	for r, b := range c.group {
		if b == boss && r != boss {
			n++
		}
	}
	return n
}
