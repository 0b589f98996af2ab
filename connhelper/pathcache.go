package connhelper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// pathCache makes only the first of many links to one site find out how to get there. The others
// wait briefly for its result, and use that technique; so a hundred ranks that dial at once make
// one decision, not a hundred races.
type pathCache struct {
	mu    sync.Mutex
	sites map[overlay.SiteID]*cachedPath
}

// known is what is known about the path to a site.
type known struct {
	technique overlay.Technique // connected last; 0: nothing is known
	took      time.Duration     // time from the start of the dial
}

type cachedPath struct {
	plan   uint64 // digest; results under another plan do not count
	winner known
	found  time.Time
	race   chan struct{} // closed when the first race ends; nil when there is none
	probes int           // links that look for something better than a relay
	turns  chan struct{} // one token for each link in the making
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

func newPathCache() pathCache { return pathCache{sites: map[overlay.SiteID]*cachedPath{}} }

// A dialAttempt is a link's turn to be made.
type dialAttempt struct {
	winner known // how links to that site are made; zero for the link that is to find out

	// follow says to use the winner and try nothing else: other links look for better.
	follow bool

	pathCache  *pathCache // nil: the result is of no use to other links
	cachedPath *cachedPath
	first      bool // other links wait for its result
}

// enter waits for the link's turn. The caller must call finish or leave, once. A link that looks
// for a path other than the best does not wait for a turn.
func (l *pathCache) enter(ctx context.Context, to target) (*dialAttempt, error) {
	if to.ways != overlay.AllWays {
		return &dialAttempt{}, nil
	}
	s := l.lookup(to)
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %d links to %s are being made already", context.Cause(ctx), maxMaking, to.point.Node.Site)
	}
	t := &dialAttempt{pathCache: l, cachedPath: s}
	for {
		l.mu.Lock()
		if s.winner.technique != 0 && time.Since(s.found) < leadLife {
			t.winner = s.winner
		} else {
			t.winner = to.memory.winner
		}
		race := s.race
		switch {
		case t.winner.technique == overlay.Relay:
			// There may be a better technique by now; one link at a time checks.
			if t.follow = s.probes > 0; !t.follow {
				s.probes++
			}
			l.mu.Unlock()
			return t, nil
		case t.winner.technique != 0:
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

// lookup returns what is known about the target's site under its plan.
func (l *pathCache) lookup(to target) *cachedPath {
	l.mu.Lock()
	defer l.mu.Unlock()
	site := to.point.Node.Site
	s := l.sites[site]
	if s == nil || s.plan != to.digest {
		s = &cachedPath{plan: to.digest, turns: make(chan struct{}, maxMaking)}
		l.sites[site] = s
	}
	return s
}

// finish records how the link was made, or that it was not (zero k).
func (t *dialAttempt) finish(k known) {
	if t.pathCache == nil {
		return
	}
	t.pathCache.mu.Lock()
	defer t.pathCache.mu.Unlock()
	defer t.end()
	s := t.cachedPath
	switch {
	case k.technique == overlay.Relay && t.follow: // no news
	case k.technique != 0:
		s.winner, s.found = k, time.Now()
	case !t.first:
		s.winner = known{} // what was known to work does not
	}
}

// disproved records that a link by this technique, which seemed to be made, was not.
func (t *dialAttempt) disproved(technique overlay.Technique) {
	if t.pathCache == nil {
		return
	}
	t.pathCache.mu.Lock()
	defer t.pathCache.mu.Unlock()
	if t.cachedPath.winner.technique == technique {
		t.cachedPath.winner = known{}
	}
}

// leave is finish for a link that was not made, for reasons that say nothing about the paths to the
// site: what was known about them is kept.
func (t *dialAttempt) leave() {
	if t.pathCache == nil {
		return
	}
	t.pathCache.mu.Lock()
	defer t.pathCache.mu.Unlock()
	t.end()
}

// end releases the turn. The cache is locked.
func (t *dialAttempt) end() {
	s := t.cachedPath
	if t.winner.technique == overlay.Relay && !t.follow {
		s.probes--
	}
	if t.first {
		close(s.race)
		s.race = nil
	}
	<-s.turns
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
