package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/lab"
)

// Run makes the wire, measures, and writes the rows to w: as JSON when each figure is done, or as
// a table at the end. It takes about five minutes, or less if Options.Only selects rows. It must
// be called first in main (see lab.Enter).
func Run(ctx context.Context, w io.Writer, o Options) (err error) {
	if err := lab.Enter(); err != nil {
		return err
	}
	if o.Repeat == 0 {
		o.Repeat = 7
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.CC == "" {
		o.CC = "cc"
	}
	r := &run{Options: o, report: bench.Report{W: w, JSON: o.JSON}}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.prepare(ctx); err != nil {
		return fmt.Errorf("bench link: %w", err)
	}
	runner.WarnIfBusy(r.Err, "bench link")
	for i := range scenarios {
		if err := r.scenario(ctx, &scenarios[i]); err != nil {
			return fmt.Errorf("bench link: %w", err)
		}
	}
	if len(r.report.Rows) == 0 {
		return fmt.Errorf("bench link: no row matches %q; rows are called like %s", o.Only, key(&scenarios[0], scenarios[0].figures[0], implementation{name: namePlain}))
	}
	return r.report.End()
}

// A run is one call of Run.
type run struct {
	Options
	folder          string // of the program in C
	cEnd            string // its path; empty without a compiler
	implementations []implementation
	wire            *runner.Wire
	report          bench.Report
}

func (r *run) prepare(ctx context.Context) (err error) {
	if r.folder, err = os.MkdirTemp("", "isthmus-bench-link-"); err != nil {
		return err
	}
	r.cEnd, err = runner.Compile(ctx, r.CC, r.folder, "end", cSource)
	switch {
	case errors.Is(err, runner.ErrNoCompiler):
		fmt.Fprintf(r.Err, "bench link: %v: measured without C, and Go is compared with %q\n", err, namePlain)
	case err != nil:
		return err
	default:
		r.implementations = []implementation{{name: nameCBlocking, c: true}, {name: nameCSpinning, c: true}}
	}
	for _, c := range Transports {
		r.implementations = append(r.implementations, implementation{name: c.Name(), secured: c.Secured()})
	}
	r.wire, err = runner.NewWire()
	return err
}

func (r *run) close() error {
	if r.wire != nil {
		r.wire.Close()
	}
	return os.RemoveAll(r.folder)
}

// command returns the command line of an end of v in a role.
func (r *run) command(s *scenario, v implementation) func(role ...string) []string {
	congestion := r.wire.Congestion
	if s.cubic() {
		congestion = "cubic"
	}
	return func(role ...string) []string {
		role = append([]string{congestion}, role...)
		switch {
		case v.name == nameCSpinning:
			return append([]string{r.cEnd, "spin"}, role...)
		case v.c:
			return append([]string{r.cEnd, "block"}, role...)
		}
		return append(r.Self[:len(r.Self):len(r.Self)], v.name+" "+strings.Join(role, " "))
	}
}

// scenario measures all requested figures of s.
func (r *run) scenario(ctx context.Context, s *scenario) (err error) {
	if err := r.wire.Limit(s.rate); err != nil {
		return fmt.Errorf("scenario %s: limiting the wire to %d bit/s: %w", s.name, s.rate, err)
	}
	duos := make(map[string]*duo) // started when first needed, and kept
	defer func() {
		for _, d := range duos {
			err = errors.Join(err, d.stop())
		}
	}()
	for _, f := range s.figures {
		asked, needed := r.choose(s, f)
		if len(asked) == 0 {
			continue
		}
		fmt.Fprintf(r.Err, "bench link: %s: %s of %d bytes\n", s.name, f.kind, f.size)
		for _, v := range needed {
			if duos[v.name] == nil {
				if duos[v.name], err = newDuo(ctx, r.wire, s.oneCPU, r.command(s, v)); err != nil {
					return err
				}
			}
		}
		runs, err := r.figure(ctx, f, needed, duos)
		if err != nil {
			return fmt.Errorf("scenario %s: %s of %d bytes: %w", s.name, f.kind, f.size, err)
		}
		more := rows(s, f, runs, asked, r.cEnd != "")
		if err := r.report.Add(more...); err != nil {
			return err
		}
	}
	return nil
}

// choose returns the implementations whose rows are requested, and those that must run, which
// include what they are compared with.
func (r *run) choose(s *scenario, f figure) (asked, needed []implementation) {
	for _, v := range r.implementations {
		if v.runsIn(s) && (r.Only == nil || r.Only.MatchString(key(s, f, v))) {
			asked = append(asked, v)
		}
	}
	for _, v := range r.implementations {
		compared := func(a implementation) bool { return a.name == v.name || a.against(s, f, r.cEnd != "") == v.name }
		if slices.ContainsFunc(asked, compared) {
			needed = append(needed, v)
		}
	}
	return asked, needed
}

// figure measures f with each of needed alternately, r.Repeat times.
func (r *run) figure(ctx context.Context, f figure, needed []implementation, duos map[string]*duo) (map[string]*series, error) {
	count := max(1, int(float64(f.count)*r.Scale))
	runs := make(map[string]*series)
	var cases []func(context.Context) (float64, error)
	for _, v := range needed {
		own := &series{congestion: duos[v.name].congestion}
		runs[v.name] = own
		cases = append(cases, func(context.Context) (float64, error) {
			ns, p99, err := duos[v.name].do(f.order(count))
			if err != nil {
				return 0, err
			}
			half, _ := f.value(p99, count)
			own.p99 = append(own.p99, half)
			value, _ := f.value(ns, count)
			return value, nil
		})
	}
	values, err := bench.Interleave(ctx, r.Repeat, cases...)
	if err != nil {
		return nil, err
	}
	for i, v := range needed {
		runs[v.name].values = values[i]
	}
	return runs, nil
}
