package frontal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// awaits holds the processes that helpers wait for: one call to the broker
// for each, however many wait. Its callers bound how many.
type awaits struct {
	who      string // for errors
	registry *registry
	resolver *resolver
	up       *uplink.Set
	work     *sync.WaitGroup // of the frontal: the goroutines that ask
	ctx      context.Context // of the frontal

	mu      sync.Mutex // guards flights and what is in them
	flights map[overlay.ProcessName]*awaiting
}

func newAwaits(ctx context.Context, work *sync.WaitGroup, who string, r *registry, c *resolver, up *uplink.Set) *awaits {
	return &awaits{who: who, registry: r, resolver: c, up: up, work: work, ctx: ctx, flights: make(map[overlay.ProcessName]*awaiting)}
}

// awaiting is one process that somebody waits for.
type awaiting struct {
	waiters int
	cancel  context.CancelFunc // when nobody waits any more
	done    chan struct{}      // closed when answer is set
	answer  answer
}

// await returns the answer about a process as soon as there is one. When ctx
// ends it fails with overlay.ErrUnknownProcess, or with ErrUnreachable if the
// broker is away.
func (w *awaits) await(ctx context.Context, name overlay.ProcessName) answer {
	start := time.Now()
	if a, ok := w.known(name); ok {
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
		return answer{name: name, err: w.up.Away()}
	}
	return answer{name: name, err: fmt.Errorf("%s: %w: %v did not start within %v", w.who, overlay.ErrUnknownProcess, name, time.Since(start).Round(time.Millisecond))}
}

func (w *awaits) join(name overlay.ProcessName) *awaiting {
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

func (w *awaits) leave(name overlay.ProcessName, one *awaiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.waiters--; one.waiters == 0 {
		one.cancel()
		if w.flights[name] == one {
			delete(w.flights, name)
		}
	}
}

// run asks the broker, again and again, until there is an answer or
// nobody waits for it. It ends with ctx.
func (w *awaits) run(ctx context.Context, name overlay.ProcessName, one *awaiting) {
	defer one.cancel()
	a := answer{name: name}
	for {
		if a = w.once(ctx, name); a.err == nil || ctx.Err() != nil {
			break
		}
		if !errors.Is(a.err, overlay.ErrUnknownProcess) && !uplink.IsAway(a.err) {
			break
		}
		// A broker that answers at once instead of waiting must not make this a
		// busy loop.
		if !uplink.Pause(ctx, 50*time.Millisecond) {
			break
		}
	}
	w.resolver.remember(a)
	w.mu.Lock()
	defer w.mu.Unlock()
	one.answer = a
	if w.flights[name] == one {
		delete(w.flights, name)
	}
	close(one.done)
}

func (w *awaits) once(ctx context.Context, name overlay.ProcessName) answer {
	resp, err := w.up.AwaitProcess(ctx, name)
	if err != nil {
		return answer{name: name, err: err}
	}
	return w.resolver.read(name, resp, nil)
}

// known answers without the broker: from the registry for a process of this
// site whose helper speaks for it, else from the cache.
func (w *awaits) known(name overlay.ProcessName) (answer, bool) {
	if a, ok := w.registry.local(name); ok {
		return a, true
	}
	return w.resolver.cached(name)
}

func (r *registry) local(name overlay.ProcessName) (answer, bool) {
	p, ok := r.confirmed(name)
	if !ok {
		return answer{}, false
	}
	return answer{name: name, point: control.PointToPB(p)}, true
}

// waiters returns how many wait for a process.
func (w *awaits) waiters(name overlay.ProcessName) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.flights[name]; one != nil {
		return one.waiters
	}
	return 0
}
