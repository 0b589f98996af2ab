package link

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestBetter(t *testing.T) {
	const no = false
	const ms = time.Millisecond
	for _, tc := range []struct {
		a, b quality
		want bool
	}{
		{quality{no, overlay.Direct, 90 * ms, no}, quality{no, overlay.Relay, 10 * ms, no}, true}, // another class: at once
		{quality{no, overlay.Relay, 10 * ms, no}, quality{no, overlay.Direct, 90 * ms, no}, false},
		{quality{no, overlay.Relay, 95 * ms, no}, quality{no, overlay.Relay, 100 * ms, no}, true},  // 5 ms
		{quality{no, overlay.Relay, 96 * ms, no}, quality{no, overlay.Relay, 100 * ms, no}, false}, // neither 5 ms nor a tenth
		{quality{no, overlay.Relay, 9 * ms, no}, quality{no, overlay.Relay, 10 * ms, no}, true},    // a tenth
		{quality{no, overlay.Relay, 9500, no}, quality{no, overlay.Relay, 10000, no}, false},
		{quality{no, overlay.Relay, 0, no}, quality{no, overlay.Relay, 0, no}, false},
		{quality{no, overlay.HolePunching, 10 * ms, no}, quality{no, overlay.HolePunching, 30 * ms, no}, false}, // one tunnel
		{quality{no, overlay.HolePunching, 30 * ms, no}, quality{no, overlay.Relay, 10 * ms, no}, true},
		{quality{true, overlay.HolePunching, 10 * ms, no}, quality{no, overlay.Relay, 10 * ms, no}, false}, // it was measured
		{quality{no, overlay.Relay, 90 * ms, no}, quality{true, overlay.HolePunching, 10 * ms, no}, true},
		{quality{no, overlay.Direct, 10 * ms, true}, quality{no, overlay.Relay, 10 * ms, no}, true}, // small packets are better than a relay
		{quality{no, overlay.Direct, 90 * ms, no}, quality{no, overlay.Direct, 10 * ms, true}, true},
		{quality{no, overlay.Direct, 10 * ms, true}, quality{no, overlay.Direct, 90 * ms, no}, false},
	} {
		if got := tc.a.better(tc.b); got != tc.want {
			t.Errorf("%v better than %v: %v", tc.a, tc.b, got)
		}
	}
}

// TestLookout: no look is made on the best path, one soon after a fallback, and fewer and fewer
// where there never was anything better.
func TestReplaces(t *testing.T) {
	direct := quality{class: overlay.Direct, rtt: 10 * time.Millisecond}
	nearer := quality{class: overlay.Direct, rtt: time.Millisecond}
	relay := quality{class: overlay.Relay, rtt: 30 * time.Millisecond}
	avoided := quality{avoided: true, class: overlay.Direct}
	for _, tc := range []struct {
		q, old quality
		used   int
		fell   bool
		want   bool
	}{
		{direct, relay, 1, false, true},
		{direct, relay, 1, true, false}, // may be policed
		{relay, direct, 1, false, false},
		{relay, avoided, 1, true, true}, // another relay fell, the path of the higher class is worse still
		{nearer, direct, 1, false, true},
		{nearer, direct, 1, true, true},
		{nearer, direct, 2, false, false}, // two together carry more
		{direct, relay, 2, false, true},
	} {
		if got := tc.q.replaces(tc.old, tc.used, tc.fell); got != tc.want {
			t.Errorf("%v replaces %v, one of %d, fell %v: %v", tc.q, tc.old, tc.used, tc.fell, got)
		}
	}
}

func TestLookout(t *testing.T) {
	now := time.Unix(1000, 0)
	var l lookout
	var looks []time.Duration
	run := func(class overlay.Technique, d time.Duration) {
		t.Helper()
		looks = nil
		start := now
		for ; now.Sub(start) < d; now = now.Add(50 * time.Millisecond) {
			if l.using(class, false, now); l.due(now) {
				looks = append(looks, now.Sub(start))
				l.looked(class, false, now)
			}
		}
	}
	run(overlay.SimultaneousOpen, time.Hour)
	if len(looks) != 0 {
		t.Errorf("on the best path: %v", looks)
	}
	run(overlay.Relay, 2*time.Minute)
	if looks[0] != afterFall || looks[len(looks)-1]-looks[len(looks)-2] != maxReturnInterval {
		t.Errorf("after a fall: %v", looks)
	}
	run(overlay.SimultaneousOpen, time.Minute)
	if len(looks) != 0 {
		t.Errorf("back again: %v", looks)
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 16} {
		if run(overlay.Relay, time.Minute); looks[0] != want*time.Second {
			t.Errorf("the first look after another fall soon after the return came after %v, want %v s", looks[0], int(want))
		}
		run(overlay.SimultaneousOpen, 2*time.Second)
	}
	run(overlay.SimultaneousOpen, 2*time.Minute)
	if run(overlay.Relay, time.Minute); looks[0] != afterFall {
		t.Errorf("the first look after a fall of a path that had lasted came after %v", looks[0])
	}
	l = lookout{}
	run(overlay.Relay, time.Hour)
	if looks[0] != firstLook || len(looks) > 22 {
		t.Errorf("where there never was better: %v", looks)
	}
	l.checkSoon(now)
	run(overlay.Relay, time.Minute)
	l.checkSoon(now)
	if len(looks) != 1 || looks[0] != 0 || l.due(now) {
		t.Errorf("a better path is known: %v", looks)
	}
	l.restart(now)
	if run(overlay.Relay, time.Minute); looks[0] != afterFall || len(looks) < 5 {
		t.Errorf("in another network: %v", looks)
	}
	run(overlay.SimultaneousOpen, time.Minute)
	if l.restart(now); !l.at.IsZero() {
		t.Errorf("in another network, on the best path: a look at %v", l.at)
	}
}

// current waits until a link sends by a technique.
func current(t *testing.T, l *Link, want overlay.Technique) {
	t.Helper()
	if !comesTo(l, want, 30*time.Second) {
		t.Fatalf("rank %d sends by %+v, waited for %v", l.Peer.Rank, l.Carriers(), want)
	}
}

// comesTo waits until a link sends by a technique, and reports whether it does so in time.
func comesTo(l *Link, want overlay.Technique, bound time.Duration) bool {
	for until := time.Now().Add(bound); ; time.Sleep(stream.Tick / 5) {
		if p, _ := l.Current(); p.Technique == want && len(l.Carriers()) > 0 {
			return true
		}
		if time.Now().After(until) {
			return false
		}
	}
}

// TestLinkMoves: a link starts on a relay, moves to the direct path when there is one, falls back
// to the standby relay when that path falls silent, and moves back when the path has returned.
// Nothing is lost on the way.
func TestLinkMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// relayOnly is a connector that finds no path but a relay.
type relayOnly struct{ overlay.Connector }

func (c relayOnly) Dial(ctx context.Context, to overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	return c.Connector.Dial(ctx, to, ways|overlay.RelayOnly)
}

// TestIdleCarrierIsUsed: the end that decides moves the link to a better carrier that it has
// although only the other end finds that path.
func TestIdleCarrierIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		r.block(overlay.Direct, errors.New("the road is closed"))
		links, meshes := meshesOf(t, r, 0, func(rank uint32, c overlay.Connector) overlay.Connector {
			if rank == 1 {
				return relayOnly{c}
			}
			return c
		})
		if err := meshes[1].Connect(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		a, b := linked(links[0]), linked(links[1])
		if !b.Dialled {
			t.Fatal("the other end dialled the link")
		}
		current(t, a, overlay.Relay)
		r.block(overlay.Direct, nil)
		if _, err := meshes[0].kept()[0].dial(t.Context(), oneDial, overlay.AllWays); err != nil {
			t.Fatal(err)
		}
		current(t, b, overlay.Direct)
		current(t, a, overlay.Direct)
		pump(t, a, b, 1<<20)
	})
}

// TestLinkFallsBack: a link without a relay gets one when its path falls silent, although dials in
// all ways find none.
func TestLinkFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// TestLeaveKeepsTheLast: a carrier that was left for a better one stays if that one has died
// meanwhile.
func TestLeaveKeepsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		a, b := couple(t, r, 0)
		dialler := a
		if b.Dialled {
			dialler = b
		}
		s := dialler.stream
		sv := &supervisor{link: dialler}
		sv.leave(s.Carriers()[0].Carrier, errBetter)
		for end := time.Now().Add(leaving + time.Second); time.Now().Before(end); time.Sleep(leaving / 20) {
			pump(t, a, b, 64<<10)
		}
		if n := r.count(overlay.Direct) + r.count(overlay.Relay); n != 1 {
			t.Errorf("%d connections were dialled where one would do", n)
		}
	})
}

// TestNewsOfABetterPath: when one link of a process finds a better path to a site, its other links
// to that site look for theirs at once, earlier than they would have.
func TestNewsOfABetterPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		r.block(overlay.Direct, errors.New("the road is closed"))
		links := make(chan *Link, 2)
		var dialler *Mesh
		for rank := range uint32(3) {
			m := NewMesh(Config{Self: identity(t, rank), Size: 3, Connector: r.end(rank), Carriers: 1, Up: func(l *Link) {
				if rank == 2 {
					links <- l
				}
			}})
			ctx, cancel := context.WithCancel(context.Background())
			var served sync.WaitGroup
			served.Go(func() { m.Serve(ctx) })
			t.Cleanup(func() { cancel(); served.Wait() })
			dialler = m
		}
		for peer := range uint32(2) {
			if err := dialler.Connect(t.Context(), peer); err != nil {
				t.Fatal(err)
			}
		}
		first, second := linked(links), linked(links)
		current(t, first, overlay.Relay)
		current(t, second, overlay.Relay)
		for _, sv := range dialler.kept() {
			if sv.link == second {
				sv.mu.Lock()
				sv.lookout.at, sv.lookout.interval = time.Now().Add(time.Hour), time.Hour
				sv.mu.Unlock()
			}
		}
		r.block(overlay.Direct, nil)
		current(t, first, overlay.Direct)
		current(t, second, overlay.Direct)
	})
}
