package submit

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
)

// waitStep is how long to wait until the grid is asked for hosts again.
const waitStep = time.Second

// Run brings a job onto hosts of the grid and returns when all its processes have ended.
// The error says why the job could not be started, or is that of package ranks: an
// *ranks.ExitError of the process that failed first, or a *ranks.SignalError. The end of
// ctx ends the job.
//
// At the first of Job.Signals, processes get SIGTERM and, 2 s later or at the second one,
// SIGKILL.
func Run(ctx context.Context, g *Grid, j *Job) (*Result, error) {
	if err := j.Check(); err != nil {
		return nil, err
	}
	until := time.Now().Add(j.Wait)
	for {
		r, err := attempt(ctx, g, j)
		if err == nil || !time.Now().Before(until) || !later(err) {
			return r, err
		}
		if err := wait(ctx, j, err, until); err != nil {
			return nil, err
		}
	}
}

// attempt is one submission.
func attempt(ctx context.Context, g *Grid, j *Job) (*Result, error) {
	p, err := find(ctx, g, j)
	if err != nil {
		return nil, err
	}
	d, err := newDriver(g, j, p)
	if err != nil {
		return nil, err
	}
	return d.run(ctx)
}

// find asks which hosts there are, and decides how to place the job on them. A signal
// ends it.
func find(ctx context.Context, g *Grid, j *Job) (*placement, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	found := make(chan struct{})
	watched := make(chan struct{})
	go func() { // ends with find
		defer close(watched)
		select {
		case s := <-j.Signals:
			if sig, ok := s.(syscall.Signal); ok {
				cancel(&ranks.SignalError{Signal: sig})
			}
		case <-found:
		}
	}()
	defer func() {
		close(found)
		<-watched
	}()
	if j.Progress != nil {
		j.Progress(Progress{Step: "listing"})
	}
	hosts, err := g.Hosts(ctx)
	if err == nil {
		hosts = g.Measure(ctx, hosts)
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	return place(j, hosts, nil)
}

// later reports whether a job that failed may succeed when more hosts are there.
func later(err error) bool {
	var few *TooFew
	var short *allocate.Shortage
	return errors.As(err, &few) || errors.As(err, &short)
}

// wait waits a moment, and says for what.
func wait(ctx context.Context, j *Job, err error, until time.Time) error {
	p := Progress{Step: "waiting", Need: j.Place.Processes(), Who: "more hosts", Left: time.Until(until)}
	var few *TooFew
	var short *allocate.Shortage
	switch {
	case errors.As(err, &few):
		p.Have, p.Need, p.Who = few.Have, few.Need, few.who()
	case errors.As(err, &short):
		p.Have, p.Need = short.Have, short.Need
	}
	if j.Progress != nil {
		j.Progress(p)
	}
	select {
	case <-time.After(min(waitStep, time.Until(until))):
		return nil
	case s := <-j.Signals:
		if sig, ok := s.(syscall.Signal); ok {
			return &ranks.SignalError{Signal: sig}
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the job was ended: %w", context.Cause(ctx))
	}
}

// Plan says where the job would run, by what hosts offer now; nothing is booked.
func Plan(ctx context.Context, g *Grid, j *Job) (*allocate.Plan, error) {
	if err := j.Place.Check(); err != nil {
		return nil, err
	}
	p, err := find(ctx, g, j)
	if err != nil {
		return nil, err
	}
	return p.plan()
}
