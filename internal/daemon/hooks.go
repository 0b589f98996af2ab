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

// Hooks let a daemon's Serve take part in the life of its process beyond start and end: new
// settings, draining, and handing its sockets over to a successor. [HooksOf] returns them. Safe for
// concurrent use.
//
//	SIGHUP   read the settings again         OnReload
//	SIGUSR1  take no new work, end when idle Draining
//	SIGUSR2  start a successor, then drain   Socket, Draining, LetGo, Returned
type Hooks struct {
	mu       sync.Mutex // guards the fields below
	reload   []reloadHook
	changed  []func(Change)
	drains   bool // Draining was called
	succeed  bool // a successor takes over what is drained
	draining chan struct{}
	until    time.Time // when the remaining work of the draining daemon is cut
	what     string    // unit of that work; "" if it is not counted
	count    func() int
	cut      int // how many were left then

	sockets   handover      // what a successor inherits
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

// HooksOf returns the hooks of the process in which a Serve runs, from Serve's ctx or one derived
// from it. Elsewhere, as in a test that calls a Serve by itself, it returns hooks on which nothing
// ever happens.
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

// OnReload registers prepare, which is called with the whole new settings whenever the process must
// read them again (SIGHUP). prepare must only validate, including files that the settings name, and
// return a function that puts the new state into effect. An error of any hook means that nothing of
// the new settings takes effect. The keys, as in "limits" or "tls.cert", are those that the hook
// applies; one stands for all below it. A changed key without a hook is reported to need a restart.
// prepare is called also when no key changed, since files may have, and calls do not overlap. C is
// the settings' type of the [Spec].
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

// Change is a key of the settings whose value in the file has changed.
type Change struct {
	Key     string
	Was, Is string // as in the file
	Now     bool   // it took effect; otherwise it needs a restart
}

// OnChange registers noted, which is called for every changed key, in the settings' order, after
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

// live reports whether a hook applies a key.
func (h *Hooks) live(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.reload, func(r reloadHook) bool { return covers(r.keys, key) })
}

// covers reports whether a key is one of keys or below one.
func covers(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
}

// prepare calls all hooks, and returns a function that puts their new states into effect.
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

// Draining returns a channel that is closed when the daemon must take no new work and return from
// Serve once it has none left; after drain_grace its context ends as well. A daemon that never
// calls Draining cannot drain and is ended instead.
func (h *Hooks) Draining() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drains = true
	return h.draining
}

// CountWork registers a count of a draining daemon's remaining work, for display: count returns how
// many of what, as in "links", and may be called from any goroutine.
func (h *Hooks) CountWork(what string, count func() int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.what, h.count = what, count
}

// progress returns what is left to do, and when that is cut.
func (h *Hooks) progress() Progress {
	h.mu.Lock()
	count, p := h.count, Progress{What: h.what, Until: h.until, Cut: h.cut}
	h.mu.Unlock()
	if count != nil {
		p.Left = count() // may take locks of the daemon
	}
	return p
}

// cutAt records when the remaining work is cut.
func (h *Hooks) cutAt(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = t
}

// cutNow records how much is cut.
func (h *Hooks) cutNow() {
	left := h.progress().Left
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = left
}

// Succeeds reports whether this process takes over from a predecessor, which keeps what only one
// process can have until ready returns.
func (h *Hooks) Succeeds() bool { return h.inherited != nil }

// Succeeded reports whether the daemon drains because a successor has its sockets. Then it must
// stop accepting at once and call LetGo.
func (h *Hooks) Succeeded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.succeed
}

// LetGo reports that this process has stopped accepting: its successor, which waits in ready for
// that, begins. Calls after the first do nothing.
func (h *Hooks) LetGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.letGo:
	default:
		close(h.letGo)
	}
}

// drain closes draining once, and reports whether Draining was called.
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
