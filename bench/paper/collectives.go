package paper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/coll"
	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// Two sites as far as Orsay and Bordeaux, as in the article, which has 16 ranks at each.
const (
	collRTT   = 8 * time.Millisecond
	collRanks = 16
	flitRanks = 4
)

// calls measures algorithms of a collective at two sites and returns the times in ms, by size and by
// "algorithm" or "algorithm:flits". Their rows are added to the curves.
func (o Options) calls(ctx context.Context, c operation.Operation, change func(*coll.Options), algorithms string, curves *[]bench.Row) (map[int]map[string]float64, error) {
	opts := coll.Options{
		Self: o.Self, Sites: []int{2}, Ranks: collRanks, Nodes: 1, RTT: []time.Duration{collRTT}, Rate: []int64{wideRate},
		Collectives: []operation.Operation{c}, NoChoice: true, Repeat: o.Repeat, Longest: 2 * time.Second, Err: o.Err,
		Only: regexp.MustCompile(":(" + algorithms + ")(:|$)"),
	}
	change(&opts)
	rows, err := o.measure(ctx, opts)
	*curves = append(*curves, ofFigure(rows, "time")...)
	return times(rows), err
}

// measure returns the rows of package coll.
func (o Options) measure(ctx context.Context, opts coll.Options) ([]bench.Row, error) {
	report := bench.Report{W: io.Discard, JSON: true}
	err := coll.Measure(ctx, opts, &report)
	return report.Rows, err
}

// The sites of counts, and collectives of which the article says how many messages there are between sites.
const (
	countSites = 4
	countRanks = 4
)

var countedCollectives = []operation.Operation{
	operation.Barrier, operation.Bcast, operation.Reduce, operation.Allreduce, operation.Gather, operation.Scatter, operation.Allgather, operation.Alltoall,
}

// messages is how many messages cross between sites, as ranks alternate between them, and what the emulator of the wide
// area sees of it.
func (o Options) messages(ctx context.Context) (m measured, err error) {
	rows, err := o.measure(ctx, coll.Options{
		Self: o.Self, Sites: []int{countSites}, Ranks: countRanks, Nodes: 1, RTT: []time.Duration{collRTT}, Rate: []int64{0},
		Collectives: countedCollectives, Sizes: []int{64 * kib}, Orders: coll.Orders()[1:], Algorithms: true, Counts: true, Packets: true,
		Only: regexp.MustCompile(":two-level(-star)?$|/bcast/.*:binomial$|/barrier/.*/isthmus$"), Repeat: 1, Longest: time.Second, Err: o.Err,
	})
	if err != nil {
		return m, err
	}
	return measured{figures: crossed(rows)}, nil
}

// crossed returns the numbers of messages, "bcast by two-level", and of all bytes that the emulator saw for each byte of
// a message the least and the most.
func crossed(rows []bench.Row) figures {
	of := figures{}
	for _, r := range rows {
		algorithm := r.Params["algorithm"]
		if algorithm == nil {
			algorithm = "choice"
		}
		switch {
		case r.Figure == "wan_messages":
			of[fmt.Sprintf("%v by %v", r.Params["collective"], algorithm)] = r.Value
		case r.Figure == "emulator_bytes" && r.Ratio > 0:
			if _, some := of["least"]; !some {
				of["least"], of["most"] = r.Ratio, r.Ratio
			}
			of["least"], of["most"] = min(of["least"], r.Ratio), max(of["most"], r.Ratio)
		}
	}
	return of
}

// The sites of ray2mesh, and its processes there.
const (
	treeSites = 3
	treeRanks = 60
)

// trees is what section 3.3 says of a broadcast by a tree that does not know of sites, from schedules: the ranks of 180 hosts
// have no room here.
func (o Options) trees(context.Context) (m measured, err error) {
	m.figures = figures{}
	for _, order := range coll.Orders() {
		for _, algorithm := range []string{bySites, flatTree} {
			messages, latencies, err := crossings(algorithm, order == coll.Orders()[1])
			if err != nil {
				return m, err
			}
			m.figures[algorithm+" "+order] = float64(latencies)
			m.figures[algorithm+" "+order+" messages"] = float64(messages)
		}
	}
	return m, nil
}

// crossings returns the messages between sites of a broadcast, and how many of them follow one another at most. Ranks
// alternate between sites, or those of a site follow one another.
func crossings(algorithm string, alternate bool) (messages, latencies int, err error) {
	a, err := collectives.Find(operation.Bcast, algorithm)
	if err != nil {
		return 0, 0, err
	}
	const ranks = treeSites * treeRanks
	layout := make(collectives.Layout, 2) // sites; nodes, of one rank each
	for r := range ranks {
		site := r / treeRanks
		if alternate {
			site = r % treeSites
		}
		layout[0], layout[1] = append(layout[0], site), append(layout[1], r)
	}
	all := make([]*schedule.Schedule, ranks)
	for r := range all {
		all[r] = a.Schedule(r, ranks, layout, &collectives.Args{Recv: make([]byte, 1)})
	}
	out, err := schedule.Simulate(all, &schedule.Grid{Site: layout[0], InterSite: schedule.Path{Latency: time.Second}}, nil, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("a broadcast by %s: %w", algorithm, err)
	}
	messages, _ = out.Far()
	return messages, int(out.End() / time.Second), nil
}

// times sorts the times of forced algorithms.
func times(rows []bench.Row) map[int]map[string]float64 {
	all := map[int]map[string]float64{}
	for _, r := range rows {
		algorithm, size := r.Params["algorithm"], r.Params["size"].(int)
		if r.Figure != "time" || algorithm == nil {
			continue
		}
		if flits := r.Params["flits"]; flits != nil {
			algorithm = fmt.Sprintf("%v:%v", algorithm, flits)
		}
		if all[size] == nil {
			all[size] = map[string]float64{}
		}
		all[size][algorithm.(string)] = r.Value
	}
	return all
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// flitCounts are the numbers of flits that are compared; the article's best is eight.
var flitCounts = []int{1, 2, 4, 8, 16, 32}

// flits is figure 4, of a gather, and the same for a broadcast that goes one hop after another.
func (o Options) flits(ctx context.Context) (m measured, err error) {
	m.figures = figures{}
	for _, w := range []struct {
		collective       operation.Operation
		algorithm, order string
	}{
		{operation.Gather, "two-level", coll.Orders()[0]},
		{operation.Bcast, "chain", coll.Orders()[1]},
	} {
		of, err := o.calls(ctx, w.collective, func(c *coll.Options) {
			c.Ranks, c.Sizes, c.Flits, c.Orders = flitRanks, []int{256 * kib, mib}, flitCounts, []string{w.order}
		}, w.algorithm, &m.curves)
		if err != nil {
			return m, err
		}
		if err := cut(of, w.algorithm, w.collective.String(), m.figures); err != nil {
			return m, err
		}
	}
	return m, nil
}

// cut adds the figures of an algorithm's times with each number of flits.
func cut(of map[int]map[string]float64, algorithm, collective string, to figures) error {
	for _, size := range []int{256 * kib, mib} {
		byCount := map[int]float64{}
		for _, n := range flitCounts {
			v, ok := of[size][fmt.Sprintf("%s:%d", algorithm, n)]
			if !ok {
				return fmt.Errorf("%s of %d bytes by %s with %d flits was not measured", collective, size, algorithm, n)
			}
			byCount[n] = v
		}
		to[fmt.Sprintf("%s of %d KiB, 8 over 1", collective, size/kib)] = byCount[8] / byCount[1]
		to[fmt.Sprintf("%s of %d KiB, best", collective, size/kib)] = float64(gainEnds(byCount))
	}
	return nil
}

// gain is the least part of the time that counts as gained: medians of calls between 32 processes that share two processors
// differ by several per cent from one run to the next.
const gain = 0.1

// gainEnds returns the smallest number of flits beside which no larger one gains.
func gainEnds(of map[int]float64) int {
	counts := slices.Sorted(maps.Keys(of))
	for i, n := range counts {
		if !slices.ContainsFunc(counts[i:], func(m int) bool { return of[m] < (1-gain)*of[n] }) {
			return n
		}
	}
	return 0
}

// The algorithms of figure 5: by sites, and regardless of them.
const (
	bySites  = "two-level"
	flatTree = "binomial"
	pipeline = "chain"
)

// The algorithm of figure 5 (c), and the ranks on its host.
const (
	overMemory = "shared-buffer"
	hostRanks  = 4
)

// bcast is figure 5 (a): hierarchical always better.
func (o Options) bcast(ctx context.Context) (m measured, err error) {
	m.figures = figures{}
	for _, order := range coll.Orders() {
		of, err := o.calls(ctx, operation.Bcast, func(c *coll.Options) {
			c.Sizes, c.Algorithms, c.Orders = []int{kib, 64 * kib, 256 * kib}, true, []string{order}
			c.Repeat *= moreOften
		}, bySites+"|"+flatTree, &m.curves)
		if err != nil {
			return m, err
		}
		if m.figures[order], err = worstRatio(of, bySites, flatTree); err != nil {
			return m, err
		}
	}
	return m, nil
}

// worstRatio returns the greatest ratio of one algorithm's time to another's, of all sizes.
func worstRatio(of map[int]map[string]float64, algorithm, other string) (worst float64, err error) {
	for size, ms := range of {
		if ms[algorithm] == 0 || ms[other] == 0 {
			return 0, fmt.Errorf("%d bytes: of %s and %s one was not measured", size, algorithm, other)
		}
		worst = max(worst, ms[algorithm]/ms[other])
	}
	if worst == 0 {
		return 0, fmt.Errorf("%s and %s were not measured", algorithm, other)
	}
	return worst, nil
}

// moreOften is how many times as often as others short calls are repeated, which takes little beside the start of their ranks.
const moreOften = 3

// reduce is figure 5 (b): hierarchical better for short vectors, a flat pipeline for long ones. As in the article each rank
// has a host: 16 that share the memory of one pass 8 bytes on in so little time that the ways to do so cannot be told apart.
func (o Options) reduce(ctx context.Context) (m measured, err error) {
	of, err := o.calls(ctx, operation.Reduce, func(c *coll.Options) {
		c.Nodes, c.Repeat = collRanks, moreOften*c.Repeat
		c.Sizes, c.Algorithms, c.Orders = []int{8, kib, 16 * kib, 64 * kib, 128 * kib, 256 * kib, mib}, true, coll.Orders()[:1]
	}, bySites+"|"+pipeline, &m.curves)
	if err != nil {
		return m, err
	}
	m.figures, err = reductions(of)
	return m, err
}

// reductions returns how much faster the shortest vector is by sites, and how much of that the longest keeps. From where on
// the pipeline is faster no run tells: from 128 KiB on either is, by what medians differ by.
func reductions(of map[int]map[string]float64) (figures, error) {
	ratio := func(size int) (float64, error) {
		return worstRatio(map[int]map[string]float64{size: of[size]}, bySites, pipeline)
	}
	short, err := ratio(8)
	if err != nil {
		return nil, err
	}
	long, err := ratio(mib)
	return figures{"short": short, "long": short / long}, err
}

// hostReduce is figure 5 (c): hierarchical better where ranks share memory.
func (o Options) hostReduce(ctx context.Context) (m measured, err error) {
	of, err := o.calls(ctx, operation.Reduce, func(c *coll.Options) {
		c.Sites, c.RTT, c.Rate, c.Local, c.Ranks = nil, nil, nil, true, hostRanks
		c.Only = regexp.MustCompile("^node/.*:(" + overMemory + "|" + pipeline + ")(:|$)") // and not on two hosts of a site
		c.Sizes, c.Algorithms = []int{8, kib, 64 * kib, mib}, true
	}, "", &m.curves)
	if err != nil {
		return m, err
	}
	worst, err := worstRatio(of, overMemory, pipeline)
	m.figures = figures{"worst": worst}
	return m, err
}

// The hosts of figure 4 of the robust article, as fast as theirs, and what each sends to each other one in IS: its part of
// the keys of class W, 2^20 of 4 bytes.
const (
	isHosts = 4
	isRate  = 100e6
	isBlock = 4 << 20 / (isHosts * isHosts)
)

// exchange is of figure 4 of the robust article what there is to compare: the exchange of keys, which takes the time of IS.
func (o Options) exchange(ctx context.Context) (m measured, err error) {
	openMPI := coll.PeerNames()[0]
	rows, err := o.measure(ctx, coll.Options{
		Self: o.Self, Sites: []int{isHosts}, Ranks: 1, Nodes: 1, RTT: []time.Duration{0}, Rate: []int64{isRate}, Orders: coll.Orders()[:1],
		Collectives: []operation.Operation{operation.Alltoallv}, Sizes: []int{isBlock}, Peers: []string{openMPI},
		Repeat: moreOften * o.Repeat, Longest: time.Second, Err: o.Err,
	})
	if err != nil {
		return m, err
	}
	beside, err := besidePeer(rows, openMPI)
	return measured{figures: figures{"exchange": beside}}, err
}

// besidePeer returns the ratio of our time to a peer's, or 0 if the peer is not installed.
func besidePeer(rows []bench.Row, peer string) (float64, error) {
	of := map[any]float64{}
	for _, r := range ofFigure(rows, "time") {
		of[r.Params["implementation"]] = r.Value
	}
	switch ours, theirs := of["isthmus"], of[peer]; {
	case ours == 0:
		return 0, errors.New("our time was not measured")
	case theirs == 0:
		return 0, nil
	default:
		return ours / theirs, nil
	}
}
