package connhelper

import (
	"context"
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

// TestLeads: of a hundred links one finds out, and the others follow.
func TestLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeads()
		var explorers, followers atomic.Int32
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				done, winner := l.enter(t.Context(), site(1, 0))
				if winner.technique == 0 {
					explorers.Add(1)
					time.Sleep(300 * time.Millisecond) // the race
					done(known{technique: overlay.HolePunching})
					return
				}
				if winner.technique != overlay.HolePunching {
					t.Errorf("follows %v", winner.technique)
				}
				followers.Add(1)
				done(winner)
			})
		}
		all.Wait()
		if explorers.Load() != 1 || followers.Load() != 99 {
			t.Errorf("%d explored, %d followed", explorers.Load(), followers.Load())
		}

		// Later, the winner is old; under another plan, it never was one.
		time.Sleep(leadLife)
		if done, winner := l.enter(t.Context(), site(1, 0)); winner.technique != 0 {
			t.Errorf("follows %v after %v", winner.technique, leadLife)
		} else {
			done(known{technique: overlay.Relay})
		}
		if done, winner := l.enter(t.Context(), site(2, 0)); winner.technique != 0 {
			t.Errorf("follows %v of another plan", winner.technique)
		} else {
			done(known{})
		}
		// What the frontal remembers needs no race; what fails is forgotten.
		done, winner := l.enter(t.Context(), site(2, overlay.Relay))
		if winner.technique != overlay.Relay {
			t.Errorf("follows %v, the frontal said relay", winner.technique)
		}
		done(known{})
	})
}

// TestLeadsDoNotWaitForEver: a race that hangs holds the others up a second.
func TestLeadsDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeads()
		first, _ := l.enter(t.Context(), site(1, 0))
		begin := time.Now()
		done, winner := l.enter(t.Context(), site(1, 0))
		if took := time.Since(begin); winner.technique != 0 || took != leadWait {
			t.Errorf("winner %v after %v", winner.technique, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = l.enter(ctx, site(1, 0))
		if took := time.Since(begin); took != leadWait+time.Millisecond {
			t.Errorf("waited %v", took)
		}
		done(known{})
		first(known{})
	})
}
