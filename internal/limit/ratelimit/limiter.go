package ratelimit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// How often the traffic of links is counted, and how often the counts are stored. A month can be
// overdrawn by what passes between two counts.
const (
	countEvery = 2 * time.Second
	storeEvery = time.Minute
)

// Limiter applies a quota to a daemon's links. Safe for concurrent use.
type Limiter struct {
	state string // file of the month's counts; "": none
	log   *slog.Logger
	wake  chan struct{} // tells Serve that its timer is set too late

	mu    sync.Mutex // guards the fields below; never held while waiting or writing
	quota *quota.Quota
	links map[*Throttle]struct{}
	flows map[*quota.Flow]*flow // waiting flows
	armed time.Time             // when Serve will check again; zero: never
	ready []*quota.Flow         // result of the last Advance, kept to reuse its memory

	refused uint64
	waits   atomic.Uint64
}

// New returns a Limiter; run it with Serve. It continues the month's counts from the file state if
// that exists; "" keeps them in memory only.
func New(rules quota.Rules, state string, log *slog.Logger) (*Limiter, error) {
	ledger, err := load(state)
	if err != nil {
		return nil, err
	}
	return &Limiter{
		state: state, log: log, wake: make(chan struct{}, 1),
		quota: quota.New(rules, ledger, time.Now()),
		links: map[*Throttle]struct{}{}, flows: map[*quota.Flow]*flow{},
	}, nil
}

// Serve wakes links whose turn has come, counts and stores. It returns when ctx is done, after it
// has stored the counts for the last time; the owners of links that still wait must then stop them.
func (lim *Limiter) Serve(ctx context.Context) {
	turn := time.NewTimer(time.Hour)
	defer turn.Stop()
	count := time.NewTicker(countEvery)
	defer count.Stop()
	stored := time.Now()
	for {
		lim.advance(turn)
		select {
		case <-ctx.Done():
			lim.countAll()
			lim.store()
			return
		case <-turn.C:
		case <-lim.wake:
		case now := <-count.C:
			lim.countAll()
			if now.Sub(stored) >= storeEvery {
				stored = now
				lim.store()
			}
		}
	}
}

// advance wakes the flows whose turn has come and sets the timer for the next.
func (lim *Limiter) advance(turn *time.Timer) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	now := time.Now()
	lim.ready, lim.armed = lim.quota.Advance(lim.ready[:0], now)
	for i, f := range lim.ready {
		lim.ready[i] = nil
		w := lim.flows[f]
		delete(lim.flows, f)
		w.granted <- struct{}{} // buffered: a flow waits once at a time
	}
	if lim.armed.IsZero() {
		turn.Reset(time.Hour)
		return
	}
	turn.Reset(lim.armed.Sub(now))
}

// look makes Serve check at due, unless it does so earlier anyway. The caller must hold lim.mu.
func (lim *Limiter) look(due time.Time) {
	if !lim.armed.IsZero() && !due.Before(lim.armed) {
		return
	}
	lim.armed = due
	select {
	case lim.wake <- struct{}{}:
	default:
	}
}

// SetRules changes the limits, for live links too. A lowered limit on links ends none.
func (lim *Limiter) SetRules(rules quota.Rules) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	now := time.Now()
	lim.quota.SetRules(rules, now)
	lim.renew(now)
}

// Lowest is quota.Rules.Lowest of the current rules.
func (lim *Limiter) Lowest(project bool) (quota.Rate, string) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	return lim.quota.Rules().Lowest(project)
}

// renew applies changed rates to live links. The caller must hold lim.mu.
func (lim *Limiter) renew(now time.Time) {
	for l := range lim.links {
		l.paced.Store(l.link.Paced())
	}
	lim.look(now)
}

// countAll adds the new traffic of all links to their owners' months.
func (lim *Limiter) countAll() {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	now := time.Now()
	changed := lim.quota.Tidy(now)
	for l := range lim.links {
		changed = lim.count(l, now) || changed
	}
	if changed {
		lim.renew(now)
	}
}

// count adds the new traffic of one link. The caller must hold lim.mu.
func (lim *Limiter) count(l *Throttle, now time.Time) (changed bool) {
	moved := l.totalBytes()
	if moved == l.counted {
		return false
	}
	o := l.link.Owner()
	changed = lim.quota.Count(o, moved-l.counted, now)
	l.counted = moved
	if changed {
		rate, key := l.link.Limit()
		lim.log.Warn("a month's bytes are used up; its links are slowed and new ones refused",
			"user", o.User, "project", o.Project, "job", string(o.Job), "rate", rate.String(), "limit", key)
	}
	return changed
}

// Admit reserves a place for a link on behalf of o, or returns a *quota.Refused with the reason.
// moved returns the bytes that the link has moved so far, both directions together; it is called at
// any time until the link is closed, and must not block. Close must be called when the link is
// over.
func (lim *Limiter) Admit(o quota.Owner, moved func() uint64) (*Throttle, error) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	admitted, err := lim.quota.Admit(o, time.Now())
	if err != nil {
		lim.refused++
		return nil, err
	}
	l := &Throttle{limiter: lim, link: admitted, totalBytes: moved, stopped: make(chan struct{})}
	l.paced.Store(admitted.Paced())
	lim.links[l] = struct{}{}
	return l, nil
}

// Status is the state of a Limiter. Status commands show its JSON form.
type Status struct {
	Rate       quota.Rate `json:"rate"`    // of all links together; none is unlimited
	Links      int        `json:"links"`   // live
	Waiting    int        `json:"waiting"` // directions of links that wait for their turn
	Waits      uint64     `json:"waits"`   // since the start
	Refused    uint64     `json:"refused"` // links, since the start
	quota.Uses            // at most maxShown of each kind
}

// maxShown bounds the entries of each kind in a Status.
const maxShown = 1000

// Status returns the current state. The caller owns the maps.
func (lim *Limiter) Status() Status {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	st := Status{
		Rate: lim.quota.Rules().Rate, Links: len(lim.links), Waiting: len(lim.flows), Waits: lim.waits.Load(), Refused: lim.refused,
	}
	st.Uses = lim.quota.Uses(time.Now())
	for _, m := range []map[string]quota.Use{st.Users, st.Projects, st.Jobs, st.Allowed} {
		for name := range m {
			if len(m) <= maxShown {
				break
			}
			delete(m, name)
		}
	}
	return st
}
