package factor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/isthmus-grid/isthmus/examples/tally"
)

// Result is one matrix factored in one way, the same on every rank. Times and
// traffic are those of R; the traffic is that of one run.
type Result struct {
	Method     string    `json:"method"` // "tsqr" or "columns"
	Rows       int       `json:"rows"`
	Cols       int       `json:"cols"`
	Ranks      int       `json:"ranks"`
	Sites      int       `json:"sites"`
	Domains    int       `json:"domains"`    // in all
	Seconds    float64   `json:"seconds"`    // the median run's, by the slowest rank
	Runs       []float64 `json:"runs"`       // of each
	Mflops     float64   `json:"mflops"`     // a second: 2 rows cols² - 2/3 cols³ over Seconds
	Reductions int       `json:"reductions"` // over a domain
	tally.Traffic
	Proof    proof `json:"proof"`
	Proved   bool  `json:"proved"`   // whether there is a proof
	Verified bool  `json:"verified"` // and it holds
}

// flops is what the literature counts for a QR factorization without Q.
func (p problem) flops() float64 {
	m, n := float64(p.rows), float64(p.cols)
	return 2*m*n*n - 2*n*n*n/3
}

// solve runs a problem so many times with each solver, in turn, and proves each
// solver's first result if the problem says so. All ranks return the same.
func solve(ctx context.Context, p problem, repeat int, solvers map[string]*solver) ([]Result, error) {
	var results []Result
	for _, method := range methods {
		if s := solvers[method]; s != nil {
			results = append(results, Result{Method: method, Rows: p.rows, Cols: p.cols, Ranks: s.comm.Size(), Sites: s.layout.sites, Domains: len(s.layout.leaders)})
		}
	}
	for turn := range repeat {
		for i := range results {
			r := &results[i]
			if err := r.run(ctx, p, solvers[r.Method], turn == 0); err != nil {
				return nil, fmt.Errorf("%s of %d x %d: %w", r.Method, p.rows, p.cols, err)
			}
		}
	}
	for i := range results {
		r := &results[i]
		r.Seconds = slices.Sorted(slices.Values(r.Runs))[len(r.Runs)/2]
		r.Mflops = p.flops() / r.Seconds / 1e6
	}
	return results, nil
}

// run adds one run to r.
func (r *Result) run(ctx context.Context, p problem, s *solver, first bool) error {
	o, err := s.run(ctx, p, first && p.prove)
	if err != nil {
		return err
	}
	slowest, err := tally.Slowest(ctx, s.comm, o.seconds)
	if err != nil {
		return err
	}
	r.Runs = append(r.Runs, slowest[0])
	if !first {
		return nil
	}
	r.Reductions = o.sums
	if r.Traffic, err = o.traffic.Sum(ctx, s.comm); err != nil || !p.prove {
		return err
	}
	if r.Proof, err = prove(ctx, s.comm, p, o); err != nil {
		return fmt.Errorf("proving: %w", err)
	}
	r.Proved, r.Verified = true, r.Proof.good(p.cols)
	return nil
}

// writeTable writes results for people, and where there are both ways how many
// times as fast the tree is.
func writeTable(w io.Writer, results []Result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "METHOD\tROWS\tCOLS\tRANKS\tSITES\tDOMAINS\tSECONDS\tMFLOP/S\tREDUCTIONS\tMESSAGES\tBETWEEN SITES\tTIMES AS FAST\tVERIFIED")
	for _, r := range results {
		gain, verified := "", "yes"
		for _, other := range results {
			if r.Method == methodTSQR && other.Method == methodColumns && r.Rows == other.Rows {
				gain = fmt.Sprintf("%.2f", other.Seconds/r.Seconds)
			}
		}
		switch {
		case !r.Proved:
			verified = "not proved"
		case !r.Verified:
			verified = fmt.Sprintf("NO: %+v", r.Proof)
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%.4f\t%.0f\t%d\t%d\t%d\t%s\t%s\n",
			r.Method, r.Rows, r.Cols, r.Ranks, r.Sites, r.Domains, r.Seconds, r.Mflops, r.Reductions, r.Messages, r.WANMessages, gain, verified)
	}
	return tw.Flush()
}
