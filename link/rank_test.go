package link

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
)

// carries is what the paths of a simulated link carry.
type carries struct {
	direct, relay float64 // bytes per second
	rtt           time.Duration
	offered       float64 // by the processes; 0: unlimited
}

// simulated is a link under a ranker, with an end that looks for a better path as improve.go does:
// at once when the class is not avoided.
type simulated struct {
	ranker
	now   time.Time
	class overlay.Technique
	noise float64 // the rates are wrong by up to this factor
	rng   *rand.Rand
	moves []time.Time // from one class to another
	moved float64     // bytes
	best  float64     // that an oracle would have moved
}

func newSimulated(seed uint64, noise float64) *simulated {
	return &simulated{now: time.Unix(1e9, 0), class: overlay.Direct, noise: noise, rng: rand.New(rand.NewPCG(seed, 5))}
}

func (s *simulated) use(class overlay.Technique) {
	if s.class != class {
		s.class, s.moves = class, append(s.moves, s.now)
	}
}

// run advances time.
func (s *simulated) run(d time.Duration, c carries) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(rankEvery)
		rate := c.direct
		if s.class == overlay.Relay {
			rate = c.relay
		}
		best := max(c.direct, c.relay)
		rate *= 1 + (s.noise-1)*s.rng.Float64()
		held := true
		if c.offered > 0 {
			best = min(best, c.offered)
			held, rate = rate <= c.offered, min(rate, c.offered)
		}
		s.moved += rate * rankEvery.Seconds()
		s.best += best * rankEvery.Seconds()
		switch s.next(reading{class: s.class, took: rankEvery, held: held, bytes: uint64(rate * rankEvery.Seconds()), rtt: c.rtt}, s.now) {
		case wantTry:
			s.use(overlay.Relay)
			s.begin()
		case failed:
			s.use(overlay.Direct)
		}
		if _, avoided := s.avoids(overlay.Direct, s.now); s.class == overlay.Relay && !s.trying && !avoided {
			s.use(overlay.Direct)
		}
	}
}

// TestRank: what a link does with given path rates.
func TestRank(t *testing.T) {
	const mb = 1e6
	for _, tc := range []struct {
		name  string
		steps []carries // a minute each
		ends  overlay.Technique
		moves int // maximum
	}{
		{"nothing is wrong", []carries{{100 * mb, 100 * mb, time.Millisecond, 0}}, overlay.Direct, 0},
		{"the relay is faster, but the path carries enough", []carries{{10 * mb, 100 * mb, time.Millisecond, 0}}, overlay.Direct, 0},
		{"slow from the start", []carries{{0.04 * mb, 30 * mb, 20 * time.Millisecond, 0}}, overlay.Relay, 3},
		{"slow later on", []carries{{50 * mb, 30 * mb, 20 * time.Millisecond, 0}, {0.04 * mb, 30 * mb, 20 * time.Millisecond, 0}}, overlay.Relay, 3},
		{"nothing at all later on", []carries{{50 * mb, 30 * mb, 20 * time.Millisecond, 0}, {0, 30 * mb, 20 * time.Millisecond, 0}}, overlay.Relay, 3},
		{"both are slow", []carries{{0.04 * mb, 0.05 * mb, 20 * time.Millisecond, 0}}, overlay.Direct, 4},
		{"slow, and well again", []carries{{0.04 * mb, 30 * mb, 20 * time.Millisecond, 0}, {50 * mb, 30 * mb, 20 * time.Millisecond, 0}, {50 * mb, 30 * mb, 20 * time.Millisecond, 0}}, overlay.Direct, 4},
		{"little is sent on a slow path", []carries{{0.04 * mb, 30 * mb, 20 * time.Millisecond, 0.01 * mb}}, overlay.Direct, 0},
		{"the relay takes all that is sent", []carries{{0.04 * mb, 30 * mb, 20 * time.Millisecond, 0.5 * mb}}, overlay.Relay, 3},
		{"the relay becomes slower than the path was", []carries{{0.2 * mb, 30 * mb, time.Millisecond, 0}, {0.2 * mb, 0.04 * mb, time.Millisecond, 0}}, overlay.Direct, 8},
	} {
		s := newSimulated(1, 1)
		for _, c := range tc.steps {
			s.run(time.Minute, c)
		}
		if s.class != tc.ends || len(s.moves) > tc.moves {
			t.Errorf("%s: it ends on %v after %d moves, want %v and %d at most", tc.name, s.class, len(s.moves), tc.ends, tc.moves)
		}
	}
}

// TestRankSamePath: a relay that gained nothing over one technique is not tried soon over another on the same
// path, which the other end may have dialled meanwhile; over one on another path it is.
func TestRankSamePath(t *testing.T) {
	for class, tries := range map[overlay.Technique]bool{
		overlay.Direct: false, overlay.Reversed: false, overlay.SimultaneousOpen: false, overlay.Traversing: false, overlay.HolePunching: true,
	} {
		now := time.Unix(1e9, 0)
		var k ranker
		k.fail(overlay.Traversing, 0.04e6, now)
		tried := false
		for range 20 {
			now = now.Add(rankEvery)
			tried = tried || k.next(reading{class: class, took: rankEvery, held: true, bytes: 10e3}, now) == wantTry
		}
		if tried != tries {
			t.Errorf("%v: tried %v", class, tried)
		}
	}
}

// TestRankLeavesSoon: a path that falls to nothing is left within half a second and a few round
// trips, and for good after about as long again.
func TestRankLeavesSoon(t *testing.T) {
	for _, rtt := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond, 600 * time.Millisecond} {
		s := newSimulated(1, 1)
		s.run(30*time.Second, carries{50e6, 50e6, rtt, 0})
		fell := s.now
		s.run(30*time.Second, carries{40e3, 50e6, rtt, 0})
		// The readings before the fall count together with those after it, once.
		if len(s.moves) != 1 || s.moves[0].Sub(fell) > 2*(judgeFor+judgeRTTs*rtt)+2*rankEvery {
			t.Errorf("round trip %v: moved %v after the path fell", rtt, s.moves[0].Sub(fell))
		}
		if why, avoided := s.avoids(overlay.Direct, fell.Add(20*time.Second)); !avoided || !strings.HasPrefix(why, "direct carried 0.3 Mb/s, a relay 4") {
			t.Errorf("round trip %v: avoided %v: %q", rtt, avoided, why)
		}
	}
}

// TestRankAgainstOracle: with any paths and noise, a link moves most of what an oracle moves that
// knows what both carry, does not leave a path for one that is no better, and oscillates less and
// less often.
func TestRankAgainstOracle(t *testing.T) {
	seeds := uint64(30)
	if testload.Full() {
		seeds = 400
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 6))
		pick := func(of ...float64) float64 { return of[rng.IntN(len(of))] }
		c := carries{
			direct: pick(2e4, 4e4, 2e5, 8e5, 3e6, 5e7), relay: pick(2e4, 1e5, 8e5, 3e6, 5e7),
			rtt: time.Duration(pick(0, 1, 20, 200, 600)) * time.Millisecond,
		}
		s := newSimulated(seed, pick(1, 1.3, 1.6))
		const lasts = 2 * time.Hour
		s.run(lasts, c)
		name := fmt.Sprintf("seed %d: %+v, noise %v: %d moves, %.2f of the oracle's bytes", seed, c, s.noise, len(s.moves), s.moved/s.best)
		// Both kinds of wait double from half a minute to ten, two moves each.
		if len(s.moves) > 2*(5+int(lasts/maxAvoid)) {
			t.Error(name)
		}
		switch ratio := c.relay / c.direct; {
		case ratio < 0.9 && len(s.moves) > 0 && s.class != overlay.Direct:
			t.Errorf("%s: it ends on a relay that carries less", name)
		case ratio >= 4 && c.direct < slowRate/s.noise && s.moved < 0.9*s.best:
			t.Errorf("%s: it is on the slow path most of the time", name)
		case c.direct > plenty && len(s.moves) > 0:
			t.Errorf("%s: nothing was wrong with the path", name)
		}
		for i := 2; i < len(s.moves); i += 2 {
			if pause := s.moves[i].Sub(s.moves[i-2]); pause < 20*time.Second {
				t.Errorf("%s: it left the same path twice in %v", name, pause)
				break
			}
		}
	}
}

// TestRankSilence: a class whose carriers fall silent repeatedly is avoided, longer each time, and
// one that died once, or lives long, is not.
func TestRankSilence(t *testing.T) {
	var k ranker
	now := time.Unix(1e9, 0)
	die := func(after, lived time.Duration) (avoided time.Duration) {
		now = now.Add(after)
		if !k.silent(overlay.HolePunching, lived, now) {
			return 0
		}
		return k.recordOf(overlay.HolePunching).until.Sub(now)
	}
	for i, step := range []struct{ after, lived, want time.Duration }{
		{0, 20 * time.Second, 0},
		{time.Second, 20 * time.Second, 0}, // one of several that died at once
		{30 * time.Second, 20 * time.Second, 0},
		{30 * time.Second, 20 * time.Second, deathAvoid},
		{40 * time.Second, 20 * time.Second, 2 * deathAvoid},
		{time.Minute, 20 * time.Second, 4 * deathAvoid},
		{time.Hour, 50 * time.Minute, 0},
		{30 * time.Second, 20 * time.Second, 0},
		{30 * time.Second, 20 * time.Second, deathAvoid},
	} {
		if got := die(step.after, step.lived); got != step.want {
			t.Errorf("death %d: avoided for %v, want %v", i, got, step.want)
		}
	}
	if why, yes := k.avoids(overlay.HolePunching, now); !yes || why != "hole-punching fell silent 3 times, the last after 20s" {
		t.Errorf("%q, %v", why, yes)
	}
	for range 9 {
		if now = now.Add(time.Minute); k.silent(overlay.Relay, time.Second, now) {
			t.Error("a relay is avoided: nothing is left")
		}
	}
}

// TestRankFall: a class is suspect while another one on the same path fell silent a moment ago.
func TestRankFall(t *testing.T) {
	var k ranker
	now := time.Unix(1e9, 0)
	k.silent(overlay.Reversed, time.Minute, now)
	for class, want := range map[overlay.Technique]bool{
		overlay.Direct: true, overlay.PortRange: true, overlay.Reversed: true, overlay.SimultaneousOpen: true, overlay.Traversing: true,
		overlay.HolePunching: false, overlay.Relay: false,
	} {
		if got := k.fellLately(class, time.Second, now.Add(time.Second-1)); got != want {
			t.Errorf("%v: %v, want %v", class, got, want)
		}
		if k.fellLately(class, time.Second, now.Add(time.Second)) {
			t.Errorf("%v: it fell a second ago", class)
		}
	}
}

// TestRankFarther: a path whose round trips take far longer than a relay's is left because of that,
// if the relay carries as much.
func TestRankFarther(t *testing.T) {
	for _, tc := range []struct {
		path, relay time.Duration
		carries     uint64 // bytes per reading, of the relay
		want        finding
	}{
		{400 * time.Millisecond, 60 * time.Millisecond, 1e6, won},
		{400 * time.Millisecond, 60 * time.Millisecond, 1e3, failed},
		{100 * time.Millisecond, 60 * time.Millisecond, 1e6, keep},
		{5 * time.Millisecond, time.Millisecond, 1e6, keep},
	} {
		var k ranker
		now, class, last, rtt := time.Unix(1e9, 0), overlay.Direct, keep, tc.path
		for range 120 {
			now = now.Add(rankEvery)
			r := reading{class: class, took: rankEvery, held: true, bytes: 500e3, rtt: rtt, relay: tc.relay}
			if class == overlay.Relay {
				r.bytes, r.relay = tc.carries, 0
			}
			f := k.next(r, now)
			if f != keep {
				last = f
			}
			if f == wantTry {
				class, rtt = overlay.Relay, tc.relay
				k.begin()
			}
			if f == won || f == failed {
				break
			}
		}
		if last != tc.want {
			t.Errorf("%v, by a relay %v: %v, want %v", tc.path, tc.relay, last, tc.want)
		}
	}
}

// TestRankSlowStart: a flow that has just begun is not taken for a slow path while it grows, however
// much a relay carried before; one that does not grow is, and so is one that is as slow later.
func TestRankSlowStart(t *testing.T) {
	const rtt = 600 * time.Millisecond
	for _, tc := range []struct {
		name   string
		young  bool
		factor float64 // from one judgement to the next
		want   finding
	}{
		{"it grows", true, 4, keep},
		{"it does not grow", true, 1, wantTry},
		{"it is old", false, 4, wantTry},
	} {
		var k ranker
		now := time.Unix(1e9, 0)
		look := func(class overlay.Technique, rate float64, young bool) (found finding) {
			for range 12 { // 3 s, and a judgement
				now = now.Add(rankEvery)
				r := reading{class: class, took: rankEvery, held: true, young: young, bytes: uint64(rate * rankEvery.Seconds()), rtt: rtt}
				if f := k.next(r, now); f != keep {
					found = f
				}
			}
			return found
		}
		look(overlay.Relay, 25e6, false)
		found := look(overlay.SimultaneousOpen, 50e3, tc.young)
		if tc.young && found != keep {
			t.Errorf("%s: at first %v", tc.name, found)
		}
		if found == keep {
			found = look(overlay.SimultaneousOpen, tc.factor*50e3, tc.young)
		}
		if found != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, found, tc.want)
		}
	}
}
