package connhelper

import (
	"context"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// leads sees to it that of many links to one site only the first tries out how
// to get there. The others wait a moment for what it finds, and take that way;
// so a hundred ranks that dial at once make one decision, not a hundred races.
type leads struct {
	mu    sync.Mutex
	sites map[overlay.SiteID]*lead
}

// known is what is known of the way to a site.
type known struct {
	technique overlay.Technique // that connected last; 0: nothing is known
	took      time.Duration     // from the dial on
}

type lead struct {
	plan   uint64 // digest; what was found under another plan does not count
	winner known
	found  time.Time
	race   chan struct{} // closed when the first race ended; nil when none is on
}

// How long a winner is taken without asking the frontal's memory, and how long
// a link waits for the race of another.
const (
	leadLife = time.Minute
	leadWait = time.Second
)

func newLeads() leads { return leads{sites: map[overlay.SiteID]*lead{}} }

// enter returns the technique that is known to work, or none for the one link
// that is to find out. Whoever entered calls done once, with the technique
// that connected or none.
func (l *leads) enter(ctx context.Context, to target) (done func(known), winner known) {
	site := to.point.Node.Site
	for {
		l.mu.Lock()
		s := l.sites[site]
		if s == nil || s.plan != to.digest {
			s = &lead{plan: to.digest}
			l.sites[site] = s
		}
		if s.winner.technique != 0 && time.Since(s.found) < leadLife {
			winner = s.winner
		} else {
			winner = to.memory.winner
		}
		race := s.race
		if winner.technique == 0 && race == nil {
			s.race = make(chan struct{})
			l.mu.Unlock()
			return func(k known) { l.finish(s, k, true) }, known{}
		}
		l.mu.Unlock()
		if winner.technique != 0 || !waitFor(ctx, race) {
			return func(k known) { l.finish(s, k, false) }, winner
		}
	}
}

// finish notes how a link was made; first says that others wait for it.
func (l *leads) finish(s *lead, k known, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case k.technique != 0:
		s.winner, s.found = k, time.Now()
	case !first:
		s.winner = known{} // what was known to work does not
	}
	if first {
		close(s.race)
		s.race = nil
	}
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
