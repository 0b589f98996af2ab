package connhelper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// pathCache sees to it that of many links to one site only the first tries out how
// to get there. The others wait a moment for what it finds, and take that way;
// so a hundred ranks that dial at once make one decision, not a hundred races.
type pathCache struct {
	mu    sync.Mutex
	sites map[overlay.SiteID]*cachedPath
}

// known is what is known of the way to a site.
type known struct {
	technique overlay.Technique // that connected last; 0: nothing is known
	took      time.Duration     // from the dial on
}

type cachedPath struct {
	plan   uint64 // digest; what was found under another plan does not count
	winner known
	found  time.Time
	race   chan struct{} // closed when the first race ended; nil when none is on
	probes int           // links that look for something better than a relay
	turns  chan struct{} // one token for each link in the making
}

// How long a winner is taken without asking the frontal's memory, and how long
// a link waits for the race of another.
const (
	leadLife = time.Minute
	leadWait = time.Second

	// maxMaking bounds the links to one site that are in the making at a time.
	// More would only be in each other's way, and each would then try one
	// technique after the other though the first works.
	maxMaking = 4
)

func newPathCache() pathCache { return pathCache{sites: map[overlay.SiteID]*cachedPath{}} }

// A turn is a link's leave to be made.
type dialAttempt struct {
	winner known // how links to that site are made; unknown for the one that is to find out

	// follow says to take the winner and try nothing else: others see to that.
	follow bool

	pathCache  *pathCache // nil: what is found out is not what others want
	cachedPath *cachedPath
	first      bool // others wait for what it finds
}

// enter waits for the link's turn. Whoever entered calls done or
// leave, once. Who looks for another way than the best has no turn to wait for.
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
			// There may be better by now; one link at a time finds out.
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

// lookup returns what is known of the target's site under its plan.
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

// finish notes how the link was made, or that it was not (nothing is known).
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

// disproved notes that a link by this technique, which seemed to be made, was not.
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

// leave is done for a link that was not made, for reasons that say nothing of
// the ways to the site: what was known of them still is.
func (t *dialAttempt) leave() {
	if t.pathCache == nil {
		return
	}
	t.pathCache.mu.Lock()
	defer t.pathCache.mu.Unlock()
	t.end()
}

// end gives the turn back. The cache is locked.
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
