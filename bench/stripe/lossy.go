package stripe

import (
	"maps"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
)

// Targets on a long path with losses, relative to TCP with the same congestion control on the same
// path.
const (
	targetDirect = 0.9
	targetRelay  = 0.8
	targetEight  = 3
	targetMove   = 10 // maximum number of round trips that the move costs
)

// cell is one way to use the long path with losses.
type cell struct {
	name    string
	target  float64 // of what TCP has; 0: none
	run     func() (result, error)
	results []result
}

// lossyRows are the cells' figures, of which the first is TCP without a link, and the
// round trips that a move to a direct path cost.
func lossyRows(cells []cell, moves []float64, params map[string]any) []bench.Row {
	var rows []bench.Row
	raw := bench.Median(rates(cells[0].results))
	for i, c := range cells {
		r := bench.Row{Bench: "stripe", Figure: "lossy/" + c.name, Value: bench.Median(rates(c.results)), Unit: "Mbit/s", Params: maps.Clone(params)}
		r.Params["spread"] = bench.Spread(rates(c.results))
		r.Params["repeat"] = len(c.results)
		if i > 0 {
			r.Params["carriers"] = bench.Median(each(c.results, func(r result) float64 { return float64(r.carriers) }))
			r.Against, r.Ratio = "TCP", r.Value/raw
		}
		if c.target > 0 {
			r = r.AtLeast(c.target)
		}
		rows = append(rows, r)
	}
	if len(moves) == 0 {
		return rows
	}
	r := bench.Row{Bench: "stripe", Figure: "lossy/cost_of_move", Value: bench.Median(moves), Unit: "round trips", Params: maps.Clone(params)}
	r.Params["spread"] = bench.Spread(moves)
	r.Params["repeat"] = len(moves)
	return append(rows, r.AtMost(targetMove))
}

// arrived is the number of bytes that had arrived at a time.
type arrived struct {
	at    time.Time
	bytes uint64
}

const (
	step  = 20 * time.Millisecond // between two samples of a link that moves
	final = 5 * time.Second       // the last part of the samples, in which the link has its full speed
)

// settled returns the rate of the final part of the samples, in Mbit/s, and the cost of the move:
// how much longer the bytes that arrived between it and the final part took than at that rate, or
// 0.
func settled(seen []arrived, moved time.Time) (full float64, cost time.Duration) {
	if len(seen) < 2 {
		return 0, 0
	}
	last := seen[len(seen)-1]
	first, begin := 0, 0
	for first < len(seen)-2 && seen[first].at.Before(moved) {
		first++
	}
	for begin < len(seen)-2 && last.at.Sub(seen[begin].at) > final {
		begin++
	}
	full = runner.Mbit(last.bytes-seen[begin].bytes, last.at.Sub(seen[begin].at))
	if full == 0 || begin <= first {
		return full, 0
	}
	took := seen[begin].at.Sub(seen[first].at)
	needed := time.Duration(float64(seen[begin].bytes-seen[first].bytes) * 8 / 1e6 / full * float64(time.Second))
	return full, max(took-needed, 0)
}
