package replicas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
)

// A run is one call of Run.
type run struct {
	Options
	hosts  *runner.DistantHosts
	report *bench.Report
}

// portsFrom is the first of the ports of the jobs of a comparison.
const portsFrom = 7700

// growthKey is what Options.Only is matched with for IS at 100 Mb/s.
const growthKey = "growth/is"

// Run measures and writes the rows. It must be called in a process that went through lab.Enter. Missing a target is no error.
func Run(ctx context.Context, o Options) error {
	report := &bench.Report{W: o.Out, JSON: o.JSON}
	return errors.Join(Measure(ctx, o, report), report.End())
}

// Measure is Run with the rows added to a report, which it does not end.
func Measure(ctx context.Context, o Options, report *bench.Report) error {
	if err := o.Check(); err != nil {
		return err
	}
	r := &run{Options: o, report: report}
	runner.WarnIfBusy(r.Err, "bench replicas")
	for _, c := range comparisons(o.Class) {
		if !r.asked(c.key()) {
			continue
		}
		fmt.Fprintf(r.Err, "bench replicas: %s\n", c.key())
		if err := r.compare(ctx, c); err != nil {
			return fmt.Errorf("bench replicas: %s: %w", c.key(), err)
		}
	}
	for _, n := range o.Ranks {
		if !r.asked(growthKey) {
			break
		}
		if err := r.growth(ctx, n); err != nil {
			return fmt.Errorf("bench replicas: %s: %w", growthKey, err)
		}
	}
	if len(r.report.Rows) == 0 {
		return fmt.Errorf("bench replicas: no row matches %q; rows are called like %s and %s", o.Only, comparisons(o.Class)[0].key(), growthKey)
	}
	return nil
}

func (r *run) asked(key string) bool { return r.Only == nil || r.Only.MatchString(key) }

// onHosts runs f with so many hosts and paths.
func (r *run) onHosts(n int, paths []wan.Path, f func() error) (err error) {
	if r.hosts, err = runner.NewDistantHosts(n, paths...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.hosts.Close()) }()
	return f()
}

// compare measures a comparison.
func (r *run) compare(ctx context.Context, c comparison) error {
	var paths []wan.Path
	if c.delay > 0 {
		for set := range 2 {
			a, b := set*c.ranks, set*c.ranks+1
			paths = append(paths, runner.Between(a, b, wan.Shape{Delay: c.delay}), runner.Between(b, a, wan.Shape{Delay: c.delay}))
		}
	}
	return r.onHosts(2*c.ranks, paths, func() (err error) {
		with, err := r.start(ctx, portsFrom, job{ranks: c.ranks, replicas: 2})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, with.stop()) }()
		without, err := r.start(ctx, portsFrom+1, job{ranks: c.ranks, replicas: 1}, job{ranks: c.ranks, replicas: 1, first: c.ranks})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, without.stop()) }()
		count, err := r.count(c, with, without)
		if err != nil {
			return err
		}
		var sent traffic
		values, err := bench.Interleave(ctx, r.Repeat, func(context.Context) (s float64, err error) {
			s, sent, err = with.do(c.order(count))
			return s, err
		}, func(context.Context) (s float64, err error) {
			s, _, err = without.do(c.order(count))
			return s, err
		})
		if err != nil {
			return err
		}
		return r.report.Add(overhead(c, values[0], values[1], sent)...)
	})
}

// count returns how many round trips take about r.For, for both groups alike. This is also their warm-up.
func (r *run) count(c comparison, groups ...*group) (count int, err error) {
	count = 1
	for _, d := range []time.Duration{r.For / 100, r.For / 10, r.For} {
		slowest := 0.0
		for _, g := range groups {
			s, _, err := g.do(c.order(count))
			if err != nil || c.size < 0 {
				return 1, err
			}
			slowest = max(slowest, s)
		}
		count = max(1, int(d.Seconds()/slowest*float64(count)))
	}
	return count, nil
}

// rate is that of each host's interface, in bit/s, in the paper and here.
const rate = 100e6

// limit limits what enters and leaves each host.
func (r *run) limit() error {
	for i, h := range r.hosts.Hosts {
		out := func() error { return runner.Limit("eth0", rate) }
		in := func() error { return runner.Limit(star.Port(i), rate) }
		if err := errors.Join(h.Do(out), r.hosts.Centre.Do(in)); err != nil {
			return err
		}
	}
	return nil
}

// growth measures IS on so many ranks, for each number of replicas.
func (r *run) growth(ctx context.Context, ranks int) error {
	of, spreads := map[string]series{}, map[string][]float64{}
	for replicas := 1; replicas <= r.Most; replicas++ {
		fmt.Fprintf(r.Err, "bench replicas: is %s at 100 Mb/s: %d ranks of %d\n", r.Class, ranks, replicas)
		err := r.onHosts(ranks*replicas, nil, func() error {
			if err := r.limit(); err != nil {
				return err
			}
			values, err := r.times(ctx, ranks, replicas)
			for way, v := range values {
				of[way] = append(of[way], bench.Median(v))
				spreads[way] = append(spreads[way], bench.Spread(v))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return r.report.Add(growth(r.Class, ranks, r.Repeat, of, spreads)...)
}

// times returns the seconds of each way, turn by turn. With one replica all ways are the same jobs.
func (r *run) times(ctx context.Context, ranks, replicas int) (values map[string][]float64, err error) {
	beside := make([]job, replicas)
	for i := range beside {
		beside[i] = job{ranks: ranks, replicas: 1, first: i * ranks}
	}
	ways := []string{sideBySide, wayParallel, wayPrimary}
	var cases []func(context.Context) (float64, error)
	for i, jobs := range [][]job{beside, {{ranks: ranks, replicas: replicas}}, {{ranks: ranks, replicas: replicas, primary: true}}} {
		g, err := r.start(ctx, portsFrom+100*i, jobs...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, g.stop()) }()
		order := orderKernel + " is " + r.Class
		if _, _, err := g.do(order); err != nil { // warm-up
			return nil, err
		}
		cases = append(cases, func(context.Context) (s float64, err error) {
			s, _, err = g.do(order)
			return s, err
		})
	}
	all, err := bench.Interleave(ctx, r.Repeat, cases...)
	if err != nil {
		return nil, err
	}
	values = map[string][]float64{}
	for i, way := range ways {
		values[way] = all[i]
	}
	return values, nil
}
