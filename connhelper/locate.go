package connhelper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/race"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// askedBefore reports whether p was connected to rank already, and records that it asks now.
func (p *process) askedBefore(rank uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.again[rank]
	p.again[rank] = true
	return before
}

// locate asks the directory where a process is, and waits until the process starts.
func (d *dialler) locate(ctx context.Context, name overlay.ProcessName, fresh bool) (target, error) {
	start, unknown := time.Now(), false
	var away error // why the latest question could not be answered
	for {
		f, err := d.uplink.frontal(ctx)
		if err != nil {
			return target{}, err
		}
		asked, left := time.Now(), timeLeft(ctx)
		wait := min(awaitStep, left-max(answerMargin, left/8)) // leaves time for the answer to arrive
		answer, err := ask(ctx, f, name, fresh, wait)
		unknown = unknown || errors.Is(err, overlay.ErrUnknownProcess)
		switch {
		case err == nil:
			return readAnswer(answer)
		case errors.Is(ctx.Err(), context.Canceled):
			return target{}, ctx.Err()
		case (errors.Is(err, overlay.ErrUnknownProcess) || errors.Is(err, overlay.ErrOverloaded)) && timeLeft(ctx) > answerMargin:
			// A frontal of the version before has not waited, nor has one for which too many dials wait: ask now and then.
			f.wait(ctx, min(minAwaitPause+rand.N(minAwaitPause), time.Until(asked.Add(wait))))
		case errors.Is(err, overlay.ErrUnknownProcess), unknown && isLate(ctx, err):
			return target{}, fmt.Errorf("%w: waited %v for it to start; it has not registered with any helper",
				overlay.ErrUnknownProcess, time.Since(start).Round(10*time.Millisecond))
		case errors.Is(err, overlay.ErrUnreachable) && ctx.Err() == nil:
			away = err
			if !f.wait(ctx, 250*time.Millisecond) { // the session is gone, or the broker is: both come back
				return target{}, err
			}
		case away != nil && isLate(ctx, err):
			return target{}, away
		default:
			return target{}, fmt.Errorf("asking where it is: %w", err)
		}
	}
}

// wait pauses before a question is repeated, unless the session ends first. It returns false if ctx
// ends.
func (f *frontal) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.session.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// ask sends one question; the frontal waits so long for the process to register.
func ask(ctx context.Context, f *frontal, name overlay.ProcessName, fresh bool, wait time.Duration) (*controlpb.Answer, error) {
	r, err := f.directory().Resolve(ctx, &controlpb.ResolveRequest{
		Questions: []*controlpb.Question{{Process: control.ProcessToPB(name), Fresh: fresh}}, WaitMs: uint32(max(wait.Milliseconds(), 1)),
	})
	if err != nil {
		return nil, control.FromStatus(err)
	}
	if len(r.Answers) != 1 {
		return nil, fmt.Errorf("%v gave %d answers to one question", f.session.Peer(), len(r.Answers))
	}
	return r.Answers[0], control.FaultErr(r.Answers[0].Fault)
}

// minAwaitPause is the minimum pause between two questions about a process for which the frontal does not wait.
const minAwaitPause = 500 * time.Millisecond

// answerMargin is the minimum time allowed for an answer to return.
const answerMargin = 50 * time.Millisecond

// isLate reports whether err says that an answer did not arrive before ctx's deadline, as on a busy
// machine: what was answered before then counts.
func isLate(ctx context.Context, err error) bool {
	return errors.Is(err, overlay.ErrTimeout) && timeLeft(ctx) <= answerMargin
}

// timeLeft returns the time until ctx's deadline.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return maxBudget
	}
	return time.Until(deadline)
}

func readAnswer(a *controlpb.Answer) (target, error) {
	point, err := control.PointFromPB(a.Point)
	if err != nil {
		return target{}, fmt.Errorf("the directory's answer: %w", err)
	}
	if a.PlanIfNew == nil { // the broker makes no plan for a site with itself
		return target{point: point, plan: planInside(point)}, nil
	}
	plan, err := control.PlanFromPB(a.PlanIfNew)
	if err != nil {
		return target{}, fmt.Errorf("the directory's answer: %w", err)
	}
	return target{point: point, plan: plan, digest: a.Plan, memory: readMemory(a.Memory)}, nil
}

func readMemory(m *controlpb.Memory) memory {
	out := memory{barred: map[overlay.Technique]string{}, inferior: map[overlay.Technique]string{}}
	if t, err := control.TechniqueFromPB(m.GetWinner()); err == nil {
		out.winner = race.DialResult{Technique: t, Took: time.Duration(m.GetSetupUs()) * time.Microsecond}
	}
	for _, b := range m.GetBarred() {
		t, err := control.TechniqueFromPB(b.Technique)
		switch {
		case err != nil:
		case b.Inferior:
			out.inferior[t] = b.Reason
		default:
			out.barred[t] = b.Reason
		}
	}
	return out
}

// planInside returns the plan for two nodes of one site: they reach each other unless the target
// found no free port in the site's range.
func planInside(point overlay.AccessPoint) overlay.Plan {
	site := point.Node.Site
	p := overlay.Plan{Asker: site, Target: site}
	if point.Local.IsValid() {
		p.Steps = append(p.Steps, overlay.Step{Technique: overlay.Direct, Reason: "both processes run at " + string(site)})
	} else {
		p.Rejected = append(p.Rejected, overlay.Rejection{Technique: overlay.Direct, Reason: fmt.Sprintf("%v found no free port in the site's range", point.Node)})
	}
	p.Steps = append(p.Steps,
		overlay.Step{Technique: overlay.Reversed, Reason: fmt.Sprintf("%v cannot be dialled, but can dial", point.Node)},
		overlay.Step{Technique: overlay.Relay, Reason: fmt.Sprintf("nodes of %s do not reach each other", site)})
	return p
}
