package directory

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// If there is a cached answer, a slow broker is not waited for, and its answer counts for the next
// question.
func TestLateBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := overlay.ProcessName{Job: overlay.JobID("late-0123456789abcdef0123456789abcdef"), Rank: 3}
		at := func(generation uint64) *controlpb.AccessPoint {
			return &controlpb.AccessPoint{Process: control.ProcessToPB(name), Generation: generation, Site: "here", Node: "n1"}
		}
		var work sync.WaitGroup
		defer work.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &Resolver{
			who: "frontal", up: func() bool { return true }, now: time.Now, work: &work, ctx: ctx,
			cache: newCache("here", 10, time.Hour), queued: map[overlay.ProcessName]*flight{}, asked: map[overlay.ProcessName]*flight{},
			ask: func(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
				select {
				case <-time.After(2 * time.Second):
					return &controlpb.ResolveResponse{Answers: []*controlpb.Answer{{Point: at(2)}}}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
		}
		ask := func() (Answer, time.Duration) {
			start := time.Now()
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return r.Resolve(short, []Question{{Name: name, Fresh: true}})[0], time.Since(start)
		}
		if a, took := ask(); !errors.Is(a.Err, overlay.ErrTimeout) || took != time.Second {
			t.Errorf("nothing is known: %v after %v", a.Err, took)
		}
		r.Remember(Answer{Name: name, Point: at(1)})
		if a, took := ask(); a.Err != nil || a.Point.Generation != 1 || took != lateAfter {
			t.Errorf("%v, %v after %v", a.Point, a.Err, took)
		}
		synctest.Wait()
		time.Sleep(5 * time.Second) // the broker has answered
		if a, ok := r.Cached(name); !ok || a.Point.Generation != 2 {
			t.Errorf("remembered: %v, %v", a.Point, ok)
		}
		if n := r.Counters().Late; n != 1 {
			t.Errorf("%d answers were late", n)
		}
	})
}
