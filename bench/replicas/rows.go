package replicas

import (
	"math"

	"github.com/isthmus-grid/isthmus/bench"
)

// traffic is what processes have sent.
type traffic struct{ sends, data, acks, dataBytes, acrossBytes uint64 }

func (t *traffic) add(u traffic) {
	t.sends += u.sends
	t.data += u.data
	t.acks += u.acks
	t.dataBytes += u.dataBytes
	t.acrossBytes += u.acrossBytes
}

// Targets.
const (
	maxAcks   = 0.05     // acknowledgements for each data message,
	mostMean  = 64 << 10 // where messages have at most so many bytes: what is kept is bounded by its bytes, too
	maxAcross = 0.02     // bytes between sets of replicas for each byte of the program, by the table parallel,
	leastMean = 64       // where messages have so many bytes or more: an acknowledgement has some for each stream
	maxSlope  = 0.2      // of the time of parallel beyond that of r jobs, over the slope of primary
	minLinear = 0.98     // R squared of the time of primary over r
)

// sideBySide is what jobs with replicas are compared with.
const sideBySide = "jobs side by side"

// overhead returns the rows of a comparison: the seconds of one job with two replicas, and of two jobs at once, turn by turn.
func overhead(c comparison, ours, theirs []float64, sent traffic) []bench.Row {
	ratios := make([]float64, len(ours))
	for i := range ratios {
		ratios[i] = ours[i] / theirs[i]
	}
	params := map[string]any{
		"scenario": c.place, "what": c.what, "ranks": c.ranks, "replicas": 2, "repeat": len(ours),
		"spread": bench.Round(bench.Spread(ratios)),
	}
	row := func(figure, unit string, value float64) bench.Row {
		return bench.Row{Bench: "replicas", Figure: figure, Params: params, Value: value, Unit: unit}
	}
	time := row("overhead", "s", bench.Median(ours))
	time.Against, time.Ratio = sideBySide, bench.Median(ratios)
	if c.most > 0 {
		time = time.AtMost(c.most)
	}
	acks := row("acks_per_data", "messages", quotient(sent.acks, sent.data))
	if sent.dataBytes <= mostMean*sent.data {
		acks = acks.AtMost(maxAcks)
	}
	across := row("across_per_byte", "bytes", quotient(sent.acrossBytes, sent.dataBytes))
	if sent.dataBytes >= leastMean*sent.data {
		across = across.AtMost(maxAcross)
	}
	return []bench.Row{
		time,
		// Both replicas count the program's messages, and the last ones may wait until a decision is committed.
		row("data_per_message", "messages", 2*quotient(sent.data, sent.sends)).Within(2, 0.02),
		acks, across,
	}
}

func quotient(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// A series is the medians, over 1 to r replicas, of one way to run them.
type series []float64

// slope returns the slope of the least-squares line over 1, 2, ..., and R squared.
func (s series) slope() (slope, r2 float64) {
	n := float64(len(s))
	var x, y, xx, yy, xy float64
	for i, v := range s {
		r := float64(i + 1)
		x, y, xx, yy, xy = x+r, y+v, xx+r*r, yy+v*v, xy+r*v
	}
	dx, dy, dxy := n*xx-x*x, n*yy-y*y, n*xy-x*y
	if dx == 0 || dy == 0 {
		return 0, 1
	}
	return dxy / dx, dxy * dxy / (dx * dy)
}

// minus returns the differences of two series.
func (s series) minus(t series) series {
	d := make(series, len(s))
	for i := range d {
		d[i] = s[i] - t[i]
	}
	return d
}

// The ways to run r replicas of each rank.
const (
	wayPrimary  = "primary"
	wayParallel = "parallel"
)

// growth returns the rows of IS at 100 Mb/s over the number of replicas.
func growth(class string, ranks, repeat int, of map[string]series, spreads map[string][]float64) (rows []bench.Row) {
	for _, way := range []string{wayPrimary, wayParallel, sideBySide} {
		for i, v := range of[way] {
			rows = append(rows, bench.Row{Bench: "replicas", Figure: "is_time", Value: v, Unit: "s", Params: map[string]any{
				"algorithm": way, "ranks": ranks, "class": class, "replicas": i + 1, "repeat": repeat, "spread": bench.Round(spreads[way][i]),
			}})
		}
	}
	params := map[string]any{"ranks": ranks, "class": class}
	slope, r2 := of[wayPrimary].slope()
	extra, _ := of[wayParallel].minus(of[sideBySide]).slope()
	parallel := bench.Row{Bench: "replicas", Figure: "is_slope_parallel_beyond_jobs", Params: params, Value: extra, Unit: "s",
		Against: wayPrimary, Ratio: extra / slope}
	if slope == 0 {
		parallel.Ratio = math.Inf(1)
	}
	return append(rows,
		bench.Row{Bench: "replicas", Figure: "is_slope_primary", Params: params, Value: slope, Unit: "s"},
		bench.Row{Bench: "replicas", Figure: "is_linear_primary", Params: params, Value: r2, Unit: "R2"}.AtLeast(minLinear),
		parallel.AtMost(maxSlope))
}
