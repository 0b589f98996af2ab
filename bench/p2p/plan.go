package p2p

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
)

// A scenario says where the ranks are.
type scenario struct {
	name    string
	ranks   int
	apart   bool // at two hosts, one each; else all at one
	oneCPU  bool // all are bound to the same processor
	figures []figure
}

// A kind is the quantity that a figure measures.
type kind string

const (
	halfRoundTrip kind = "half_round_trip" // of two ranks, in us
	bandwidth     kind = "bandwidth"       // from one rank to another, window messages at a time, in GB/s
	messageRate   kind = "message_rate"    // likewise, in million/s
	ringHop       kind = "ring_hop"        // of a message that goes round all ranks, in us
	barrier       kind = "barrier"         // of all ranks, in us
)

// window is the number of messages in flight at once for bandwidth and rate: as in the OSU
// benchmarks, sender and receiver start that many and wait for all, and a byte comes back.
const window = 64

// A figure is something to measure with every implementation.
type figure struct {
	kind kind
	size int // bytes of a message
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// pairFigures returns the figures of two ranks.
func pairFigures() []figure {
	var all []figure
	for _, size := range []int{0, 1, 8, 64, kib, 8 * kib, 64 * kib, 256 * kib, mib, 4 * mib} {
		all = append(all, figure{halfRoundTrip, size})
	}
	for _, size := range []int{16, 64, kib, 8 * kib, 64 * kib, 256 * kib, mib, 4 * mib} {
		all = append(all, figure{bandwidth, size})
	}
	return append(all, figure{messageRate, 16})
}

var scenarios = []scenario{
	{name: "two-nodes", ranks: 2, apart: true, figures: pairFigures()},
	{name: "same-node", ranks: 2, figures: pairFigures()},
	{name: "oversubscribed", ranks: 4, oneCPU: true, figures: []figure{{ringHop, 1}, {barrier, 0}}},
}

// key returns the string that Options.Only is matched against.
func key(s *scenario, f figure, implementation string) string {
	return fmt.Sprintf("%s/%s/%d/%s", s.name, f.kind, f.size, implementation)
}

// order returns the order for rank 0, in the language of rank.go.
func (f figure) order(count int) string {
	what := map[kind]string{
		halfRoundTrip: orderTrips, bandwidth: orderStream, messageRate: orderStream, ringHop: orderRing, barrier: orderBarrier,
	}[f.kind]
	return fmt.Sprintf("%s %d %d", what, f.size, count)
}

// value converts the answer to an order, in ns, to the figure's unit.
func (f figure) value(s *scenario, ns float64) float64 {
	switch f.kind {
	case halfRoundTrip:
		return ns / 2e3
	case bandwidth:
		return window * float64(f.size) / ns
	case messageRate:
		return window / ns * 1e3
	case ringHop:
		return ns / 1e3 / float64(s.ranks)
	default:
		return ns / 1e3
	}
}

func (f figure) unit() string {
	switch f.kind {
	case bandwidth:
		return "GB/s"
	case messageRate:
		return "M/s"
	default:
		return "us"
	}
}

// moreIsBetter reports whether a larger value is better.
func (f figure) moreIsBetter() bool { return f.kind == bandwidth || f.kind == messageRate }

// payload returns the minimum number of bytes that an order of count sends between the ranks.
func (f figure) payload(count int) uint64 {
	each := uint64(f.size)
	switch f.kind {
	case halfRoundTrip:
		each *= 2
	case bandwidth, messageRate:
		each *= window
	}
	return each * uint64(count)
}

// maxCount is the maximum number of messages, or windows of them, of an order.
const maxCount = 1 << 20

// countFor returns the count that takes about d if one takes ns.
func countFor(d time.Duration, ns float64) int {
	return int(min(max(1, float64(d)/max(ns, 1)), maxCount))
}

// A series is the result of one implementation, a value per round.
type series struct {
	values  []float64 // in the figure's unit
	cpus    []float64 // how many processors the ranks kept busy together
	version string    // of the implementation; empty for ours
}

// rows returns the rows of a figure; runs holds all participants, asked are those whose rows are
// requested.
func rows(s *scenario, f figure, runs map[string]*series, asked []string, congestion string) []bench.Row {
	var all []bench.Row
	for _, name := range asked {
		mine := runs[name]
		row := bench.Row{
			Bench: "p2p", Figure: string(f.kind), Value: bench.Median(mine.values), Unit: f.unit(),
			Params: map[string]any{
				"scenario": s.name, "implementation": name, "size": f.size,
				"repeat": len(mine.values), "spread": bench.Round(bench.Spread(mine.values)),
				"cpus": bench.Round(bench.Median(mine.cpus)),
			},
		}
		if mine.version != "" {
			row.Params["version"] = mine.version
		}
		if s.apart {
			row.Params["congestion"] = congestion
		}
		if best := better(s, f, runs); name == nameOurs && best != "" {
			row.Against, row.Ratio = best, row.Value/bench.Median(runs[best].values)
			row.Params["against_spread"] = bench.Round(bench.Spread(runs[best].values))
			row.Params["against_cpus"] = bench.Round(bench.Median(runs[best].cpus))
			row = judge(row, s, f, runs)
		}
		all = append(all, row)
	}
	return all
}

// better returns what ours is compared with: the better of the other participants. If ranks share a
// processor it is Open MPI, which has a setting for that and which the target names.
func better(s *scenario, f figure, runs map[string]*series) string {
	if s.oneCPU && runs[nameOpenMPI] != nil {
		return nameOpenMPI
	}
	best := ""
	for _, name := range PeerNames() {
		r := runs[name]
		if r == nil {
			continue
		}
		if best == "" || (bench.Median(r.values) > bench.Median(runs[best].values)) == f.moreIsBetter() {
			best = name
		}
	}
	return best
}

// judge gives ours its target in a figure, if any, provided that the implementations for which it
// was set take part.
func judge(row bench.Row, s *scenario, f figure, runs map[string]*series) bench.Row {
	switch {
	case s.oneCPU:
		if row.Against == nameOpenMPI {
			return row.AtMost(1)
		}
	case runs[nameOpenMPI] == nil || runs[nameMPICH] == nil:
	case f.kind == bandwidth && s.apart && f.size == 64*kib:
		return row.AtLeast(1.4)
	case f.kind == bandwidth:
		return row.AtLeast(1)
	case f.kind == messageRate && s.apart:
		return row.AtLeast(5)
	case f.kind == halfRoundTrip && s.apart && f.size == 64*kib:
		return row.AtMost(0.5)
	case f.kind == halfRoundTrip && s.apart:
		return row.AtMost(0.9)
	case f.kind == halfRoundTrip && f.size >= 64*kib:
		return row.AtMost(0.5)
	case f.kind == halfRoundTrip && f.size == 1:
		return row.AtMost(1)
	}
	return row
}
