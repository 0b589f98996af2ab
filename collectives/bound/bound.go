// Package bound returns the minimum duration of a collective call between sites, whatever the
// algorithm: the bytes that must cross the boundary of one site, at the rate of that site's link,
// plus one latency. It knows no algorithm and measures nothing; everything is arithmetic on its
// arguments, and it keeps no state.
//
// The model: Sites sites of Ranks ranks each; any two sites are Latency apart; each site's link
// carries Rate bytes per second both ways at once, whichever sites they come from or go to; what
// happens inside a site takes no time.
//
//	barrier                     L
//	bcast, reduce               L + m/B
//	scan, exscan                L + m/B, or L + n m/B where ranks are dealt out
//	gather(v), scatter(v)       L + (N-n) m/B
//	allgather(v)                L + (N-n) m/B
//	reduce_scatter(_block)      L + (N-n) m/B
//	allreduce                   L + 2 (S-1)/S m/B
//	alltoall(v, w)              L + n (N-n) m/B
//
// Each bound is a cut: a rank of another site begins to receive no sooner than L, and then its link
// is busy for as long as the required bytes take to arrive. For an allreduce a site sends and
// receives the others' parts, which is least where each of S sites reduces one part of S (2(S-1)/S
// m), and m where there are two. For a scan each run of a site's ranks with other sites' ranks
// below it must receive a vector: the reduction of the ranks between it and the site's previous
// run. With an operator like addition no two of these vectors determine each other, so each crosses
// separately.
package bound

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// Grid is where the ranks of a call are.
type Grid struct {
	Sites   int           // S, at least 1
	Ranks   int           // n, at each site
	Latency time.Duration // L, one way between any two sites
	Rate    float64       // B, bytes per second of each site's link, each way; 0: unlimited
	Dealt   bool          // ranks are dealt to the sites round robin; else those of a site are consecutive
}

// crossing returns how many times a rank's bytes must cross the boundary of some site.
var crossing = map[operation.Operation]func(g Grid) float64{
	operation.Barrier:            func(Grid) float64 { return 0 },
	operation.Bcast:              func(Grid) float64 { return 1 },
	operation.Reduce:             func(Grid) float64 { return 1 },
	operation.Scan:               Grid.runs,
	operation.Exscan:             Grid.runs,
	operation.Gather:             Grid.remoteRanks,
	operation.Gatherv:            Grid.remoteRanks,
	operation.Scatter:            Grid.remoteRanks,
	operation.Scatterv:           Grid.remoteRanks,
	operation.Allgather:          Grid.remoteRanks,
	operation.Allgatherv:         Grid.remoteRanks,
	operation.ReduceScatter:      Grid.remoteRanks,
	operation.ReduceScatterBlock: Grid.remoteRanks,
	operation.Allreduce:          func(g Grid) float64 { return 2 * float64(g.Sites-1) / float64(g.Sites) },
	operation.Alltoall:           func(g Grid) float64 { return float64(g.Ranks) * g.remoteRanks() },
	operation.Alltoallv:          func(g Grid) float64 { return float64(g.Ranks) * g.remoteRanks() },
	operation.Alltoallw:          func(g Grid) float64 { return float64(g.Ranks) * g.remoteRanks() },
}

// remoteRanks returns N-n, the ranks of all sites but one.
func (g Grid) remoteRanks() float64 { return float64((g.Sites - 1) * g.Ranks) }

// runs returns the number of runs of consecutive ranks of the last site, the only site below whose
// runs there are always others.
func (g Grid) runs() float64 {
	if g.Dealt {
		return float64(g.Ranks)
	}
	return 1
}

// Of returns the minimum duration of a call. bytes is what the collective's count stands for in
// MPI: the vector of a bcast, reduce, allreduce or scan, one rank's block of a gather, scatter,
// allgather or reduce_scatter, and what one rank has for one other in an alltoall. Within one site
// the bound is 0.
func Of(collective operation.Operation, g Grid, bytes int) (time.Duration, error) {
	times, ok := crossing[collective]
	switch {
	case !ok:
		return 0, fmt.Errorf("bound: nothing is known of %v", collective)
	case g.Sites < 1 || g.Ranks < 1 || g.Latency < 0 || g.Rate < 0 || bytes < 0:
		return 0, fmt.Errorf("bound: %d bytes on %+v: want a site and a rank at least, and nothing negative", bytes, g)
	case g.Sites == 1:
		return 0, nil
	case g.Rate == 0:
		return g.Latency, nil
	}
	return g.Latency + time.Duration(times(g)*float64(bytes)/g.Rate*float64(time.Second)), nil
}
