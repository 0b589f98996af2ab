package p2p

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
	"github.com/isthmus-grid/isthmus/lab"
)

// Run makes the wire, starts the jobs, measures, and writes the rows to w: with JSON as soon as a
// figure is done, else as a table at the end. It must be called first in main (see lab.Enter).
func Run(ctx context.Context, w io.Writer, o Options) (err error) {
	if err := lab.Enter(); err != nil {
		return err
	}
	if o.Repeat == 0 {
		o.Repeat = 7
	}
	if o.For == 0 {
		o.For = 100 * time.Millisecond
	}
	r := &run{Options: o, suite: o.suite(), report: bench.Report{W: w, JSON: o.JSON}}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.prepare(ctx); err != nil {
		return fmt.Errorf("bench %s: %w", r.suite.name, err)
	}
	runner.WarnIfBusy(r.Err, "bench "+r.suite.name)
	for i := range r.suite.scenarios {
		if err := r.scenario(ctx, &r.suite.scenarios[i]); err != nil {
			return fmt.Errorf("bench %s: %w", r.suite.name, errors.Join(err, r.report.End()))
		}
	}
	if len(r.report.Rows) == 0 {
		first := &r.suite.scenarios[0]
		return fmt.Errorf("bench %s: no row matches %q; rows are called like %s", r.suite.name, o.Only, key(first, first.figures[0], r.suite.subject))
	}
	return r.report.End()
}

// A run is one call of Run.
type run struct {
	Options
	suite           *suite
	folder          string // of programs and sockets
	wire            *runner.Wire
	helpers         *runner.FakeHelpers // of ours
	congestion      string              // in use between the hosts
	implementations []implementation
	report          bench.Report
}

func (r *run) prepare(ctx context.Context) (err error) {
	if r.folder, err = os.MkdirTemp("", "isthmus-p2p-"); err != nil {
		return err
	}
	if r.wire, err = runner.NewWire(); err != nil {
		return err
	}
	// bbr, which paces, limits a stream to half of what the wire carries. A host may be allowed
	// only reno, which on a wire without loss is as good.
	if r.congestion, err = r.wire.SetCongestion("cubic", "reno"); err != nil {
		return err
	}
	if r.helpers, err = runner.NewFakeHelpers(r.wire, r.folder); err != nil {
		return err
	}
	if r.suite.subject == nameC {
		program, err := compileC(ctx, r.Compiler, r.folder)
		if err != nil {
			return err
		}
		r.implementations = []implementation{&ours{nameC, []string{program}, r.folder, r.helpers}}
	}
	r.implementations = append(r.implementations, &ours{nameOurs, r.Self, r.folder, r.helpers})
	hosts, err := hostsOf(r.wire)
	if err != nil {
		return err
	}
	for _, m := range mpis {
		if !slices.Contains(r.Peers, m.Name) {
			continue
		}
		p, err := peermpi.Install(ctx, m.MPI, r.folder, cSource, hosts, threadsFlag)
		switch {
		case errors.Is(err, peermpi.ErrNotInstalled):
			fmt.Fprintf(r.Err, "bench %s: %v: measured without it\n", r.suite.name, err)
		case err != nil:
			return err
		default:
			r.implementations = append(r.implementations, &foreign{Program: p, hosts: hosts, args: m.args})
		}
	}
	return nil
}

func (r *run) close() (err error) {
	if r.helpers != nil {
		err = r.helpers.Close()
	}
	if r.wire != nil {
		r.wire.Close()
	}
	return errors.Join(err, os.RemoveAll(r.folder))
}

// scenario measures all requested figures of s.
func (r *run) scenario(ctx context.Context, s *scenario) (err error) {
	jobs := make(map[string]*job) // started when first needed, and kept
	defer func() {
		for name, j := range jobs {
			err = errors.Join(err, r.end(s, name, j))
		}
	}()
	for _, f := range s.figures {
		asked, needed := r.choose(s, f)
		if len(asked) == 0 {
			continue
		}
		fmt.Fprintf(r.Err, "bench %s: %s: %s of %d bytes\n", r.suite.name, s.name, f.kind, f.size)
		runs, err := r.figure(ctx, s, f, needed, jobs)
		if err != nil {
			return fmt.Errorf("scenario %s: %s of %d bytes: %w", s.name, f.kind, f.size, err)
		}
		more := r.suite.rows(s, f, runs, asked, r.congestion)
		if err := r.report.Add(more...); err != nil {
			return err
		}
	}
	return nil
}

// end ends a job that has been measured. How the others end is not an error of ours, but it is
// reported.
func (r *run) end(s *scenario, name string, j *job) error {
	err := j.stop()
	switch {
	case err == nil:
	case name == nameOurs || name == nameC:
		return fmt.Errorf("scenario %s: %s: ending: %w", s.name, name, err)
	default:
		fmt.Fprintf(r.Err, "bench %s: %s: %s did not end as it should: %v\n", r.suite.name, s.name, name, err)
	}
	return nil
}

// choose returns the implementations whose rows are requested, and those that must run: for the subject
// also those that it is compared with.
func (r *run) choose(s *scenario, f figure) (asked []string, needed []implementation) {
	for _, c := range r.implementations {
		if !r.suite.has(s, c.name()) {
			continue
		}
		if r.Only == nil || r.Only.MatchString(key(s, f, c.name())) {
			asked = append(asked, c.name())
		}
	}
	for _, c := range r.implementations {
		if r.suite.has(s, c.name()) && (slices.Contains(asked, r.suite.subject) || slices.Contains(asked, c.name())) {
			needed = append(needed, c)
		}
	}
	return asked, needed
}

// figure measures f with each of needed in turn, r.Repeat times.
func (r *run) figure(ctx context.Context, s *scenario, f figure, needed []implementation, jobs map[string]*job) (map[string]*series, error) {
	var cases []func(context.Context) (float64, error)
	runs := make(map[string]*series)
	for _, c := range needed {
		measured, err := r.measurement(ctx, s, f, c, jobs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name(), err)
		}
		mine := new(series)
		runs[c.name()] = mine
		cases = append(cases, func(ctx context.Context) (float64, error) {
			answer, cpus, version, err := measured(ctx)
			mine.cpus, mine.version = append(mine.cpus, cpus), version
			return f.value(s, answer), err
		})
	}
	values, err := bench.Interleave(ctx, r.Repeat, cases...)
	if err != nil {
		return nil, err
	}
	for i, c := range needed {
		runs[c.name()].values = values[i]
	}
	return runs, nil
}

// A measurement is an implementation's turn: it measures a figure once.
type measurement func(context.Context) (answer, cpus float64, version string, err error)

// measurement returns an implementation's turn. Its job is started if there is none yet; of singletons each turn starts several.
func (r *run) measurement(ctx context.Context, s *scenario, f figure, c implementation, jobs map[string]*job) (measurement, error) {
	name := c.name()
	if s.mode == modeSingleton {
		return func(ctx context.Context) (float64, float64, string, error) { return r.singletons(ctx, s, f, c) }, nil
	}
	if jobs[name] == nil {
		j, err := newJob(ctx, c, s, r.wire)
		if err != nil {
			return nil, fmt.Errorf("starting: %w", err)
		}
		jobs[name] = j
	}
	j := jobs[name]
	count, err := r.count(s, f, j)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (float64, float64, string, error) {
		answer, cpus, err := r.measure(s, f, j, count)
		return answer, cpus, j.version, err
	}, nil
}

// starts is how many singletons a turn starts.
const starts = 3

// singletons starts singletons one after the other, and returns the medians of what they answer.
func (r *run) singletons(ctx context.Context, s *scenario, f figure, c implementation) (answer, cpus float64, version string, err error) {
	var answers, used []float64
	for range starts {
		j, err := newJob(ctx, c, s, r.wire)
		if err != nil {
			return 0, 0, "", err
		}
		answer, cpus, err := r.measure(s, f, j, 1)
		if err = errors.Join(err, r.end(s, c.name(), j)); err != nil {
			return 0, 0, "", err
		}
		answers, used, version = append(answers, answer), append(used, cpus), j.version
	}
	return bench.Median(answers), bench.Median(used), version, nil
}

// count measures how many of f a job does in r.For. This is also its warm-up.
func (r *run) count(s *scenario, f figure, j *job) (int, error) {
	count := 1
	for _, d := range []time.Duration{r.For / 100, r.For / 10, r.For} {
		ns, _, err := r.measure(s, f, j, count)
		if err != nil {
			return 0, err
		}
		count = countFor(d, ns+float64(f.between()))
	}
	return count, nil
}

// measure makes a job do f count times, and returns its answer. Messages between ranks at two hosts
// must have crossed the wire.
func (r *run) measure(s *scenario, f figure, j *job, count int) (ns, cpus float64, err error) {
	before, err := r.wire.TotalBytes()
	if err != nil {
		return 0, 0, err
	}
	if ns, cpus, err = j.do(f.order(count)); err != nil {
		return 0, 0, err
	}
	after, err := r.wire.TotalBytes()
	if err != nil {
		return 0, 0, err
	}
	if carried := after - before; s.apart && carried < f.payload(count) {
		return 0, 0, fmt.Errorf("%d bytes crossed the wire where the messages alone have %d: the ranks have another way", carried, f.payload(count))
	}
	if ns <= 0 {
		return 0, 0, fmt.Errorf("%v: answered %v ns", j.all[0], ns)
	}
	return ns, cpus, nil
}
