package apps

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/examples/tsqr/factor"
	"github.com/isthmus-grid/isthmus/lab/grid"
)

// TSQR is a sweep over the height of a matrix, with both methods, on several numbers
// of sites.
type TSQR struct {
	Bed
	Sites        []int // numbers of them, ascending
	RanksPerSite int
	Cols         int
	Least, Most  int     // rows: from Least to Most, each Factor times the one before
	Factor       int     // 0: 2
	Mflops       float64 // speed of a rank's processor, in Mflop/s; 0: as fast as it can
	Prove        int     // most rows of a matrix whose factors are proved; 0: any
	CPU          float64 // cores of each site's node; 0: not limited
	Repeat       int
}

// Check returns what is wrong with the sweep, or nil.
func (s TSQR) Check() error {
	switch {
	case len(s.Sites) == 0 || slices.Min(s.Sites) < 1 || !slices.IsSorted(s.Sites):
		return fmt.Errorf("numbers of sites %v; want some, ascending from 1 or more", s.Sites)
	case s.RanksPerSite < 1 || s.Cols < 1 || s.Repeat < 1 || !(s.Mflops >= 0):
		return fmt.Errorf("%d ranks in a site, %d columns, %d runs, %g Mflop/s; want one of each or more, and no less than 0", s.RanksPerSite, s.Cols, s.Repeat, s.Mflops)
	}
	if s.CPU < 0 || s.CPU > 0 && s.Mflops > 0 {
		return fmt.Errorf("%g cores and %g Mflop/s: want 0 or more cores, and none where a speed is emulated", s.CPU, s.Mflops)
	}
	if least := slices.Max(s.Sites) * s.RanksPerSite * s.Cols; s.Least < least || s.Most < s.Least {
		return fmt.Errorf("%d to %d rows; each of the ranks needs as many as there are columns: want %d or more", s.Least, s.Most, least)
	}
	return nil
}

// Run builds the sites, sweeps and prints the rows. The process must have called lab.Enter.
func (s TSQR) Run(ctx context.Context) error {
	rows, err := s.Measure(ctx)
	if err != nil {
		return err
	}
	return bench.Write(s.Out, s.JSON, rows...)
}

// Measure is Run without printing.
func (s TSQR) Measure(ctx context.Context) ([]bench.Row, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	spec := s.spec(slices.Max(s.Sites))
	if s.CPU > 0 {
		for i := range spec.Sites {
			spec.Sites[i].CPU = []float64{s.CPU}
		}
	}
	var all []factor.Result
	err := s.onSites(ctx, spec, func(g *grid.Grid) error {
		for _, sites := range s.Sites {
			fmt.Fprintf(s.Err, "tsqr: %s rows on %d sites\n", s.heights(), sites)
			some, err := Example[factor.Result](ctx, s.Bed, g, spread(sites*s.RanksPerSite, sites), "tsqr", "--rows", s.heights(),
				"--cols", fmt.Sprint(s.Cols), "--mflops", fmt.Sprint(s.Mflops), "--prove", fmt.Sprint(s.Prove), "--repeat", fmt.Sprint(s.Repeat))
			if err != nil {
				return err
			}
			all = append(all, some...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.rows(all), nil
}

// heights returns the numbers of rows as an argument of the program.
func (s TSQR) heights() string {
	var words []string
	for rows := s.Least; rows <= s.Most; rows *= max(s.Factor, 2) {
		words = append(words, fmt.Sprint(rows))
	}
	return strings.Join(words, ",")
}

// rows turns results into figures: speeds, messages between sites, and the height from which a
// method is fastest on the most sites.
func (s TSQR) rows(results []factor.Result) (rows []bench.Row) {
	for _, r := range results {
		params := s.params(r.Method, r.Sites)
		params["rows"] = r.Rows
		speed := bench.Row{Bench: "tsqr", Figure: "speed", Params: params, Value: r.Mflops, Unit: "Mflop/s"}
		if other, ok := find(results, "columns", r.Sites, r.Rows); ok && r.Method == "tsqr" {
			speed.Against, speed.Ratio = "columns", other.Seconds/r.Seconds
		}
		rows = append(rows, speed, bench.Row{Bench: "tsqr", Figure: "wan_messages", Params: params, Value: float64(r.WANMessages), Unit: "messages"})
	}
	most := slices.Max(s.Sites)
	for _, method := range []string{"tsqr", "columns"} {
		rows = append(rows, bench.Row{Bench: "tsqr", Figure: "fastest_on_all_sites_from", Params: s.params(method, most),
			Value: float64(crossover(results, method, s.Sites)), Unit: "rows"})
		if last, ok := find(results, method, most, highest(results)); ok {
			if one, ok := find(results, method, s.Sites[0], last.Rows); ok {
				rows = append(rows, bench.Row{Bench: "tsqr", Figure: "speed_up_at_most_rows", Params: s.params(method, most), Value: one.Seconds / last.Seconds, Unit: "times"})
			}
		}
	}
	return rows
}

func (s TSQR) params(method string, sites int) map[string]any {
	return map[string]any{"algorithm": fmt.Sprintf("%s, sites: %d", method, sites), "cols": s.Cols, "ranks_per_site": s.RanksPerSite,
		"mflops_per_rank": s.Mflops, "cpu": s.CPU, "rtt_ms": float64(s.RTT.Microseconds()) / 1000}
}

func find(results []factor.Result, method string, sites, rows int) (factor.Result, bool) {
	i := slices.IndexFunc(results, func(r factor.Result) bool { return r.Method == method && r.Sites == sites && r.Rows == rows })
	if i < 0 {
		return factor.Result{}, false
	}
	return results[i], true
}

func highest(results []factor.Result) int {
	return slices.MaxFunc(results, func(a, b factor.Result) int { return cmp.Compare(a.Rows, b.Rows) }).Rows
}

// crossover returns the smallest number of rows from which a method is fastest on the most sites,
// at every larger number, too; 0 if it is not fastest even at the largest.
func crossover(results []factor.Result, method string, sites []int) (rows int) {
	best := map[int]factor.Result{} // by rows
	for _, r := range results {
		if b, ok := best[r.Rows]; r.Method == method && (!ok || r.Seconds < b.Seconds) {
			best[r.Rows] = r
		}
	}
	heights := slices.Sorted(maps.Keys(best))
	for i := len(heights) - 1; i >= 0 && best[heights[i]].Sites == slices.Max(sites); i-- {
		rows = heights[i]
	}
	return rows
}
