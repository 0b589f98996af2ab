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

// maxAwait bounds how long a helper may wait in one call.
const maxAwait = 10 * time.Minute

// awaits holds the processes that helpers wait for: one call to the broker
// for each, however many wait. Their number is that of Frontal.waits at most.
type awaits struct {
	mu      sync.Mutex // guards flights and what is in them
	flights map[overlay.ProcessName]*awaiting
}

// awaiting is one process that somebody waits for.
type awaiting struct {
	waiters int
	cancel  context.CancelFunc // when nobody waits any more
	done    chan struct{}      // closed when answer is set
	answer  answer
}

// waiting counts a call that waits as its node's until done.
func (f *Frontal) waiting(id control.Identity) (done func(), err error) {
	if err := f.waits.Take(id.Name, 1); err != nil {
		f.auditRefusal(id.String(), "waits", err)
		return nil, fmt.Errorf("%s: %w", f.who, err)
	}
	return func() { f.waits.Give(id.Name, 1) }, nil
}

// await returns the answer about a process as soon as there is one. When ctx
// ends it fails with overlay.ErrUnknownProcess, or with ErrUnreachable if the
// broker is away.
func (f *Frontal) await(ctx context.Context, name overlay.ProcessName) answer {
	start := time.Now()
	if a, ok := f.known(name); ok {
		return a
	}
	w := f.joinAwait(name)
	select {
	case <-w.done:
		return w.answer
	case <-ctx.Done():
	}
	f.leaveAwait(name, w)
	if !f.up.Up() {
		return answer{name: name, err: f.up.Away()}
	}
	return answer{name: name, err: fmt.Errorf("%s: %w: %v did not start within %v", f.who, overlay.ErrUnknownProcess, name, time.Since(start).Round(time.Millisecond))}
}

func (f *Frontal) joinAwait(name overlay.ProcessName) *awaiting {
	f.awaits.mu.Lock()
	defer f.awaits.mu.Unlock()
	w := f.awaits.flights[name]
	if w == nil {
		ctx, cancel := context.WithCancel(f.ctx)
		w = &awaiting{cancel: cancel, done: make(chan struct{})}
		f.awaits.flights[name] = w
		f.work.Go(func() { f.runAwait(ctx, name, w) })
	}
	w.waiters++
	return w
}

func (f *Frontal) leaveAwait(name overlay.ProcessName, w *awaiting) {
	f.awaits.mu.Lock()
	defer f.awaits.mu.Unlock()
	if w.waiters--; w.waiters == 0 {
		w.cancel()
		if f.awaits.flights[name] == w {
			delete(f.awaits.flights, name)
		}
	}
}

// runAwait asks the broker, again and again, until there is an answer or
// nobody waits for it. It ends with ctx.
func (f *Frontal) runAwait(ctx context.Context, name overlay.ProcessName, w *awaiting) {
	defer w.cancel()
	a := answer{name: name}
	for {
		if a = f.awaitOnce(ctx, name); a.err == nil || ctx.Err() != nil {
			break
		}
		if !errors.Is(a.err, overlay.ErrUnknownProcess) && !uplink.IsAway(a.err) {
			break
		}
		// A broker that answers at once instead of waiting must not make this a
		// busy loop.
		if !pause(ctx, 50*time.Millisecond) {
			break
		}
	}
	f.resolver.remember(a)
	f.awaits.mu.Lock()
	defer f.awaits.mu.Unlock()
	w.answer = a
	if f.awaits.flights[name] == w {
		delete(f.awaits.flights, name)
	}
	close(w.done)
}

func (f *Frontal) awaitOnce(ctx context.Context, name overlay.ProcessName) answer {
	resp, err := f.up.AwaitProcess(ctx, name)
	if err != nil {
		return answer{name: name, err: err}
	}
	return f.resolver.read(name, resp, nil)
}

// pause waits for d and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// known answers without the broker: from the registry for a process of this
// site whose helper speaks for it, else from the cache.
func (f *Frontal) known(name overlay.ProcessName) (answer, bool) {
	if a, ok := f.local(name); ok {
		return a, true
	}
	return f.resolver.cached(name)
}

func (f *Frontal) local(name overlay.ProcessName) (answer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.registry.confirmed(name)
	if !ok {
		return answer{}, false
	}
	return answer{name: name, point: control.PointToPB(p)}, true
}
