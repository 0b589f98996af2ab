package pace

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// Link is a link that has its place. It is a carrier.Pacer. Safe for concurrent
// use, but each direction by one goroutine at a time.
type Link struct {
	keeper  *Keeper
	link    *quota.Link
	moved   func() uint64
	counted uint64 // of moved, guarded by keeper.mu
	paced   atomic.Bool
	dirs    [2]flow

	stop    sync.Once
	stopped chan struct{}
}

// flow is one direction of a Link.
type flow struct {
	turn chan struct{} // holds a value when the turn has come; made when first needed
	held Held          // guarded by keeper.mu
}

// Held is how often a direction of a link had to wait for its turn, and what
// for the last time.
type Held struct {
	Waits uint64
	Rule  string     // what set the rate, as in Link.Limit; "" if it never waited
	Rate  quota.Rate // that all links under the rule share
	At    time.Time  // when the last wait began
}

// Paced reports whether Take may have to wait. It may change at any time.
func (l *Link) Paced() bool { return l.paced.Load() }

// Take waits until some of n bytes may pass in direction dir, 0 or 1, and says
// how many. 0 says that the link was stopped.
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
	<-w.turn // it came at the same instant
	k.quota.Return(f, f.Want())
	return 0
}

// Pay waits until n bytes may pass, all of them, and reports whether they may:
// they may not when the link was stopped.
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

// Return gives back n bytes that Take allowed and that did not pass.
func (l *Link) Return(dir, n int) {
	l.keeper.mu.Lock()
	l.keeper.quota.Return(l.link.Flow(dir), n)
	l.keeper.mu.Unlock()
}

// Stop ends every Take of the link, now and later.
func (l *Link) Stop() { l.stop.Do(func() { close(l.stopped) }) }

// Limit returns the lowest rate that the link is held to, together with others
// of its kind, and the setting that says so, below quota; 0 and "" if none does.
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

// Close counts what the link moved last and gives its place back. Nobody may
// be within Take.
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
