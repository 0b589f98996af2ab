package probe

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/rtt"
)

// patience says how long to wait for reflectors. Nothing is known of the path before one has answered, and it may be a
// satellite's; then the waits that are under way follow its round trip, so that what is filtered does not take long on
// a short path. Safe for concurrent use.
type patience struct {
	mu    sync.Mutex // guards the fields below
	path  rtt.Estimate
	waits map[*wait]struct{}
}

// wait is one wait under way.
type wait struct {
	begun time.Time
	long  func(rtt.Estimate) time.Duration
	timer *time.Timer
}

func newPatience() *patience { return &patience{waits: map[*wait]struct{}{}} }

// estimate returns what is known of the path.
func (p *patience) estimate() rtt.Estimate {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path
}

// took records a round trip.
func (p *patience) took(trip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = p.path.Add(trip)
	for w := range p.waits {
		if w.timer.Stop() {
			w.timer.Reset(time.Until(w.begun.Add(w.long(p.path))))
		}
	}
}

// after calls f on a goroutine of its own when a wait is over that is so long on the path. stop ends it without that.
func (p *patience) after(long func(rtt.Estimate) time.Duration, f func()) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &wait{begun: time.Now(), long: long, timer: time.AfterFunc(long(p.path), f)}
	p.waits[w] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waits, w)
		w.timer.Stop()
	}
}

// call returns how long a call-back may take.
func (p *patience) call() time.Duration { return callTime + callTrips*p.estimate().SRTT }

// context returns one that also ends, with os.ErrDeadlineExceeded as its cause, when an answer may be missing that takes
// so many round trips.
func (p *patience) context(ctx context.Context, trips int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := p.after(func(e rtt.Estimate) time.Duration { return max(viewTime, e.Answer(trips)) }, func() { cancel(os.ErrDeadlineExceeded) })
	return ctx, func() { stop(); cancel(nil) }
}

// again returns a channel that is closed when the n-th datagram of several needs no longer be waited for, counted from 0.
func (p *patience) again(n int) (over <-chan struct{}, stop func()) {
	done := make(chan struct{})
	return done, p.after(func(e rtt.Estimate) time.Duration { return max(stunWait, e.RTO(n)) }, sync.OnceFunc(func() { close(done) }))
}
