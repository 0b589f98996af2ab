package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Hooks are how a daemon's Serve takes part in the life of its process beyond
// start and end: new settings, draining, and handing its sockets over to a
// successor. [HooksOf] finds them. Safe for concurrent use.
//
//	SIGHUP   read the settings again         OnReload
//	SIGUSR1  take no new work, end when idle Draining
//	SIGUSR2  start a successor, then drain   Socket, Draining, LetGo, Returned
type Hooks struct {
	mu       sync.Mutex // guards the fields below
	reload   []reloadHook
	changed  []func(Change)
	drains   bool // somebody looks at draining
	succeed  bool // what is drained has a successor
	draining chan struct{}
	until    time.Time // when what is left of the draining daemon's work is cut
	what     string    // such work is counted in; "" when nobody counts
	count    func() int
	cut      int // as many were left then

	sockets   handover      // what a successor is given
	inherited *inheritance  // from a predecessor; nil without one
	activated *activation   // from the service manager; nil without any
	letGo     chan struct{} // closed by LetGo
	returned  chan Returned
}

func newHooks(inherited *inheritance, activated *activation) *Hooks {
	return &Hooks{
		draining: make(chan struct{}), inherited: inherited, activated: activated, letGo: make(chan struct{}),
		returned: make(chan Returned, maxReturned),
	}
}

type hooksKey struct{}

func (h *Hooks) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, hooksKey{}, h)
}

// HooksOf returns the hooks of the process in which a Serve runs, whose context
// ctx is or comes from. Elsewhere, as in a test that calls a Serve by itself,
// they are there and nothing ever happens on them.
func HooksOf(ctx context.Context) *Hooks {
	if h, ok := ctx.Value(hooksKey{}).(*Hooks); ok {
		return h
	}
	return newHooks(nil, nil)
}

// reloadHook is one registration of OnReload.
type reloadHook struct {
	keys    []string
	prepare func(settings any) (apply func(), err error)
}

// OnReload has prepare called with the whole new settings whenever the process
// is told to read them again (SIGHUP). It must only look, at files that the
// settings name too, and return what puts the new state into effect. An error
// of any hook means that nothing of the new settings takes effect. The keys,
// as in "limits" or "tls.cert", are those that the hook takes over; one stands
// for all below it. What no hook takes over is reported to need a restart.
// prepare is called also when no key changed, since files may have, and never
// twice at a time. C is the settings' type of the [Spec].
func OnReload[C any](ctx context.Context, keys []string, prepare func(C) (apply func(), err error)) {
	h := HooksOf(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reload = append(h.reload, reloadHook{keys, func(settings any) (func(), error) {
		own, ok := settings.(C)
		if !ok {
			return nil, fmt.Errorf("a hook wants settings of type %T, the daemon has %T", own, settings)
		}
		return prepare(own)
	}})
}

// Change is a key of the settings whose value in the file became another one.
type Change struct {
	Key     string
	Was, Is string // as in the file
	Now     bool   // it took effect; else it will after a restart
}

// OnChange has noted called for every changed key, in the settings' order, after
// new settings were put into effect.
func OnChange(ctx context.Context, noted func(Change)) {
	h := HooksOf(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = append(h.changed, noted)
}

func (h *Hooks) announce(c Change) {
	h.mu.Lock()
	all := slices.Clone(h.changed)
	h.mu.Unlock()
	for _, noted := range all {
		noted(c)
	}
}

// live reports whether a hook takes over a key.
func (h *Hooks) live(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.reload, func(r reloadHook) bool { return covers(r.keys, key) })
}

// covers reports whether a key is one of keys or below one.
func covers(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
}

// prepare asks all hooks, and returns what puts their new states into effect.
func (h *Hooks) prepare(settings any) (apply func(), err error) {
	h.mu.Lock()
	hooks := slices.Clone(h.reload)
	h.mu.Unlock()
	var all []func()
	var errs []error
	for _, r := range hooks {
		do, err := r.prepare(settings)
		if err != nil {
			errs = append(errs, err)
		} else if do != nil {
			all = append(all, do)
		}
	}
	return func() {
		for _, do := range all {
			do()
		}
	}, errors.Join(errs...)
}

// Draining is closed when the daemon is to take no new work and to return from
// Serve once it has none left; after drain_grace its context ends as well. Who
// asks for it can drain; a daemon in which nobody does is ended instead.
func (h *Hooks) Draining() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drains = true
	return h.draining
}

// CountWork says what a daemon that drains still has at hand, for who waits for
// its end: count returns how many of what, as in "links", from any goroutine.
func (h *Hooks) CountWork(what string, count func() int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.what, h.count = what, count
}

// progress is what is left to do, and when that is cut.
func (h *Hooks) progress() Progress {
	h.mu.Lock()
	count, p := h.count, Progress{What: h.what, Until: h.until, Cut: h.cut}
	h.mu.Unlock()
	if count != nil {
		p.Left = count() // may take locks of the daemon
	}
	return p
}

// cutAt notes when what is left is cut.
func (h *Hooks) cutAt(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = t
}

// cutNow notes how much is cut.
func (h *Hooks) cutNow() {
	left := h.progress().Left
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = left
}

// Succeeds reports whether this process takes over from a predecessor, which has
// what only one process can have until ready returns.
func (h *Hooks) Succeeds() bool { return h.inherited != nil }

// Succeeded reports whether the daemon drains because a successor has its
// sockets. Then it must stop accepting at once and call LetGo.
func (h *Hooks) Succeeded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.succeed
}

// LetGo says that this process accepts nothing any more: its successor, which
// waits in ready for that, begins. Calls after the first do nothing.
func (h *Hooks) LetGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.letGo:
	default:
		close(h.letGo)
	}
}

// drain closes draining once, and reports whether somebody looks at it.
func (h *Hooks) drain(successor bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.drains {
		return false
	}
	select {
	case <-h.draining:
	default:
		h.succeed = successor
		close(h.draining)
	}
	return true
}

func (h *Hooks) isDraining() bool {
	select {
	case <-h.draining:
		return true
	default:
		return false
	}
}
