package pace

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// Link is an admitted link. It is a carrier.Pacer. Safe for concurrent use, but each direction by
// one goroutine at a time.
type Link struct {
	keeper  *Keeper
	link    *quota.Link
	moved   func() uint64
	counted uint64 // the part of moved counted so far, guarded by keeper.mu
	paced   atomic.Bool
	dirs    [2]flow

	stop    sync.Once
	stopped chan struct{}
}

// flow is one direction of a Link.
type flow struct {
	turn chan struct{} // holds a value when the turn has come; created when first needed
	held Held          // guarded by keeper.mu
}

// Held is how often a direction of a link had to wait for its turn, and the reason of the last
// wait.
type Held struct {
	Waits uint64
	Rule  string     // origin of the rate, as in Link.Limit; "" if it never waited
	Rate  quota.Rate // shared by all links under the rule
	At    time.Time  // start of the last wait
}

// Paced reports whether Take may have to wait. The result may change at any time.
func (l *Link) Paced() bool { return l.paced.Load() }

// Take waits until some of n bytes may pass in direction dir, 0 or 1, and returns how many. 0 means
// that the link was stopped.
func (l *Link) Take(dir, n int) int {
	k, f, w := l.keeper, l.link.Flow(dir), &l.dirs[dir]
	select {
	case <-l.stopped:
		return 0
	default:
	}
	k.mu.Lock()
	now := time.Now()
	pass, due := k.quota.Ask(f, n, now)
	if pass > 0 {
		k.mu.Unlock()
		return pass
	}
	if w.turn == nil {
		w.turn = make(chan struct{}, 1)
	}
	k.flows[f] = w
	w.held.Waits++
	w.held.Rate, w.held.Rule = f.WaitsFor()
	w.held.At = now
	k.look(due)
	k.mu.Unlock()
	k.waits.Add(1)

	select {
	case <-w.turn:
		return f.Want()
	case <-l.stopped:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.quota.Cancel(f) {
		delete(k.flows, f)
		return 0
	}
	<-w.turn // it came at the same time
	k.quota.Return(f, f.Want())
	return 0
}

// Pay waits until all n bytes may pass, and reports whether they may: false means that the link was
// stopped.
func (l *Link) Pay(dir, n int) bool {
	for n > 0 && l.Paced() {
		pass := l.Take(dir, n)
		if pass == 0 {
			return false
		}
		n -= pass
	}
	return true
}

// Return returns n bytes that Take granted and that did not pass.
func (l *Link) Return(dir, n int) {
	l.keeper.mu.Lock()
	l.keeper.quota.Return(l.link.Flow(dir), n)
	l.keeper.mu.Unlock()
}

// Stop ends every Take of the link, now and later.
func (l *Link) Stop() { l.stop.Do(func() { close(l.stopped) }) }

// Limit returns the lowest rate that the link is limited to, together with others of its kind, and
// the setting, below quota; 0 and "" if there is none.
func (l *Link) Limit() (quota.Rate, string) {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.link.Limit()
}

// Held returns how direction dir, 0 or 1, was held back so far.
func (l *Link) Held(dir int) Held {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.dirs[dir].held
}

// Close counts the link's remaining bytes and releases its place. No Take may be in progress.
func (l *Link) Close() {
	l.Stop()
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.count(l, now) {
		defer k.renew(now)
	}
	k.quota.Release(l.link)
	delete(k.links, l)
}
