package coll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
)

// Timeouts.
const (
	joinBound  = 2 * time.Minute // of a job's start
	orderBound = 2 * time.Minute // of an order: many times the duration of the slowest call
)

// A job is an implementation's ranks in a scenario.
type job struct {
	series
	head  *runner.Process // takes orders
	end   func() error    // ends the processes that run beside it
	count int             // repetitions at a time; 0: not yet known
}

// startOurs starts our ranks.
func (r *run) startOurs(ctx context.Context, g *grid.Grid, s *scenario, v variant) (*job, error) {
	launchers, forget, err := gridjob.Job{
		Grid: g, Self: r.Self, Name: "coll", Nodes: s.places(), Env: v.environment(),
		Argv: append(slices.Clone(r.Self), "bench", "coll", "--part"),
	}.Launchers(ctx)
	if err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	var mu sync.Mutex // guards errs until running is over
	var errs []error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	j := &job{series: series{name: nameOurs, variant: v}}
	j.end = func() error {
		running.Wait()
		return errors.Join(append(errs, forget())...)
	}
	head := launchers[0]
	if j.head, err = runner.Attend(head.Cmd, head.Start, head.Wait); err != nil {
		return nil, errors.Join(err, forget())
	}
	for _, l := range launchers[1:] {
		l.Stderr = head.Stderr
		if err := l.Start(); err != nil {
			note(err)
			break
		}
		running.Go(func() { // ends with the job, once the head reads the end of its orders
			if err := l.Wait(); err != nil {
				note(fmt.Errorf("%s: %w", strings.Join(l.Args, " "), err))
			}
		})
	}
	return j, j.join(nil)
}

// startPeer starts another MPI's ranks.
func (r *run) startPeer(ctx context.Context, g *grid.Grid, s *scenario, p *peer) (*job, error) {
	head, err := p.start(ctx, g.Lab, s)
	if err != nil {
		return nil, err
	}
	j := &job{series: series{name: p.name}, head: head, end: func() error { return nil }}
	return j, j.join(p.machines(s))
}

// join waits until the job accepts orders. Its ranks must run on the given machines, if any.
func (j *job) join(machines []string) error {
	line, err := j.head.Line(joinBound)
	words := strings.Fields(line)
	if err == nil && (len(words) < 2 || words[0] != "ready") {
		err = fmt.Errorf("%v: said %q instead of being ready", j.head, strings.Join(words, " "))
	}
	if err == nil && machines != nil && !slices.Equal(words[2:], machines) {
		err = fmt.Errorf("%v: has ranks at %q, not %q", j.head, words[2:], machines)
	}
	if err != nil {
		return errors.Join(err, j.stop())
	}
	j.version = strings.Trim(words[1], "-")
	return nil
}

// errRefused means that the job cannot carry out an order.
var errRefused = errors.New("refused")

// do sends the job an order and returns the words of its answer.
func (j *job) do(order string) ([]string, error) {
	if err := j.head.Tell(order); err != nil {
		return nil, err
	}
	line, err := j.head.Line(orderBound)
	words := strings.Fields(line)
	switch {
	case err != nil:
		return nil, fmt.Errorf("order %q: %w", order, err)
	case len(words) > 0 && words[0] == "no":
		return nil, fmt.Errorf("%w: %s", errRefused, strings.Join(words[1:], " "))
	case len(words) == 0 || words[0] != "ok":
		return nil, fmt.Errorf("%v: order %q: said %q", j.head, order, strings.Join(words, " "))
	}
	return words[1:], nil
}

// time makes the job repeat a call count times.
func (j *job) time(s *scenario, f figure, root, count int) (took []float64, late float64, err error) {
	words, err := j.do(f.order(s, root, count))
	if err != nil {
		return nil, 0, err
	}
	var ns []float64
	for _, w := range words {
		v, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("%v: said %q for a time", j.head, w)
		}
		ns = append(ns, v)
	}
	if len(ns) != count+1 {
		return nil, 0, fmt.Errorf("%v: answered with %d times, want %d", j.head, len(ns), count+1)
	}
	return ns[1:], ns[0] / 1e6, nil
}

// stop ends the job: rank 0 tells the others.
func (j *job) stop() error { return errors.Join(j.head.Stop(), j.end()) }
