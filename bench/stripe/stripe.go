// Package stripe is `isthmus-lab bench stripe`: what a link gains from several carriers. In one
// process it runs both ranks of a job, each with a mesh of its own, and sends one way for as long
// as it takes:
//
//   - over one path of 1 Gb/s, 50 ms and a little loss, where each carrier is a
//     TCP connection between two network namespaces, once with each congestion
//     control, since several carriers are meant for one that takes losses for congestion;
//   - by relays, in a whole grid with two proxies with 100 Mb/s each.
//
// Each time a link of one carrier, one of several, and one that chooses for itself take turns. The
// package uses links as programs do, and knows the number of their carriers. It keeps no state;
// lab.Enter ensures that the kernel cleans up everything.
package stripe

import (
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
)

// Options of a run.
type Options struct {
	Repeat   int           // rounds, 1 or more
	RTT      time.Duration // of both scenarios
	Loss     float64       // of packets, in the first
	Rate     int64         // bit/s of the path of the first and the last; 0: 1 Gb/s, and of the last 100 Mb/s and 1 Gb/s
	Proxy    int64         // bit/s to and from each proxy
	Scenario string        // only this one: "path", "proxies" or "lossy"; empty: the first two

	Control string // the only congestion control of the last; empty: cubic and bbr
	Figure  string // the only figure of the last, beside TCP's; empty: all
	Binary  func(daemon string) []string
	JSON    bool
	Out     io.Writer
	Err     io.Writer // progress
}

// Durations.
const (
	warming   = 6 * time.Second // until a link of a given number of carriers has reached its speed
	measuring = 4 * time.Second
	calm      = 10 * time.Second // without another carrier: a link that chooses has chosen
	choosing  = 60 * time.Second // after which it is measured in any case
)

// own is the number of carriers of a link that chooses for itself.
const own = 0

// result is the result of one turn of a link.
type result struct {
	rate     float64 // Mbit/s that arrived
	carriers int     // that were used
	proxies  int     // that these went through
}

// scenario is a set of measurements in one network.
type scenario struct {
	name   string
	params map[string]any
	counts []int // of carriers
	target float64
	of     int // the number of carriers to which the target applies
}

// rows returns a scenario's figures; results are by the index of counts, that of one carrier first.
func (s *scenario) rows(results [][]result) []bench.Row {
	var rows []bench.Row
	base := bench.Median(rates(results[0]))
	for i, n := range s.counts {
		m := bench.Median(rates(results[i]))
		r := bench.Row{Bench: "stripe", Figure: s.name, Value: m, Unit: "Mbit/s", Params: map[string]any{
			"asked": n, "spread": bench.Spread(rates(results[i])), "repeat": len(results[i]),
			"carriers": bench.Median(each(results[i], func(r result) float64 { return float64(r.carriers) })),
		}}
		if n == own {
			r.Params["asked"] = "its own choice"
		}
		if p := bench.Median(each(results[i], func(r result) float64 { return float64(r.proxies) })); p > 0 {
			r.Params["proxies"] = p
		}
		for k, v := range s.params {
			r.Params[k] = v
		}
		if i > 0 {
			r.Against, r.Ratio = "1 carrier", m/base
		}
		if n == s.of && s.target > 0 {
			r = r.AtLeast(s.target)
		}
		rows = append(rows, r)
	}
	return rows
}

func rates(results []result) []float64 {
	return each(results, func(r result) float64 { return r.rate })
}

func each(results []result, f func(result) float64) []float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = f(r)
	}
	return values
}
