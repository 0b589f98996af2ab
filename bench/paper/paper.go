// Package paper is `isthmus-lab bench paper`: tables and figures of the articles on QCG-OMPI, P2P-MPI
// and JaceP2P-V2, measured in the lab; those of the last are simulated. Absolute times of those machines mean nothing here, so that each row
// is a claim that does not depend on them, a ratio or where two lines cross, with the article's
// figure beside ours.
//
// An experiment is one table or figure. It uses the benchmark that measures the same at length
// (packages apps, coll and replicas), or starts an example on nodes of a lab. The package keeps no
// state.
package paper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/launch/mapping"
)

// Options say what to measure.
type Options struct {
	// Self is the command line of this program; parts of other benchmarks and the daemons are
	// further arguments of it.
	Self []string

	Only   *regexp.Regexp // experiments, by their names; nil is all
	Repeat int            // measurements of each figure, in turn
	JSON   bool
	Out    io.Writer
	Err    io.Writer // progress
}

// An experiment is a table or figure of an article.
type experiment struct {
	name    string // such as "qcg-table-1"
	source  string
	measure func(Options, context.Context) ([]bench.Row, error)
}

const (
	qcg       = "QCG-OMPI"
	p2pAlloc  = "P2P-MPI, co-allocation"
	p2pRobust = "P2P-MPI, robust execution"
	jace      = "JaceP2P-V2, mapping"
)

var experiments = []experiment{
	{"qcg-table-1", qcg + ", table 1", Options.latencies},
	{"qcg-table-2", qcg + ", table 2", Options.bandwidths},
	{"qcg-figure-4", qcg + ", figure 4", Options.flits},
	{"qcg-figure-5a", qcg + ", figure 5 (a)", Options.bcast},
	{"qcg-figure-5b", qcg + ", figure 5 (b)", Options.reduce},
	{"qcg-figure-7", qcg + ", figure 7", Options.ray2mesh},
	{"qcg-figure-9", qcg + ", figure 9", Options.tsqr},
	{"p2p-alloc-figure-4", p2pAlloc + ", figure 4", Options.kernels},
	{"p2p-robust-figure-5", p2pRobust + ", figure 5", Options.replicas},
	{"jace-table-2", jace + ", table 2", mapped(mapping.Testbeds[0], [3]float64{27, 33, 40}, "F-EC", "AIAC-QM", "SMa")},
	{"jace-table-3", jace + ", table 3", mapped(mapping.Testbeds[1], [3]float64{34, 38, 46}, "F-EC", "AIAC-QM", "SMa")},
	{"jace-table-4", jace + ", table 4", mapped(mapping.Testbeds[2], [3]float64{32, 45, 23}, "AIAC-QM", "SMa", "F-EC")},
	{"jace-table-5", jace + ", table 5", mapped(mapping.Testbeds[3], [3]float64{37, 52, 30}, "AIAC-QM", "SMa", "F-EC")},
	{"jace-table-6", jace + ", table 6", parameters(mapping.Testbeds[4])},
}

// Names returns the names of all experiments.
func Names() (names []string) {
	for _, e := range experiments {
		names = append(names, e.name)
	}
	return names
}

// Check returns what is wrong with the options, or nil.
func (o Options) Check() error {
	if o.Repeat < 1 {
		return fmt.Errorf("--repeat %d: want 1 or more, 3 for reliable figures", o.Repeat)
	}
	if len(o.asked()) == 0 {
		return fmt.Errorf("--only %s: matches no experiment; these are %s", o.Only, strings.Join(Names(), ", "))
	}
	return nil
}

func (o Options) asked() (some []experiment) {
	for _, e := range experiments {
		if o.Only == nil || o.Only.MatchString(e.name) {
			some = append(some, e)
		}
	}
	return some
}

// Run measures and writes the rows: as JSON when each experiment is done, or as a table at the end. The
// process must have called lab.Enter. A claim that is not confirmed is no error; an experiment that
// fails is one, after the others.
func Run(ctx context.Context, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	runner.WarnIfBusy(o.Err, "bench paper")
	var all []bench.Row
	var failed []error
	for _, e := range o.asked() {
		fmt.Fprintf(o.Err, "bench paper: %s\n", e.name)
		rows, err := e.measure(o, ctx)
		if err != nil {
			failed = append(failed, fmt.Errorf("bench paper: %s: %w", e.name, err))
			if ctx.Err() != nil {
				break
			}
		}
		for i := range rows {
			rows[i].Bench, rows[i].Figure, rows[i].Params["source"] = "paper", e.name, e.source
		}
		all = append(all, rows...)
		if o.JSON {
			failed = append(failed, bench.WriteJSON(o.Out, rows...))
		}
	}
	if !o.JSON {
		failed = append(failed, writeTable(o.Out, all))
	}
	return errors.Join(failed...)
}

// claim returns a row that has no verdict yet: what an article says, its own figure, and ours.
func claim(text, article string, value float64, unit string) bench.Row {
	return bench.Row{Params: map[string]any{"claim": text, "article": article}, Value: value, Unit: unit}
}

// verdict returns the row with a verdict that is not one of bounds.
func verdict(row bench.Row, agrees bool) bench.Row {
	row.Met = &agrees
	return row
}

// between returns the row with a verdict: whether its value is within bounds.
func between(row bench.Row, least, most float64) bench.Row {
	return row.Within((least+most)/2, (most-least)/2)
}

// writeTable writes rows for people.
func writeTable(w io.Writer, rows []bench.Row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "EXPERIMENT\tCLAIM\tARTICLE\tHERE\tAGREES")
	for _, r := range rows {
		agrees := ""
		if r.Met != nil {
			agrees = "no"
			if *r.Met {
				agrees = "yes"
			}
		}
		fmt.Fprintf(tw, "%s\t%v\t%v\t%.4g %s\t%s\n", r.Figure, r.Params["claim"], r.Params["article"], r.Value, r.Unit, agrees)
	}
	return tw.Flush()
}

// find returns the value of the only row for which is holds.
func find(rows []bench.Row, what string, is func(bench.Row) bool) (float64, error) {
	var found []float64
	for _, r := range rows {
		if is(r) {
			found = append(found, r.Value)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%d rows have %s, want one", len(found), what)
	}
	return found[0], nil
}
