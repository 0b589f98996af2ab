package race

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

// asked is what a link that asks for a slot says of itself.
type asked struct {
	digest uint64
	told   DialResult
}

func site(digest uint64, winner overlay.Technique) asked {
	return asked{digest: digest, told: DialResult{Technique: winner}}
}

// enter takes a slot that is free.
func enter(t *testing.T, l *Cache, to asked) *Slot {
	t.Helper()
	slot, err := l.Enter(t.Context(), "siteb", to.digest, to.told)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// TestLeads: of a hundred links one finds out, and the others follow, a few at a
// time.
func TestLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewCache()
		var explorers, followers, making, most atomic.Int32
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				slot := enter(t, l, site(1, 0))
				if n := making.Add(1); n > most.Load() {
					most.Store(n)
				}
				if slot.Winner.Technique == 0 {
					explorers.Add(1)
					time.Sleep(300 * time.Millisecond) // the race
				} else if followers.Add(1); slot.Winner.Technique != overlay.HolePunching {
					t.Errorf("follows %v", slot.Winner.Technique)
				} else {
					time.Sleep(100 * time.Millisecond)
				}
				making.Add(-1)
				slot.Finish(DialResult{Technique: overlay.HolePunching})
			})
		}
		all.Wait()
		if explorers.Load() != 1 || followers.Load() != 99 || most.Load() > maxMaking {
			t.Errorf("%d explored, %d followed, %d at a time", explorers.Load(), followers.Load(), most.Load())
		}

		// Later, the winner is old; under another plan, it never was one.
		time.Sleep(leadLife)
		slot := enter(t, l, site(1, 0))
		if slot.Winner.Technique != 0 {
			t.Errorf("follows %v after %v", slot.Winner.Technique, leadLife)
		}
		slot.Finish(DialResult{Technique: overlay.HolePunching})
		if slot = enter(t, l, site(2, 0)); slot.Winner.Technique != 0 {
			t.Errorf("follows %v of another plan", slot.Winner.Technique)
		}
		slot.Finish(DialResult{})
		// What the frontal remembers needs no race; what fails is forgotten.
		if slot = enter(t, l, site(2, overlay.Traversing)); slot.Winner.Technique != overlay.Traversing || slot.Follow {
			t.Errorf("%+v, the frontal said traversing", slot)
		}
		slot.Finish(DialResult{})
		if slot = enter(t, l, site(2, 0)); slot.Winner.Technique != 0 {
			t.Errorf("follows %v, which failed", slot.Winner.Technique)
		}
		slot.Finish(DialResult{})
		// Who fails for other reasons than the way leaves it as known as it was.
		slot = enter(t, l, site(2, overlay.Traversing))
		slot.Finish(DialResult{Technique: overlay.Traversing})
		enter(t, l, site(2, 0)).Leave()
		if slot = enter(t, l, site(2, 0)); slot.Winner.Technique != overlay.Traversing {
			t.Errorf("follows %v, nothing was said against traversing", slot.Winner.Technique)
		}
		slot.Leave()
	})
}

// TestRelaysAreFollowed: where only a relay is known to work, one link at a time
// looks for something better, and what the others find is no news.
func TestRelaysAreFollowed(t *testing.T) {
	l := NewCache()
	first := enter(t, l, site(1, overlay.Relay))
	second := enter(t, l, site(1, overlay.Relay))
	if first.Follow || !second.Follow {
		t.Errorf("%+v, %+v", first, second)
	}
	first.Finish(DialResult{Technique: overlay.SimultaneousOpen})
	second.Finish(DialResult{Technique: overlay.Relay})
	third := enter(t, l, site(1, overlay.Relay))
	if third.Winner.Technique != overlay.SimultaneousOpen || third.Follow {
		t.Errorf("%+v", third)
	}
	third.Finish(DialResult{Technique: overlay.Relay})
	fourth := enter(t, l, site(1, 0))
	if fourth.Winner.Technique != overlay.Relay || fourth.Follow {
		t.Errorf("%+v, with nobody looking for something better", fourth)
	}
	fourth.Finish(DialResult{})
}

// TestLeadsDoNotWaitForEver: a race that hangs holds the others up a second, and
// links that do not get a slot say so.
func TestLeadsDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewCache()
		slots := []*Slot{enter(t, l, site(1, 0))}
		begin := time.Now()
		slots = append(slots, enter(t, l, site(1, 0)))
		if took := time.Since(begin); slots[1].Winner.Technique != 0 || took != leadWait {
			t.Errorf("winner %v after %v", slots[1].Winner.Technique, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		third, err := l.Enter(ctx, "siteb", 1, DialResult{})
		if took := time.Since(begin); err != nil || took != leadWait+time.Millisecond {
			t.Errorf("waited %v, %v", took, err)
		}
		slots = append(slots, third)
		for len(slots) < maxMaking {
			slots = append(slots, enter(t, l, site(1, 0)))
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.Enter(ctx, "siteb", 1, DialResult{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "4 links to siteb are being made") {
			t.Errorf("one too many: %v", err)
		}
		for _, slot := range slots {
			slot.Finish(DialResult{})
		}
		enter(t, l, site(1, 0)).Finish(DialResult{})
	})
}
