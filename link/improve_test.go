package link

import (
	"errors"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func TestBetter(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		a, b quality
		want bool
	}{
		{quality{overlay.Direct, 90 * ms}, quality{overlay.Relay, 10 * ms}, true}, // another class: at once
		{quality{overlay.Relay, 10 * ms}, quality{overlay.Direct, 90 * ms}, false},
		{quality{overlay.Relay, 95 * ms}, quality{overlay.Relay, 100 * ms}, true},  // 5 ms
		{quality{overlay.Relay, 96 * ms}, quality{overlay.Relay, 100 * ms}, false}, // neither 5 ms nor a tenth
		{quality{overlay.Relay, 9 * ms}, quality{overlay.Relay, 10 * ms}, true},    // a tenth
		{quality{overlay.Relay, 9500}, quality{overlay.Relay, 10000}, false},
		{quality{overlay.Relay, 0}, quality{overlay.Relay, 0}, false},
		{quality{overlay.HolePunching, 10 * ms}, quality{overlay.HolePunching, 30 * ms}, false}, // one tunnel
		{quality{overlay.HolePunching, 30 * ms}, quality{overlay.Relay, 10 * ms}, true},
	} {
		if got := tc.a.better(tc.b); got != tc.want {
			t.Errorf("%v better than %v: %v", tc.a, tc.b, got)
		}
	}
}

// TestLookout: nothing is looked for on the best path, something soon after a
// fall, and less and less often where there never was anything better.
func TestLookout(t *testing.T) {
	now := time.Unix(1000, 0)
	var l lookout
	var looks []time.Duration
	run := func(class overlay.Technique, d time.Duration) {
		t.Helper()
		looks = nil
		start := now
		for ; now.Sub(start) < d; now = now.Add(50 * time.Millisecond) {
			if l.using(class, now); l.due(now) {
				looks = append(looks, now.Sub(start))
				l.looked(class, now)
			}
		}
	}
	run(overlay.SimultaneousOpen, time.Hour)
	if len(looks) != 0 {
		t.Errorf("on the best path: %v", looks)
	}
	run(overlay.Relay, 2*time.Minute)
	if looks[0] != firstLook || looks[len(looks)-1]-looks[len(looks)-2] != mostRest {
		t.Errorf("after a fall: %v", looks)
	}
	run(overlay.SimultaneousOpen, time.Minute)
	if len(looks) != 0 {
		t.Errorf("back again: %v", looks)
	}
	l = lookout{}
	run(overlay.Relay, time.Hour)
	if looks[0] != firstLook || len(looks) > 20 {
		t.Errorf("where there never was better: %v", looks)
	}
}

// current waits until a link sends by a technique.
func current(t *testing.T, l *Link, want overlay.Technique) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if p, _ := l.Current(); p.Technique == want && len(l.Carriers()) > 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("rank %d sends by %+v, waited for %v", l.Peer.Rank, l.Carriers(), want)
		}
	}
}

// TestLinkMoves: a link starts on a relay, moves to the direct path when there
// is one, falls back to the relay that was kept when that path goes silent, and
// is back when it has returned. Nothing is lost on the way.
func TestLinkMoves(t *testing.T) {
	r := newRoads(t)
	r.block(overlay.Direct, errors.New("the road is closed"))
	a, b := couple(t, r, 0)
	both := func(want overlay.Technique) {
		t.Helper()
		current(t, a, want)
		current(t, b, want)
		pump(t, a, b, 1<<20)
	}
	both(overlay.Relay)
	r.block(overlay.Direct, nil)
	both(overlay.Direct)
	for range 2 {
		r.block(overlay.Direct, errors.New("the road is closed"))
		r.mute(overlay.Direct)
		pump(t, a, b, 1<<20)
		both(overlay.Relay)
		if n := r.count(overlay.Relay); n != 1 {
			t.Errorf("%d relays were dialled, the one at the start was to be kept", n)
		}
		r.block(overlay.Direct, nil)
		both(overlay.Direct)
	}
}

// TestLinkFallsBack: a link that had no relay gets one when its path goes
// silent, though dials of all ways find none.
func TestLinkFallsBack(t *testing.T) {
	r := newRoads(t)
	a, b := couple(t, r, 0)
	pump(t, a, b, 1<<20)
	r.mute(overlay.Direct)
	r.block(overlay.Direct, errors.New("the road is closed"))
	pump(t, a, b, 1<<20)
	current(t, a, overlay.Relay)
	current(t, b, overlay.Relay)
	r.block(overlay.Direct, nil)
	current(t, a, overlay.Direct)
	current(t, b, overlay.Direct)
	pump(t, a, b, 1<<20)
}

// TestLeaveKeepsTheLast: a carrier that was left for a better one stays when that
// one has died meanwhile.
func TestLeaveKeepsTheLast(t *testing.T) {
	r := newRoads(t)
	a, b := couple(t, r, 0)
	dialler := a
	if b.Dialled {
		dialler = b
	}
	s := dialler.stream
	k := &keeper{link: dialler}
	k.leave(s.Carriers()[0].Carrier, errBetter)
	for end := time.Now().Add(leaving + time.Second); time.Now().Before(end); {
		pump(t, a, b, 1<<20)
	}
	if n := r.count(overlay.Direct) + r.count(overlay.Relay); n != 1 {
		t.Errorf("%d connections were dialled where one would do", n)
	}
}
