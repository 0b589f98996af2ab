package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// Throttle holds one admitted link to the limits. It is a carrier.Pacer. Safe for concurrent use,
// but each direction by one goroutine at a time.
type Throttle struct {
	limiter    *Limiter
	link       *quota.Admission
	totalBytes func() uint64
	counted    uint64 // the part of totalBytes counted so far, guarded by limiter.mu
	paced      atomic.Bool
	dirs       [2]flow

	stop    sync.Once
	stopped chan struct{}
}

// flow is one direction of a Throttle.
type flow struct {
	granted chan struct{} // holds a value when bytes were granted; created when first needed
	held    Held          // guarded by limiter.mu
}

// Held is how often a direction of a link had to wait for its turn, and the reason of the last
// wait.
type Held struct {
	Waits uint64
	Rule  string     // origin of the rate, as in Throttle.Limit; "" if it never waited
	Rate  quota.Rate // shared by all links under the rule
	At    time.Time  // start of the last wait
}

// Paced reports whether Take may have to wait. The result may change at any time.
func (t *Throttle) Paced() bool { return t.paced.Load() }

// Take waits until some of n bytes may pass in direction dir, 0 or 1, and returns how many. 0 means
// that the link was stopped.
func (t *Throttle) Take(dir, n int) int {
	lim, f, w := t.limiter, t.link.Flow(dir), &t.dirs[dir]
	select {
	case <-t.stopped:
		return 0
	default:
	}
	lim.mu.Lock()
	now := time.Now()
	pass, due := lim.quota.Ask(f, n, now)
	if pass > 0 {
		lim.mu.Unlock()
		return pass
	}
	if w.granted == nil {
		w.granted = make(chan struct{}, 1)
	}
	lim.flows[f] = w
	w.held.Waits++
	w.held.Rate, w.held.Rule = f.WaitsFor()
	w.held.At = now
	lim.look(due)
	lim.mu.Unlock()
	lim.waits.Add(1)

	select {
	case <-w.granted:
		return f.Want()
	case <-t.stopped:
	}
	lim.mu.Lock()
	defer lim.mu.Unlock()
	if lim.quota.Cancel(f) {
		delete(lim.flows, f)
		return 0
	}
	<-w.granted // it came at the same time
	lim.quota.Return(f, f.Want())
	return 0
}

// Pay waits until all n bytes may pass, and reports whether they may: false means that the link was
// stopped.
func (t *Throttle) Pay(dir, n int) bool {
	for n > 0 && t.Paced() {
		pass := t.Take(dir, n)
		if pass == 0 {
			return false
		}
		n -= pass
	}
	return true
}

// Return returns n bytes that Take granted and that did not pass.
func (t *Throttle) Return(dir, n int) {
	t.limiter.mu.Lock()
	t.limiter.quota.Return(t.link.Flow(dir), n)
	t.limiter.mu.Unlock()
}

// Stop ends every Take of the link, now and later.
func (t *Throttle) Stop() { t.stop.Do(func() { close(t.stopped) }) }

// Limit returns the lowest rate that the link is limited to, together with others of its kind, and
// the setting, below quota; 0 and "" if there is none.
func (t *Throttle) Limit() (quota.Rate, string) {
	t.limiter.mu.Lock()
	defer t.limiter.mu.Unlock()
	return t.link.Limit()
}

// Held returns how direction dir, 0 or 1, was held back so far.
func (t *Throttle) Held(dir int) Held {
	t.limiter.mu.Lock()
	defer t.limiter.mu.Unlock()
	return t.dirs[dir].held
}

// Close counts the link's remaining bytes and releases its place. No Take may be in progress.
func (t *Throttle) Close() {
	t.Stop()
	lim := t.limiter
	lim.mu.Lock()
	defer lim.mu.Unlock()
	now := time.Now()
	if lim.count(t, now) {
		defer lim.renew(now)
	}
	lim.quota.Release(t.link)
	delete(lim.links, t)
}
