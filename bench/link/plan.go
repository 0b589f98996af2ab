package link

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/bench"
)

// A scenario is a state of the wire and the processors.
type scenario struct {
	name    string
	rate    uint64 // of the wire, in bit/s; 0: unlimited
	oneCPU  bool   // both ends are bound to the same processor
	figures []figure
}

// cubic reports whether the ends use cubic if they may, on an unlimited wire: bbr paces, which would
// limit a stream to half of what the wire carries. On a limited wire they use the system's default.
func (s *scenario) cubic() bool { return s.rate == 0 }

// A kind is the quantity that a figure measures.
type kind string

const (
	halfRoundTrip kind = "half_round_trip" // median, in us
	messageRate   kind = "message_rate"    // of messages sent one by one, in million/s
	bandwidth     kind = "bandwidth"       // of messages sent one by one, in GB/s
)

// A figure is something to measure with every implementation.
type figure struct {
	kind  kind
	size  int // bytes of a message
	count int // messages, or round trips, in a full run
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

var scenarios = []scenario{
	{name: "unlimited", figures: []figure{
		{halfRoundTrip, 1, 4000}, {halfRoundTrip, kib, 4000}, {halfRoundTrip, 64 * kib, 1000},
		{halfRoundTrip, mib, 150}, {halfRoundTrip, 4 * mib, 40},
		{messageRate, 16, 100_000},
		{bandwidth, 64 * kib, 4096}, {bandwidth, 256 * kib, 1024}, {bandwidth, mib, 256}, {bandwidth, 4 * mib, 64},
	}},
	{name: "one-cpu", oneCPU: true, figures: []figure{
		{halfRoundTrip, 1, 4000}, {halfRoundTrip, kib, 4000}, {halfRoundTrip, 64 * kib, 500},
		{halfRoundTrip, mib, 75}, {halfRoundTrip, 4 * mib, 20},
		{messageRate, 16, 100_000},
		{bandwidth, 64 * kib, 2048}, {bandwidth, 256 * kib, 512}, {bandwidth, mib, 128}, {bandwidth, 4 * mib, 32},
	}},
	{name: "1-gbit", rate: 1e9, figures: []figure{
		{halfRoundTrip, 1, 4000}, {bandwidth, 64 * kib, 512}, {bandwidth, mib, 32}, {bandwidth, 4 * mib, 8},
	}},
}

// An implementation describes a transport for the plan.
type implementation struct {
	name    string
	secured bool
	c       bool // an end of C, not one of Transports
}

// runsIn reports whether r runs in s. A transport that polls without yielding the CPU does not run
// where its peer waits for the same CPU.
func (r implementation) runsIn(s *scenario) bool { return !s.oneCPU || r.name != nameCSpinning }

// against returns what r is compared with in a figure, or "" if nothing. Without C it is the Go
// implementation.
func (r implementation) against(s *scenario, f figure, haveC bool) string {
	base := nameCBlocking
	switch {
	case !haveC:
		base = namePlain
	case f.kind == halfRoundTrip && !s.oneCPU && s.rate == 0:
		base = nameCSpinning
	}
	if r.secured && r.name != nameTLS && f.kind == bandwidth && s.rate == 0 {
		base = nameTLS
	}
	if base == r.name {
		return ""
	}
	return base
}

// judge returns row, which compares r with the implementation of against, with the target of a
// link, if any. Without C there are targets for TLS only, since the others were set relative to C.
func (r implementation) judge(row bench.Row, s *scenario, f figure, haveC bool) bench.Row {
	tls := r.name == nameLinkTLS
	if r.name != nameLink && !tls || !haveC && row.Against != nameTLS {
		return row
	}
	switch {
	case tls && f.kind == bandwidth && f.size == mib && s.rate > 0:
		return row.AtLeast(0.98)
	case tls && f.kind == bandwidth && f.size == mib && !s.oneCPU:
		return row.AtLeast(1.7)
	case tls:
		return row
	case f.kind == halfRoundTrip && s.oneCPU:
		return row.AtMost(1.2)
	case f.kind == halfRoundTrip && f.size == 1 && s.rate == 0:
		return row.AtMost(1.15)
	case f.kind == messageRate && !s.oneCPU:
		return row.AtLeast(10)
	case f.kind == bandwidth && !s.oneCPU:
		return row.AtLeast(0.97)
	}
	return row
}

// key returns the text that Options.Only matches.
func key(s *scenario, f figure, r implementation) string {
	return fmt.Sprintf("%s/%s/%d/%s", s.name, f.kind, f.size, r.name)
}

// value converts an end's answer, in ns, to the figure's unit.
func (f figure) value(ns float64, count int) (v float64, unit string) {
	switch f.kind {
	case halfRoundTrip:
		return ns / 2e3, "us"
	case messageRate:
		return float64(count) / ns * 1e3, "M/s"
	default:
		return float64(count) * float64(f.size) / ns, "GB/s"
	}
}

// order returns the order for both ends.
func (f figure) order(count int) string {
	what := orderStream
	if f.kind == halfRoundTrip {
		what = orderTrips
	}
	return fmt.Sprintf("%s %d %d", what, f.size, count)
}

// A series is the results of one implementation, a value per round.
type series struct {
	values, p99 []float64 // in the figure's unit
	congestion  string    // that was in use
}

// rows returns the rows of a figure; runs holds all participants, asked are those whose rows are
// requested.
func rows(s *scenario, f figure, runs map[string]*series, asked []implementation, haveC bool) []bench.Row {
	var all []bench.Row
	for _, r := range asked {
		mine := runs[r.name]
		_, unit := f.value(1, 1)
		row := bench.Row{
			Bench: "link", Figure: string(f.kind), Value: bench.Median(mine.values), Unit: unit,
			Params: map[string]any{
				"scenario": s.name, "implementation": r.name, "size": f.size, "congestion": mine.congestion,
				"repeat": len(mine.values), "spread": bench.Round(bench.Spread(mine.values)),
			},
		}
		if f.kind == halfRoundTrip {
			row.Params["p99"] = bench.Round(bench.Median(mine.p99))
		}
		if base := r.against(s, f, haveC); base != "" {
			row.Against, row.Ratio = base, row.Value/bench.Median(runs[base].values)
			row.Params["against_spread"] = bench.Round(bench.Spread(runs[base].values))
			row = r.judge(row, s, f, haveC)
		}
		all = append(all, row)
	}
	return all
}
