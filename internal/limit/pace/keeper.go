package pace

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

// Keeper applies a quota to a daemon's links. Safe for concurrent use.
type Keeper struct {
	state string // file of the month's counts; "": none
	log   *slog.Logger
	wake  chan struct{} // tells Serve that its timer is set too late

	mu    sync.Mutex // guards the fields below; never held while waiting or writing
	quota *quota.Quota
	links map[*Link]struct{}
	flows map[*quota.Flow]*flow // waiting flows
	armed time.Time             // when Serve will check again; zero: never
	ready []*quota.Flow         // result of the last Advance, kept to reuse its memory

	refused uint64
	waits   atomic.Uint64
}

// New returns a Keeper; run it with Serve. It continues the month's counts from the file state if
// that exists; "" keeps them in memory only.
func New(rules quota.Rules, state string, log *slog.Logger) (*Keeper, error) {
	ledger, err := load(state)
	if err != nil {
		return nil, err
	}
	return &Keeper{
		state: state, log: log, wake: make(chan struct{}, 1),
		quota: quota.New(rules, ledger, time.Now()),
		links: map[*Link]struct{}{}, flows: map[*quota.Flow]*flow{},
	}, nil
}

// Serve wakes links whose turn has come, counts and stores. It returns when ctx is done, after it
// has stored the counts for the last time; the owners of links that still wait must then stop them.
func (k *Keeper) Serve(ctx context.Context) {
	turn := time.NewTimer(time.Hour)
	defer turn.Stop()
	count := time.NewTicker(countEvery)
	defer count.Stop()
	stored := time.Now()
	for {
		k.advance(turn)
		select {
		case <-ctx.Done():
			k.countAll()
			k.store()
			return
		case <-turn.C:
		case <-k.wake:
		case now := <-count.C:
			k.countAll()
			if now.Sub(stored) >= storeEvery {
				stored = now
				k.store()
			}
		}
	}
}

// advance wakes the flows whose turn has come and sets the timer for the next.
func (k *Keeper) advance(turn *time.Timer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.ready, k.armed = k.quota.Advance(k.ready[:0], now)
	for i, f := range k.ready {
		k.ready[i] = nil
		w := k.flows[f]
		delete(k.flows, f)
		w.turn <- struct{}{} // buffered: a flow waits once at a time
	}
	if k.armed.IsZero() {
		turn.Reset(time.Hour)
		return
	}
	turn.Reset(k.armed.Sub(now))
}

// look makes Serve check at due, unless it does so earlier anyway. The caller must hold k.mu.
func (k *Keeper) look(due time.Time) {
	if !k.armed.IsZero() && !due.Before(k.armed) {
		return
	}
	k.armed = due
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// SetRules changes the limits, for live links too. A lowered limit on links ends none.
func (k *Keeper) SetRules(rules quota.Rules) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.quota.SetRules(rules, now)
	k.renew(now)
}

// Lowest is quota.Rules.Lowest of the current rules.
func (k *Keeper) Lowest(project bool) (quota.Rate, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.quota.Rules().Lowest(project)
}

// renew applies changed rates to live links. The caller must hold k.mu.
func (k *Keeper) renew(now time.Time) {
	for l := range k.links {
		l.paced.Store(l.link.Paced())
	}
	k.look(now)
}

// countAll adds the new traffic of all links to their owners' months.
func (k *Keeper) countAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	changed := k.quota.Tidy(now)
	for l := range k.links {
		changed = k.count(l, now) || changed
	}
	if changed {
		k.renew(now)
	}
}

// count adds the new traffic of one link. The caller must hold k.mu.
func (k *Keeper) count(l *Link, now time.Time) (changed bool) {
	moved := l.moved()
	if moved == l.counted {
		return false
	}
	o := l.link.Owner()
	changed = k.quota.Count(o, moved-l.counted, now)
	l.counted = moved
	if changed {
		rate, key := l.link.Limit()
		k.log.Warn("a month's bytes are used up; its links are slowed and new ones refused",
			"user", o.User, "project", o.Project, "job", string(o.Job), "rate", rate.String(), "limit", key)
	}
	return changed
}

// Admit reserves a place for a link on behalf of o, or returns a *quota.Refused with the reason.
// moved returns the bytes that the link has moved so far, both directions together; it is called at
// any time until the link is closed, and must not block. Close must be called when the link is
// over.
func (k *Keeper) Admit(o quota.Owner, moved func() uint64) (*Link, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	admitted, err := k.quota.Admit(o, time.Now())
	if err != nil {
		k.refused++
		return nil, err
	}
	l := &Link{keeper: k, link: admitted, moved: moved, stopped: make(chan struct{})}
	l.paced.Store(admitted.Paced())
	k.links[l] = struct{}{}
	return l, nil
}

// Status is the state of a Keeper. Status commands show its JSON form.
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
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := Status{
		Rate: k.quota.Rules().Rate, Links: len(k.links), Waiting: len(k.flows), Waits: k.waits.Load(), Refused: k.refused,
	}
	st.Uses = k.quota.Uses(time.Now())
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
