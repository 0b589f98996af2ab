package directory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Awaits holds the processes that helpers wait for. There is one call to the broker for each
// process, regardless of the number of waiters. Callers bound that number.
type Awaits struct {
	who      string // for errors
	registry *Registry
	resolver *Resolver
	up       *uplink.Set
	work     *sync.WaitGroup // of the frontal: the goroutines that call the broker
	ctx      context.Context // of the frontal

	mu      sync.Mutex // guards flights and their fields
	flights map[overlay.ProcessName]*awaiting
}

// NewAwaits returns an empty Awaits for a frontal. Its calls end with ctx and are part of work.
func NewAwaits(ctx context.Context, work *sync.WaitGroup, who string, r *Registry, c *Resolver, up *uplink.Set) *Awaits {
	return &Awaits{who: who, registry: r, resolver: c, up: up, work: work, ctx: ctx, flights: make(map[overlay.ProcessName]*awaiting)}
}

// awaiting is one process with at least one waiter.
type awaiting struct {
	waiters int
	cancel  context.CancelFunc // when no waiter is left
	done    chan struct{}      // closed when answer is set
	answer  Answer
}

// Await returns the answer about a process as soon as there is one. When ctx ends, it fails with
// overlay.ErrUnknownProcess, or with ErrUnreachable if the broker is unreachable.
func (w *Awaits) Await(ctx context.Context, name overlay.ProcessName) Answer {
	start := time.Now()
	if a, ok := w.answerLocally(name); ok {
		return a
	}
	one := w.join(name)
	select {
	case <-one.done:
		return one.answer
	case <-ctx.Done():
	}
	w.leave(name, one)
	if !w.up.Up() {
		return Answer{Name: name, Err: w.up.Away()}
	}
	return Answer{Name: name, Err: fmt.Errorf("%s: %w: %v did not start within %v", w.who, overlay.ErrUnknownProcess, name, time.Since(start).Round(time.Millisecond))}
}

func (w *Awaits) join(name overlay.ProcessName) *awaiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.flights[name]
	if one == nil {
		ctx, cancel := context.WithCancel(w.ctx)
		one = &awaiting{cancel: cancel, done: make(chan struct{})}
		w.flights[name] = one
		w.work.Go(func() { w.run(ctx, name, one) })
	}
	one.waiters++
	return one
}

func (w *Awaits) leave(name overlay.ProcessName, one *awaiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.waiters--; one.waiters == 0 {
		one.cancel()
		if w.flights[name] == one {
			delete(w.flights, name)
		}
	}
}

// minAwaitPause is the minimum pause between two questions about a process for which the broker does not wait.
const minAwaitPause = 500 * time.Millisecond

// run calls the broker repeatedly until there is an answer or no waiter is left. It ends with ctx.
func (w *Awaits) run(ctx context.Context, name overlay.ProcessName, one *awaiting) {
	defer one.cancel()
	a := Answer{Name: name}
	for {
		w.up.Await(ctx)
		asked := time.Now()
		a = w.resolver.call(ctx, []*flight{{name: name}}, map[uint64]*controlpb.Plan{}, uplink.AwaitChunk)[0]
		waits := errors.Is(a.Err, overlay.ErrUnknownProcess) || errors.Is(a.Err, overlay.ErrOverloaded)
		if ctx.Err() != nil || !waits && !uplink.IsAway(a.Err) {
			break
		}
		pause := 50 * time.Millisecond
		if waits { // a broker of the version before does not wait, nor does one for which too many wait: ask now and then
			pause = max(pause, min(minAwaitPause+rand.N(minAwaitPause), time.Until(asked.Add(uplink.AwaitChunk))))
		}
		if sleep.For(ctx, pause) != nil {
			break
		}
	}
	w.resolver.Remember(a)
	w.mu.Lock()
	defer w.mu.Unlock()
	one.answer = a
	if w.flights[name] == one {
		delete(w.flights, name)
	}
	close(one.done)
}

// answerLocally answers without the broker: from the registry if the process belongs to this site
// and its helper is connected, otherwise from the cache.
func (w *Awaits) answerLocally(name overlay.ProcessName) (Answer, bool) {
	if a, ok := w.registry.Local(name); ok {
		return a, true
	}
	return w.resolver.Cached(name)
}

// Local answers from the registry only, about a process of this site whose helper is connected.
func (r *Registry) Local(name overlay.ProcessName) (Answer, bool) {
	p, ok := r.confirmed(name)
	if !ok {
		return Answer{}, false
	}
	return Answer{Name: name, Point: control.PointToPB(p)}, true
}

// Waiters returns the number of waiters for a process.
func (w *Awaits) Waiters(name overlay.ProcessName) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.flights[name]; one != nil {
		return one.waiters
	}
	return 0
}
