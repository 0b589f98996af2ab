package connhelper

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func site(digest uint64, winner overlay.Technique) target {
	return target{point: overlay.AccessPoint{Node: overlay.NodeID{Site: "siteb", Name: "b1"}}, digest: digest, memory: memory{winner: known{technique: winner}}}
}

// enter takes a turn that is available.
func enter(t *testing.T, l *pathCache, to target) *dialAttempt {
	t.Helper()
	turn, err := l.enter(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// TestLeads: of a hundred links one finds out, and the others follow, a few at a time.
func TestLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPathCache()
		var explorers, followers, making, most atomic.Int32
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				turn := enter(t, &l, site(1, 0))
				if n := making.Add(1); n > most.Load() {
					most.Store(n)
				}
				if turn.winner.technique == 0 {
					explorers.Add(1)
					time.Sleep(300 * time.Millisecond) // the race
				} else if followers.Add(1); turn.winner.technique != overlay.HolePunching {
					t.Errorf("follows %v", turn.winner.technique)
				} else {
					time.Sleep(100 * time.Millisecond)
				}
				making.Add(-1)
				turn.finish(known{technique: overlay.HolePunching})
			})
		}
		all.Wait()
		if explorers.Load() != 1 || followers.Load() != 99 || most.Load() > maxMaking {
			t.Errorf("%d explored, %d followed, %d at a time", explorers.Load(), followers.Load(), most.Load())
		}

		// Later, the winner is too old; under another plan, it never was one.
		time.Sleep(leadLife)
		turn := enter(t, &l, site(1, 0))
		if turn.winner.technique != 0 {
			t.Errorf("follows %v after %v", turn.winner.technique, leadLife)
		}
		turn.finish(known{technique: overlay.HolePunching})
		if turn = enter(t, &l, site(2, 0)); turn.winner.technique != 0 {
			t.Errorf("follows %v of another plan", turn.winner.technique)
		}
		turn.finish(known{})
		// What the frontal remembers needs no race; what fails is forgotten.
		if turn = enter(t, &l, site(2, overlay.Traversing)); turn.winner.technique != overlay.Traversing || turn.follow {
			t.Errorf("%+v, the frontal said traversing", turn)
		}
		turn.finish(known{})
		if turn = enter(t, &l, site(2, 0)); turn.winner.technique != 0 {
			t.Errorf("follows %v, which failed", turn.winner.technique)
		}
		turn.finish(known{})
		// A failure for reasons other than the path changes nothing.
		turn = enter(t, &l, site(2, overlay.Traversing))
		turn.finish(known{technique: overlay.Traversing})
		enter(t, &l, site(2, 0)).leave()
		if turn = enter(t, &l, site(2, 0)); turn.winner.technique != overlay.Traversing {
			t.Errorf("follows %v, nothing was said against traversing", turn.winner.technique)
		}
		turn.leave()
	})
}

// TestRelaysAreFollowed: where only a relay is known to work, one link at a time looks for
// something better, and the others' results are no news.
func TestRelaysAreFollowed(t *testing.T) {
	l := newPathCache()
	first := enter(t, &l, site(1, overlay.Relay))
	second := enter(t, &l, site(1, overlay.Relay))
	if first.follow || !second.follow {
		t.Errorf("%+v, %+v", first, second)
	}
	first.finish(known{technique: overlay.SimultaneousOpen})
	second.finish(known{technique: overlay.Relay})
	third := enter(t, &l, site(1, overlay.Relay))
	if third.winner.technique != overlay.SimultaneousOpen || third.follow {
		t.Errorf("%+v", third)
	}
	third.finish(known{technique: overlay.Relay})
	fourth := enter(t, &l, site(1, 0))
	if fourth.winner.technique != overlay.Relay || fourth.follow {
		t.Errorf("%+v, with nobody looking for something better", fourth)
	}
	fourth.finish(known{})
}

// TestLeadsDoNotWaitForEver: a race that hangs blocks the others for a second, and links that do
// not get their turn report that.
func TestLeadsDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPathCache()
		turns := []*dialAttempt{enter(t, &l, site(1, 0))}
		begin := time.Now()
		turns = append(turns, enter(t, &l, site(1, 0)))
		if took := time.Since(begin); turns[1].winner.technique != 0 || took != leadWait {
			t.Errorf("winner %v after %v", turns[1].winner.technique, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		third, err := l.enter(ctx, site(1, 0))
		if took := time.Since(begin); err != nil || took != leadWait+time.Millisecond {
			t.Errorf("waited %v, %v", took, err)
		}
		turns = append(turns, third)
		for len(turns) < maxMaking {
			turns = append(turns, enter(t, &l, site(1, 0)))
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.enter(ctx, site(1, 0)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "4 links to siteb are being made") {
			t.Errorf("one too many: %v", err)
		}
		for _, turn := range turns {
			turn.finish(known{})
		}
		enter(t, &l, site(1, 0)).finish(known{})
	})
}
