// Package bench is the common format of benchmark results: one row per figure, printed as a table
// for people or as one JSON object per line for programs. It measures nothing itself and keeps no
// state. How to measure is up to each benchmark, except that a figure and what it is compared with
// run alternately (Interleave), so that other load affects both.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Row is one figure. Its JSON always has every key; target has no meaning while met is null, but
// for a spread that is too large.
type Row struct {
	Bench   string         `json:"bench"`   // name of the benchmark, such as "lab"
	Figure  string         `json:"figure"`  // what was measured, such as "rtt_p50"
	Params  map[string]any `json:"params"`  // the conditions
	Value   float64        `json:"value"`   // in Unit
	Unit    string         `json:"unit"`    // such as "ms" or "Mbit/s"
	Against string         `json:"against"` // what Value is compared with, run interleaved
	Ratio   float64        `json:"ratio"`   // Value over that of Against
	Target  float64        `json:"target"`  // what Value, or Ratio if there is one, should reach
	Met     *bool          `json:"met"`     // whether it was reached; nil without a target, or if the spread exceeds MaxSpread
}

// AtLeast returns r with a lower bound as its target: of its Ratio, or of its Value if it is
// compared with nothing.
func (r Row) AtLeast(target float64) Row { return r.judge(target, r.judged() >= target) }

// AtMost returns r with an upper bound as its target: of its Ratio, or of its Value if it is
// compared with nothing.
func (r Row) AtMost(target float64) Row { return r.judge(target, r.judged() <= target) }

// Within returns r with a target that is met if the judged figure differs from it by at most
// tolerance.
func (r Row) Within(target, tolerance float64) Row {
	d := r.judged() - target
	return r.judge(target, d <= tolerance && -d <= tolerance)
}

func (r Row) judged() float64 {
	if r.Against != "" {
		return r.Ratio
	}
	return r.Value
}

// MaxSpread is the largest Spread, of a figure or of what it is compared with, at which a target is
// said to be met or missed: where repetitions disagree more than that, nothing was measured. Rows have
// the two as the parameters "spread" and "against_spread".
const MaxSpread = 0.3

func (r Row) judge(target float64, met bool) Row {
	r.Target = target
	mine, _ := r.Params["spread"].(float64)
	theirs, _ := r.Params["against_spread"].(float64)
	if max(mine, theirs) <= MaxSpread {
		r.Met = &met
	}
	return r
}

// WriteJSON writes one object per row and line.
func WriteJSON(w io.Writer, rows ...Row) error {
	enc := json.NewEncoder(w)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("bench: write %s %s: %w", r.Bench, r.Figure, err)
		}
	}
	return nil
}

// WriteTable writes rows as a table with a header line.
func WriteTable(w io.Writer, rows ...Row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FIGURE\tCONDITIONS\tVALUE\tAGAINST\tRATIO\tTARGET\tMET")
	for _, r := range rows {
		ratio, target, met := "", "", ""
		if r.Against != "" {
			ratio = fmt.Sprintf("%.3f", r.Ratio)
		}
		if r.Met != nil {
			target, met = number(r.Target), "no"
			if *r.Met {
				met = "yes"
			}
		} else if r.Target != 0 {
			target, met = number(r.Target), "unsteady"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s %s\t%s\t%s\t%s\t%s\n",
			r.Figure, conditions(r.Params), number(r.Value), r.Unit, r.Against, ratio, target, met)
	}
	return tw.Flush()
}

// Write writes rows as JSON or as a table.
func Write(w io.Writer, asJSON bool, rows ...Row) error {
	if asJSON {
		return WriteJSON(w, rows...)
	}
	return WriteTable(w, rows...)
}

// A Report collects rows as they are measured. With JSON it writes each at once, otherwise all as
// one table at the end.
type Report struct {
	W    io.Writer
	JSON bool
	Rows []Row // all that were added
}

// Add adds rows.
func (r *Report) Add(rows ...Row) error {
	r.Rows = append(r.Rows, rows...)
	if r.JSON {
		return WriteJSON(r.W, rows...)
	}
	return nil
}

// End writes the rows that Add has not written. A benchmark that fails may call it, too, to keep
// the rows that it has.
func (r *Report) End() error {
	if r.JSON || len(r.Rows) == 0 {
		return nil
	}
	return WriteTable(r.W, r.Rows...)
}

func conditions(params map[string]any) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(params)) {
		parts = append(parts, fmt.Sprintf("%s=%v", k, params[k]))
	}
	return strings.Join(parts, " ")
}

// number prints v with about four digits and no exponent.
func number(v float64) string {
	switch a := max(v, -v); {
	case a == 0 || a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.2f", v)
	case a >= 0.01:
		return fmt.Sprintf("%.4f", v)
	default:
		return fmt.Sprintf("%.6f", v)
	}
}

// Quantile returns the q-quantile, 0 to 1, of values by linear interpolation between neighbours,
// or 0 without values. It does not change values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	at := min(max(q, 0), 1) * float64(len(v)-1)
	low := int(at)
	high := min(low+1, len(v)-1)
	return v[low] + (at-float64(low))*(v[high]-v[low])
}

// Median returns the middle of values.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Spread returns the interquartile range of values divided by their median: how far repetitions
// disagree. It is 0 if the median is 0.
func Spread(values []float64) float64 {
	m := Median(values)
	if m == 0 {
		return 0
	}
	return (Quantile(values, 0.75) - Quantile(values, 0.25)) / m
}

// Round returns v rounded to three decimals, for parameters.
func Round(v float64) float64 { return math.Round(v*1000) / 1000 }

// Interleave runs every case once, then all again, n times, and returns the values of each case in
// order. It stops at the first error.
func Interleave(ctx context.Context, n int, cases ...func(context.Context) (float64, error)) ([][]float64, error) {
	values := make([][]float64, len(cases))
	for range n {
		for i, run := range cases {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			v, err := run(ctx)
			if err != nil {
				return nil, err
			}
			values[i] = append(values[i], v)
		}
	}
	return values, nil
}
