package race

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Cache makes only the first of many links to one site find out how to get there. The others
// wait briefly for its result, and use that technique; so a hundred ranks that dial at once make
// one decision, not a hundred races.
type Cache struct {
	mu    sync.Mutex // guards sites, and what they hold; never held while waiting for a race or a slot
	sites map[overlay.SiteID]*cachedPath
}

// DialResult is the latest dial to a site that connected.
type DialResult struct {
	Technique overlay.Technique // by which it connected; 0: there was none
	Took      time.Duration     // time from the start of the dial
}

type cachedPath struct {
	plan   uint64 // digest; results under another plan do not count
	winner DialResult
	found  time.Time
	race   chan struct{} // closed when the first race ends; nil when there is none
	probes int           // links that look for something better than a relay
	slots  chan struct{} // one token for each link in the making
}

// How long a winner is used without asking the frontal's memory, and how long a link waits for
// another link's race.
const (
	leadLife = time.Minute
	leadWait = time.Second

	// maxMaking bounds the links to one site that are in the making at a time. More would only
	// delay each other, and each would then try one technique after the other although the first
	// works.
	maxMaking = 4
)

// NewCache returns a Cache that knows nothing.
func NewCache() *Cache { return &Cache{sites: map[overlay.SiteID]*cachedPath{}} }

// A Slot is the right to make one link. The zero Slot is of a link whose result is of no use to others.
type Slot struct {
	Winner DialResult // how links to that site are made; zero for the link that is to find out

	// Follow says to use the winner and try nothing else: other links look for better.
	Follow bool

	cache      *Cache // nil: the result is of no use to other links
	cachedPath *cachedPath
	first      bool // other links wait for its result
}

// Enter waits for the slot of a link to a site, under the plan of that digest. remembered is what the
// frontal remembers of the path. The caller must call Finish or Leave, once.
func (l *Cache) Enter(ctx context.Context, site overlay.SiteID, plan uint64, remembered DialResult) (*Slot, error) {
	s := l.lookup(site, plan)
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %d links to %s are being made already", context.Cause(ctx), maxMaking, site)
	}
	t := &Slot{cache: l, cachedPath: s}
	for {
		l.mu.Lock()
		if s.winner.Technique != 0 && time.Since(s.found) < leadLife {
			t.Winner = s.winner
		} else {
			t.Winner = remembered
		}
		race := s.race
		switch {
		case t.Winner.Technique == overlay.Relay:
			// There may be a better technique by now; one link at a time checks.
			if t.Follow = s.probes > 0; !t.Follow {
				s.probes++
			}
			l.mu.Unlock()
			return t, nil
		case t.Winner.Technique != 0:
			l.mu.Unlock()
			return t, nil
		case race == nil:
			s.race, t.first = make(chan struct{}), true
			l.mu.Unlock()
			return t, nil
		}
		l.mu.Unlock()
		if !waitFor(ctx, race) {
			return t, nil
		}
	}
}

// lookup returns what is known about a site under a plan.
func (l *Cache) lookup(site overlay.SiteID, plan uint64) *cachedPath {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[site]
	if s == nil || s.plan != plan {
		s = &cachedPath{plan: plan, slots: make(chan struct{}, maxMaking)}
		l.sites[site] = s
	}
	return s
}

// Finish records how the link was made, or that it was not (zero k).
func (t *Slot) Finish(k DialResult) {
	if t.cache == nil {
		return
	}
	t.cache.mu.Lock()
	defer t.cache.mu.Unlock()
	defer t.end()
	s := t.cachedPath
	switch {
	case k.Technique == overlay.Relay && t.Follow: // no news
	case k.Technique != 0:
		s.winner, s.found = k, time.Now()
	case !t.first:
		s.winner = DialResult{} // what was known to work does not
	}
}

// Disproved records that a link by this technique, which seemed to be made, was not.
func (t *Slot) Disproved(technique overlay.Technique) {
	if t.cache == nil {
		return
	}
	t.cache.mu.Lock()
	defer t.cache.mu.Unlock()
	if t.cachedPath.winner.Technique == technique {
		t.cachedPath.winner = DialResult{}
	}
}

// Leave is Finish for a link that was not made, for reasons that say nothing about the paths to the
// site: what was known about them is kept.
func (t *Slot) Leave() {
	if t.cache == nil {
		return
	}
	t.cache.mu.Lock()
	defer t.cache.mu.Unlock()
	t.end()
}

// end releases the slot. The cache is locked.
func (t *Slot) end() {
	s := t.cachedPath
	if t.Winner.Technique == overlay.Relay && !t.Follow {
		s.probes--
	}
	if t.first {
		close(s.race)
		s.race = nil
	}
	<-s.slots
}

// waitFor reports whether the race ended within leadWait.
func waitFor(ctx context.Context, race <-chan struct{}) bool {
	t := time.NewTimer(leadWait)
	defer t.Stop()
	select {
	case <-race:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
