package submit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/overlay"
)

// waitStep is the interval between two queries for hosts.
const waitStep = time.Second

// maxRefusals bounds the hosts that may refuse a profile's job before it is no longer matched with
// others.
const maxRefusals = 64

// Run starts a job on hosts of the grid and returns when all its processes have ended. The error
// says why the job could not be started, or is that of package ranks: an *ranks.ExitError of the
// process that failed first, or a *ranks.SignalError. The end of ctx ends the job.
//
// At the first of Job.Signals, processes get SIGTERM and, 2 s later or at the second one, SIGKILL.
func Run(ctx context.Context, g *Grid, j *Job) (*Result, error) {
	if err := j.Check(); err != nil {
		return nil, err
	}
	until := time.Now().Add(j.Wait)
	var without []overlay.NodeID
	for {
		r, refused, err := attempt(ctx, g, j, without)
		if err != nil && j.Profile != nil && len(refused) > 0 && len(without) < maxRefusals && later(err) {
			// The hosts were chosen before they were asked; others may accept.
			without = append(without, refused...)
			continue
		}
		without = nil
		if err == nil || !time.Now().Before(until) || !later(err) {
			return r, err
		}
		if err := wait(ctx, j, err, until); err != nil {
			return nil, err
		}
	}
}

// attempt makes one submission, without the hosts in without; refused are those that refused the
// job.
func attempt(ctx context.Context, g *Grid, j *Job, without []overlay.NodeID) (r *Result, refused []overlay.NodeID, err error) {
	p, err := find(ctx, g, j, without)
	if err != nil {
		return nil, nil, err
	}
	d, err := newDriver(g, j, p)
	if err != nil {
		return nil, nil, err
	}
	r, err = d.run(ctx)
	refused = d.sub.Dead()
	for node := range d.sub.Refusals() {
		refused = append(refused, node)
	}
	return r, refused, err
}

// find queries the hosts and decides how to place the job on them, except those in without. A
// signal ends it.
func find(ctx context.Context, g *Grid, j *Job, without []overlay.NodeID) (*placement, error) {
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
	var between network
	if err == nil {
		hosts = slices.DeleteFunc(hosts, func(h Host) bool { return slices.Contains(without, h.Node) })
		hosts = g.Measure(ctx, hosts)
		if latency, bandwidth := neededMeasurements(j); latency || bandwidth {
			between = g.measureLinks(ctx, hosts, bandwidth, func(have, need int) {
				if j.Progress != nil {
					j.Progress(Progress{Step: "measuring", Have: have, Need: need})
				}
			})
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	return place(j, hosts, between)
}

// later reports whether a failed job may succeed when more hosts, or the daemons that list them,
// are available.
func later(err error) bool {
	var few *TooFew
	var short *allocate.Shortage
	return errors.As(err, &few) || errors.As(err, &short) || unlisted(err)
}

// unlisted reports whether the list of hosts was unavailable.
func unlisted(err error) bool { return status.Code(err) == codes.Unavailable }

// wait waits for waitStep, and reports the reason as progress.
func wait(ctx context.Context, j *Job, err error, until time.Time) error {
	p := Progress{Step: "waiting", Need: j.Place.Processes(), Who: "more hosts", Left: time.Until(until)}
	var few *TooFew
	var short *allocate.Shortage
	switch {
	case unlisted(err):
		p.Who = "the list of hosts"
	case errors.As(err, &few):
		p.Have, p.Need, p.Who = few.Have, few.Need, few.refusals()
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

// Plan returns where the job would run by the current offers; it books nothing.
func Plan(ctx context.Context, g *Grid, j *Job) (*allocate.Plan, error) {
	if err := j.Place.Check(); err != nil {
		return nil, err
	}
	p, err := find(ctx, g, j, nil)
	if err != nil {
		return nil, err
	}
	return p.plan()
}
