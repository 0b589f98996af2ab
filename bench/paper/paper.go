// Package paper is `isthmus-lab bench paper`: tables and figures of the articles on QCG-OMPI, P2P-MPI
// and JaceP2P-V2, measured in the lab; those of the last are simulated. Absolute times of those machines mean nothing here, so that each row
// is a claim that does not depend on them, a ratio or where two lines cross, with the article's
// figure beside ours.
//
// The table (table.go) has all claims, with the bounds within which each holds. An experiment is one
// table or figure. It uses the benchmark that measures the same at length (packages apps, coll and
// replicas), or starts an example on nodes of a lab. The package keeps no state.
package paper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/plot"
	"github.com/isthmus-grid/isthmus/bench/runner"
)

// Options say what to measure.
type Options struct {
	// Self is the command line of this program; parts of other benchmarks and the daemons are
	// further arguments of it.
	Self []string

	Only   *regexp.Regexp // experiments, by their names; nil is all
	Repeat int            // measurements of each figure, in turn
	JSON   bool
	Curves string // folder for pictures of the figures; "" is none
	Out    io.Writer
	Err    io.Writer // progress
}

// Names returns the names of all experiments.
func Names() (names []string) {
	for _, e := range table {
		names = append(names, e.name)
	}
	return names
}

// Minutes returns about how long all experiments take, with three repetitions on two processors that do nothing else.
func Minutes() int {
	all := 0.0
	for _, e := range table {
		all += e.minutes
	}
	return int(math.Ceil(all))
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
	for _, e := range table {
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
		fmt.Fprintf(o.Err, "bench paper: %s, about %g minutes\n", e.name, e.minutes)
		m, err := e.measure(o, ctx)
		var rows []bench.Row
		if err == nil {
			rows, err = e.judge(m.figures)
		}
		if err == nil && o.Curves != "" {
			err = e.draw(m.curves, o.Curves)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("bench paper: %s: %w", e.name, err))
			if ctx.Err() != nil {
				break
			}
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

// draw writes pictures of curves, PNG files whose names begin with the experiment's.
func (e experiment) draw(curves []bench.Row, folder string) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	rows := slices.Clone(curves)
	for i := range rows {
		rows[i].Bench = e.name
	}
	for name, picture := range plot.Figures(rows) {
		if err := picture.WriteFile(filepath.Join(folder, name+".png")); err != nil {
			return err
		}
	}
	return nil
}

// writeTable writes rows for people: all claims, then what is otherwise here, and why some do not hold.
func writeTable(w io.Writer, rows []bench.Row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "EXPERIMENT\tCLAIM\tARTICLE\tHERE\tHOLDS")
	sizes, reasons := "", ""
	for i, r := range rows {
		if here := r.Params["here"]; here != nil && (i == 0 || rows[i-1].Figure != r.Figure) {
			sizes += fmt.Sprintf("\n%s is here: %v\n", r.Figure, here)
		}
		holds := "yes"
		if !*r.Met {
			holds = "no"
			reasons += fmt.Sprintf("\n%s: that %v does not hold: %v\n", r.Figure, r.Params["claim"], r.Params["why"])
		}
		fmt.Fprintf(tw, "%s\t%v\t%v\t%.4g %s\t%s\n", r.Figure, r.Params["claim"], r.Params["article"], r.Value, r.Unit, holds)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, sizes+reasons)
	return err
}

// ofFigure returns the rows of one figure.
func ofFigure(rows []bench.Row, figure string) (some []bench.Row) {
	for _, r := range rows {
		if r.Figure == figure {
			some = append(some, r)
		}
	}
	return some
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
