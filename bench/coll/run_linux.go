package coll

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/peermpi"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// Run builds the scenarios one after the other, measures, and writes the rows to w: as JSON when
// each figure is done, or as a table at the end. The process must have called lab.Enter. A missed
// target is no error.
func Run(ctx context.Context, w io.Writer, o Options) error {
	report := &bench.Report{W: w, JSON: o.JSON}
	return errors.Join(Measure(ctx, o, report), report.End())
}

// Measure is Run with the rows added to a report, which it does not end.
func Measure(ctx context.Context, o Options, report *bench.Report) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	r := &run{Options: o, report: report}
	if r.folder, err = os.MkdirTemp("", "isthmus-coll-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.folder)) }()
	runner.WarnIfBusy(r.Err, "bench coll")
	if err := r.plan(); err != nil {
		return err
	}
	for len(r.todo) > 0 {
		together := 1
		for together < len(r.todo) && r.todo[together].sameLab(r.todo[0].scenario) {
			together++
		}
		if err := r.lab(ctx, r.todo[:together]); err != nil {
			return fmt.Errorf("bench coll: %w", err)
		}
		r.todo = r.todo[together:]
	}
	return nil
}

// A run is one call of Run.
type run struct {
	Options
	folder    string // of programs
	todo      []task
	done, all int // figures
	began     time.Time
	report    *bench.Report
	traffic   func() []wan.Counter // of the lab
}

// A task is a scenario and what to measure there.
type task struct {
	*scenario
	figures []figure
}

// plan decides what to measure, and reports what it skips.
func (r *run) plan() error {
	for _, s := range r.scenarios() {
		figures, tooLong, err := r.figures(&s)
		if err != nil {
			return err
		}
		for _, f := range tooLong {
			fmt.Fprintf(r.Err, "bench coll: %s: %s of %d bytes would take more than %v: left out\n", s.name, f.collective, f.size, r.Longest)
		}
		var asked []figure
		for _, f := range figures {
			if r.asked(&s, f) {
				asked = append(asked, f)
			}
		}
		if len(asked) > 0 {
			t := task{&s, asked}
			r.todo = append(r.todo, t)
			r.all += len(asked) * len(r.passes(t))
		}
	}
	if len(r.todo) == 0 {
		return fmt.Errorf("bench coll: no row matches %q; rows are called like %s", r.Only, figure{operation.Bcast, 1024}.key(&r.scenarios()[0], nameOurs))
	}
	r.began = time.Now()
	return nil
}

// asked reports whether the row of any implementation of a figure is requested.
func (r *run) asked(s *scenario, f figure) bool {
	variants, names := r.variants(), slices.Clone(r.Peers)
	if r.NoChoice {
		variants, names = variants[1:], nil
	}
	for _, v := range variants {
		if v.concerns(f.collective) {
			names = append(names, v.implementation(f.collective))
		}
	}
	for _, name := range names {
		if r.wanted(s, f, name) {
			return true
		}
	}
	return false
}

func (r *run) wanted(s *scenario, f figure, implementation string) bool {
	return r.Only == nil || r.Only.MatchString(f.key(s, implementation))
}

// A pass is the implementations that run alternately: our choice with the other MPIs, in the first
// pass, or with some of our algorithms. All at once would need too much memory.
type pass struct {
	variants []variant
	first    bool
}

// maxTogether is the number of our variants in a pass besides the choice.
const maxTogether = 6

func (r *run) passes(t task) (all []pass) {
	variants := r.variants()
	for i := range variants[1:] {
		variants[1+i] = t.scenario.allowed(variants[1+i])
	}
	choice, rest := variants[:1], slices.DeleteFunc(variants[1:], func(v variant) bool {
		return len(v.forced) == 0 || !slices.ContainsFunc(t.figures, func(f figure) bool {
			return v.concerns(f.collective) && r.wanted(t.scenario, f, v.implementation(f.collective))
		})
	})
	if r.NoChoice {
		choice = nil
	} else {
		all = append(all, pass{choice, true})
	}
	for len(rest) > 0 {
		n := min(len(rest), maxTogether)
		all = append(all, pass{slices.Concat(choice, rest[:n]), false})
		rest = rest[n:]
	}
	return all
}

// lab measures the scenarios of one lab.
func (r *run) lab(ctx context.Context, tasks []task) (err error) {
	g, down, err := gridjob.Up(ctx, tasks[0].spec(), r.Self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	r.traffic = g.Lab.Traffic
	hosts, closeHosts, err := peermpi.LabHosts(g.Lab)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeHosts()) }()
	peers, err := r.installPeers(ctx, hosts)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		for _, p := range r.passes(t) {
			if !p.first {
				err = r.pass(ctx, g, t, p, nil)
			} else {
				err = r.pass(ctx, g, t, p, peers)
			}
			if err != nil {
				return fmt.Errorf("scenario %s: %w", t.name, err)
			}
		}
	}
	return nil
}

// pass starts the jobs and makes all calls.
func (r *run) pass(ctx context.Context, g *grid.Grid, t task, p pass, peers []*peer) (err error) {
	var jobs []*job
	defer func() {
		for _, j := range jobs {
			if e := j.stop(); e != nil && j.ours() {
				err = errors.Join(err, fmt.Errorf("%s: ending: %w", j.name, e))
			} else if e != nil { // the end of other MPIs is not measured, but reported
				fmt.Fprintf(r.Err, "bench coll: %s: %s did not end as it should: %v\n", t.name, j.name, e)
			}
		}
	}()
	for _, v := range p.variants {
		j, err := r.startOurs(ctx, g, t.scenario, v)
		if err != nil {
			return fmt.Errorf("starting %s: %w", nameOurs, err)
		}
		jobs = append(jobs, j)
	}
	for _, peer := range peers {
		j, err := r.startPeer(ctx, g, t.scenario, peer)
		if err != nil {
			return fmt.Errorf("starting %s: %w", peer.name, err)
		}
		jobs = append(jobs, j)
	}
	for _, f := range t.figures {
		r.progress(t.scenario, f, p)
		rows, err := r.figure(ctx, t.scenario, f, p, jobs)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", f.collective, f.size, err)
		}
		if err := r.report.Add(rows...); err != nil {
			return err
		}
		r.done++
	}
	return nil
}

// progress reports the next figure and the estimated time until the end.
func (r *run) progress(s *scenario, f figure, p pass) {
	left := ""
	if r.done > 0 {
		left = fmt.Sprintf(", about %v left", (time.Since(r.began) / time.Duration(r.done) * time.Duration(r.all-r.done)).Round(time.Second))
	}
	with := ""
	if !p.first {
		for _, v := range p.variants {
			if len(v.forced) > 0 && v.concerns(f.collective) {
				with += " " + v.algorithm(v.forced[f.collective])
			}
		}
	}
	fmt.Fprintf(r.Err, "bench coll: %s: %s of %d bytes%s (%d of %d%s)\n", s.name, f.collective, f.size, with, r.done+1, r.all, left)
}

// figure makes the implementations of a pass call alternately, and returns the rows.
func (r *run) figure(ctx context.Context, s *scenario, f figure, p pass, jobs []*job) ([]bench.Row, error) {
	var turn []*job
	others := false
	for _, j := range jobs {
		if j.ours() && (!j.concerns(f.collective) || !s.right(j.variant, f.collective)) || !r.wanted(s, f, r.called(j, f)) && !j.chosen() {
			continue
		}
		j.took, j.late, j.count = nil, nil, 0
		turn = append(turn, j)
		others = others || !j.chosen()
	}
	if !p.first && !others {
		return nil, nil // the first pass has reported our choice
	}
	if r.Counts && !p.first {
		turn = slices.DeleteFunc(turn, func(j *job) bool { return j.chosen() })
	}
	if r.Counts {
		return r.crossings(s, f, turn)
	}
	for range r.Repeat {
		var still []*job
		for _, j := range turn {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			err := r.measure(s, f, j)
			switch {
			case errors.Is(err, errRefused):
				fmt.Fprintf(r.Err, "bench coll: %s: %s: %v\n", s.name, r.called(j, f), err)
				continue
			case err != nil:
				return nil, fmt.Errorf("%s: %w", r.called(j, f), err)
			}
			still = append(still, j)
		}
		turn = still
	}
	var runs []*series
	for _, j := range turn {
		runs = append(runs, &j.series)
	}
	rows, err := s.rows(f, r.Root, runs)
	if err == nil && !p.first {
		rows = withoutChoice(rows)
	}
	return rows, err
}

// withoutChoice removes the times of our choice, which the first pass has reported; comparisons
// with it stay.
func withoutChoice(rows []bench.Row) (some []bench.Row) {
	for _, row := range rows {
		if row.Figure != "time" || row.Params["algorithm"] != nil {
			some = append(some, row)
		}
	}
	return some
}

// called returns an implementation's name in keys and reports.
func (r *run) called(j *job, f figure) string {
	if j.ours() {
		return j.implementation(f.collective)
	}
	return j.name
}

// measure makes a job repeat a call, as often as its first duration permits.
func (r *run) measure(s *scenario, f figure, j *job) error {
	if j.count == 0 { // also warms it up
		took, _, err := j.time(s, f, r.Root, 1)
		if err != nil {
			return err
		}
		j.count = s.count(time.Duration(took[0]))
	}
	took, late, err := j.time(s, f, r.Root, j.count)
	if err != nil {
		return err
	}
	j.took, j.late = append(j.took, took...), append(j.late, late)
	return nil
}
