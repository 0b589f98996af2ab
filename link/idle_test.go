package link

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// An idle carrier's peer is asked in half the time that is known to be too long, never continually,
// and by one end only.
func TestAskAfter(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct{ told, learned, want time.Duration }{
		{0, 0, 15 * s},
		{290 * s, 0, 15 * s},
		{25 * s, 0, 12500 * time.Millisecond},
		{0, 12 * s, 6 * s},
		{25 * s, 12 * s, 6 * s},
		{12 * s, 25 * s, 6 * s},
		{3 * s, 0, 1500 * time.Millisecond},
		{1 * s, 0, 1 * s},
		{0, 50 * time.Millisecond, 1 * s},
	} {
		if got := askAfter(tc.told, tc.learned, true); got != tc.want {
			t.Errorf("told %v, learned %v: %v, want %v", tc.told, tc.learned, got, tc.want)
		}
		later := askAfter(tc.told, tc.learned, false)
		if later <= tc.want {
			t.Errorf("told %v, learned %v: both ends ask after %v", tc.told, tc.learned, later)
		}
		if tc.told >= 2*s && later >= tc.told {
			t.Errorf("told %v: the dialled end asks after %v, which is too late", tc.told, later)
		}
	}
}

// TestIdleLinkIsQuiet: questions that are sent while a link is in use stop when it is idle, long
// before a firewall forgets it: an answer is no reason to ask again.
func TestIdleLinkIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		a, b := couple(t, r, 0)
		pump(t, a, b, 1<<20)
		said := func() (all uint64) {
			for _, l := range []*Link{a, b} {
				for _, c := range l.Carriers() {
					all += c.Sent
				}
			}
			return all
		}
		look := time.NewTicker(4 * rankEvery)
		defer look.Stop()
		end := time.After(10 * time.Second)
		for before := said(); ; {
			select {
			case <-look.C:
			case <-end:
				t.Fatal("an idle link does not fall silent")
			}
			now := said()
			if now == before {
				return
			}
			before = now
		}
	})
}

// A mesh learns from the carriers it lost, for carriers of the same kind to the same site.
func TestIdleDeaths(t *testing.T) {
	to := func(site overlay.SiteID, technique overlay.Technique) overlay.Path {
		return overlay.Path{Technique: technique, Peer: overlay.NodeID{Site: site, Name: "n1"}}
	}
	idle := func(d time.Duration) error {
		return fmt.Errorf("writing: %w", &stream.IdleError{Idle: d, Err: errors.New("reset")})
	}
	var l idleDeaths
	for i, tc := range []struct {
		path overlay.Path
		err  error
		news bool
	}{
		{to("b", overlay.Direct), errors.New("reset"), false},
		{to("b", overlay.Direct), idle(15 * time.Second), true},
		{to("b", overlay.Direct), idle(15 * time.Second), false},
		{to("b", overlay.Direct), idle(8 * time.Second), true},
		{to("b", overlay.Direct), idle(20 * time.Second), false},
		{to("b", overlay.Relay), idle(14 * time.Second), true},
		{to("", 0), idle(5 * time.Second), false}, // one node: no firewall forgets it
	} {
		if got := l.learn(tc.path, tc.err); got != tc.news {
			t.Errorf("%d: learned something: %v", i, got)
		}
	}
	for path, want := range map[overlay.Path]time.Duration{
		to("b", overlay.Direct): 8 * time.Second, to("b", overlay.Relay): 14 * time.Second,
		to("b", overlay.Reversed): 8 * time.Second, to("b", overlay.HolePunching): 0, to("b", 0): 0,
		to("c", overlay.Direct): 0, to("", 0): 0,
	} {
		if got := l.of(path); got != want {
			t.Errorf("%v to %v: %v, want %v", path, path.Peer, got, want)
		}
	}
}
