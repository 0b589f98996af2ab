package submit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	waitStep = time.Second      // between two queries for hosts
	findTime = 30 * time.Second // after which no other hosts are looked for in place of those that refuse a profile's job
)

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
	var waiting time.Time // since when; zero: it does not wait
	start := time.Now()
	until := start.Add(j.Wait)
	var without, occupied []overlay.NodeID
	for {
		a := attempt(ctx, g, j, without, waiting, until)
		occupied = append(occupied, a.occupied...)
		if a.err != nil && j.Profile != nil && len(a.refused) > 0 && len(without) < maxRefusals && later(a.err) && time.Since(start) < max(findTime, j.Wait) {
			// The hosts were chosen before they were asked; others may accept.
			without = append(without, a.refused...)
			continue
		}
		queued := j.Queue && len(occupied) > 0
		if a.err == nil || !later(a.err) || !queued && !time.Now().Before(until) {
			return a.result, a.err
		}
		if !queued {
			occupied = nil
		}
		if waiting.IsZero() {
			waiting = time.Now()
		}
		if err := wait(ctx, j, a.err, occupied, until); err != nil {
			return nil, err
		}
		without, occupied = nil, nil
	}
}

// attempted is what came of a submission.
type attempted struct {
	result   *Result
	refused  []overlay.NodeID // the hosts that refused the job, or did not answer
	occupied []overlay.NodeID // those without room that would have it, but for the jobs that run there
	err      error
}

// attempt makes one submission, without the hosts in without, of a job that waits since a time, at most until
// another; zero: it does not.
func attempt(ctx context.Context, g *Grid, j *Job, without []overlay.NodeID, waiting, until time.Time) (a attempted) {
	p, err := find(ctx, g, j, without)
	if err != nil {
		return attempted{err: err}
	}
	if !waiting.IsZero() {
		p.waited = time.Since(waiting)
	}
	book := bookTime
	if left := time.Until(until); j.Wait > 0 && left < book {
		book = max(left, answerTime)
	}
	d, err := newDriver(g, j, p, book)
	if err != nil {
		return attempted{err: err}
	}
	a.result, err = d.run(ctx)
	a.err = staleIf(p.stale, err)
	a.refused = d.sub.Dead()
	for node, why := range d.sub.Refusals() {
		a.refused = append(a.refused, node)
		if why == reserve.Busy || why == reserve.Memory || why == reserve.CPU {
			a.occupied = append(a.occupied, node)
		}
	}
	if _, err := p.plan(); err != nil {
		a.occupied = nil // not even all hosts would do
	}
	return a
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
	for {
		p, hosts, err := choose(ctx, g, j, without)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if !slices.ContainsFunc(hosts, returning) || !missing(p, err) {
			return p, err
		}
		sleep.For(ctx, returnPause) // if that ends, the next turn says so
	}
}

// choose queries the hosts and decides how to place the job on them, once. It also returns the hosts.
func choose(ctx context.Context, g *Grid, j *Job, without []overlay.NodeID) (*placement, []Host, error) {
	hosts, stale, err := g.Hosts(ctx)
	if err != nil {
		return nil, nil, err
	}
	hosts = slices.DeleteFunc(hosts, func(h Host) bool { return slices.Contains(without, h.Node) })
	hosts = g.Measure(ctx, hosts, j.enough)
	var between network
	if latency, bandwidth := neededMeasurements(j); latency || bandwidth {
		between = g.measureLinks(ctx, hosts, bandwidth, func(have, need int) {
			if j.Progress != nil {
				j.Progress(Progress{Step: "measuring", Have: have, Need: need})
			}
		})
	}
	p, err := place(j, hosts, between)
	if err != nil {
		return nil, hosts, staleIf(stale, err)
	}
	p.stale = stale
	return p, hosts, nil
}

// A session that a helper has lost is there again in a moment, for instance when its site's profile has changed. A job
// that has too few hosts without it does not fail for that.
const (
	returnTime  = 2 * time.Second // how long a host that is away may be about to return
	returnPause = 100 * time.Millisecond
)

func returning(h Host) bool { return h.State == stateAway && h.Silent < returnTime }

// missing reports whether a job has too few hosts.
func missing(p *placement, err error) bool {
	if err == nil {
		_, err = p.plan()
	}
	return err != nil && later(err)
}

// later reports whether a failed job may succeed when more hosts, or the daemons that list them,
// are available.
func later(err error) bool {
	var few *TooFew
	var short *allocate.Shortage
	return errors.As(err, &few) || errors.As(err, &short) || unlisted(err)
}

// unlisted reports whether the list of hosts was unavailable.
func unlisted(err error) bool {
	if _, none := errors.AsType[*NoHelper](err); none {
		return true
	}
	list, none := errors.AsType[*NoList](err)
	return none && errors.Is(list, overlay.ErrUnreachable)
}

// wait waits for waitStep, and reports the reason as progress. It waits for the hosts in occupied, if
// there are any, and otherwise for more hosts, which it does at most until a time.
func wait(ctx context.Context, j *Job, err error, occupied []overlay.NodeID, until time.Time) error {
	p := Progress{Step: "waiting", Need: j.Place.Processes(), Who: "more hosts", Left: max(time.Until(until), 1)}
	step := min(waitStep, time.Until(until))
	var few *TooFew
	var short *allocate.Shortage
	switch {
	case len(occupied) > 0:
		p.Who, p.Left, step = "other jobs on "+namesOf(occupied)+" to end", 0, waitStep
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
	case <-time.After(step):
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

// namesOf names some of the hosts, in order.
func namesOf(nodes []overlay.NodeID) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.String())
	}
	slices.Sort(names)
	return someOf(names)
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
	plan, err := p.plan()
	return plan, staleIf(p.stale, err)
}
