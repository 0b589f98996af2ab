package dialwindow

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// retransmissions are the times at which Linux retransmits a SYN (tcp_syn_linear_timeouts is 4).
var retransmissions = []time.Duration{1, 2, 3, 4, 5, 7, 11, 19}

// site is a firewall and a path, in virtual time.
type site struct {
	rate, burst float64 // of SYNs; rate 0: unlimited
	loss        float64
	rtt         time.Duration
	rng         *rand.Rand

	tokens float64
	at     time.Duration
}

// passes reports whether a SYN sent at t is answered.
func (s *site) passes(t time.Duration) bool {
	if s.rng.Float64() < s.loss {
		return false
	}
	if s.rate == 0 {
		return true
	}
	s.tokens = min(s.burst, s.tokens+s.rate*(t-s.at).Seconds())
	s.at = t
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}

// event is an event of a dial.
type event struct {
	at   time.Duration
	dial int
	try  int // SYNs sent; -1: an answer, -2: its turn is over
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// play starts n dials one after the other, each gap after the previous one; those for which dead is
// true are never answered. It returns when each was answered, how many SYNs were sent, how small
// the window was and whether the site was reported to limit connections.
func play(s *site, w *window, n int, gap time.Duration, dead func(int) bool) (answered []time.Duration, syns, least int, limited bool) {
	zero := time.Unix(1000, 0)
	answered = make([]time.Duration, n)
	begun, over := make([]time.Duration, n), make([]bool, n)
	arrived, next := 0, 0
	var queue events
	least = w.size
	for arrived < n || len(queue) > 0 {
		var now time.Duration
		if arrival := time.Duration(arrived) * gap; arrived < n && (len(queue) == 0 || arrival <= queue[0].at) {
			now, arrived = arrival, arrived+1
		} else {
			e := heap.Pop(&queue).(event)
			now = e.at
			switch {
			case e.try == -1:
				answered[e.dial] = now
				w.answered(zero.Add(now), now-begun[e.dial] >= lateAfter)
				fallthrough
			case e.try == -2:
				if _, is := w.limited(zero.Add(now)); e.try == -2 && is && now < begun[e.dial]+limitedSlotTime {
					break
				}
				if !over[e.dial] {
					over[e.dial] = true
					w.leave()
				}
			default:
				syns++
				if s.passes(now) && !dead(e.dial) {
					heap.Push(&queue, event{now + s.rtt, e.dial, -1})
				} else if e.try < len(retransmissions) {
					jitter := time.Duration(s.rng.IntN(int(50 * time.Millisecond))) // of the kernel's timers
					heap.Push(&queue, event{begun[e.dial] + retransmissions[e.try]*time.Second + jitter, e.dial, e.try + 1})
				}
			}
		}
		for next < arrived && w.admit(zero.Add(now)) {
			begun[next] = now
			heap.Push(&queue, event{now, next, 0})
			heap.Push(&queue, event{now + slotTime, next, -2})
			heap.Push(&queue, event{now + limitedSlotTime, next, -2})
			next++
		}
		least = min(least, w.size)
		_, is := w.limited(zero.Add(now))
		limited = limited || is
	}
	return answered, syns, least, limited
}

func none(int) bool { return false }

// Where five SYNs a second pass, dials are answered approximately in their order, with few lost
// SYNs; without the window there are far more, and the last ones wait for long.
func TestLimitedSite(t *testing.T) {
	for seed := range uint64(20) {
		s := &site{rate: 5, burst: 5, rtt: 50 * time.Millisecond, rng: rand.New(rand.NewPCG(seed, 1))}
		w := newWindow()
		answered, syns, _, limited := play(s, &w, 200, 0, none)
		if !limited {
			t.Fatalf("seed %d: not noticed", seed)
		}
		if w.rate < 3 || w.rate > 8 {
			t.Errorf("seed %d: %.1f connections a second, want about 5", seed, w.rate)
		}
		if syns > 3*len(answered) {
			t.Errorf("seed %d: %d SYNs for %d connections", seed, syns, len(answered))
		}
		for i, at := range answered {
			fair := time.Duration(float64(i) / s.rate * float64(time.Second))
			if at == 0 || at > fair*3/2+12*time.Second {
				t.Errorf("seed %d: dial %d was answered after %v; its turn was after %v", seed, i, at, fair)
			}
		}
		free := &window{size: 1 << 20}
		if _, all, _, _ := play(&site{rate: 5, burst: 5, rtt: s.rtt, rng: s.rng}, free, 200, 0, none); all < 2*syns {
			t.Errorf("seed %d: %d SYNs without a window, %d with one", seed, all, syns)
		}
	}
}

// A site without a limit is never reported to limit connections, even with packet loss, and its
// dials do not wait for more than a few round trips.
func TestFreeSite(t *testing.T) {
	for _, loss := range []float64{0, 0.02, 0.1} {
		for seed := range uint64(20) {
			s := &site{loss: loss, rtt: 100 * time.Millisecond, rng: rand.New(rand.NewPCG(seed, 2))}
			w := newWindow()
			answered, _, least, limited := play(s, &w, 300, 0, none)
			if limited || least < initialSize {
				t.Fatalf("loss %v, seed %d: limited %v, window %d", loss, seed, limited, least)
			}
			if last := answered[len(answered)-1]; loss == 0 && last > 6*s.rtt {
				t.Errorf("the last of %d was answered after %v", len(answered), last)
			}
		}
	}
}

// A host that does not answer delays the others for a while, and shows nothing about the site.
func TestDeadPeer(t *testing.T) {
	s := &site{rtt: 20 * time.Millisecond, rng: rand.New(rand.NewPCG(1, 3))}
	w := newWindow()
	dead := func(i int) bool { return i%2 == 0 }
	answered, _, least, limited := play(s, &w, 100, 10*time.Millisecond, dead)
	if limited || least < initialSize {
		t.Errorf("limited %v, window %d", limited, least)
	}
	for i, at := range answered {
		if wait := at - time.Duration(i)*10*time.Millisecond; !dead(i) && wait > slotTime {
			t.Errorf("dial %d was answered after %v", i, wait)
		}
	}
}

// A limit without further signs is forgotten.
func TestLimitIsForgotten(t *testing.T) {
	s := &site{rate: 5, burst: 5, rtt: 50 * time.Millisecond, rng: rand.New(rand.NewPCG(1, 4))}
	w := newWindow()
	play(s, &w, 64, 0, none)
	if w.until.IsZero() {
		t.Fatal("not noticed")
	}
	if _, is := w.limited(w.until.Add(time.Second)); is {
		t.Error("still limited")
	}
	if w.admit(w.until.Add(time.Second)); w.size < initialSize || w.open != 1 {
		t.Errorf("a window of %d with %d open", w.size, w.open)
	}
}

// TestWasLost: a SYN that is sent again only because the round trip is long was not lost.
func TestWasLost(t *testing.T) {
	for name, tc := range map[string]struct {
		retransmitted int
		rtt, took     time.Duration // in ms
		want          bool
	}{
		"answered at once":              {0, 20, 20, false},
		"busy machine":                  {0, 20, 3000, false},
		"lost once":                     {1, 20, 1020, true},
		"lost twice":                    {2, 20, 3020, true},
		"long path":                     {1, 1400, 1400, false},
		"long path, busy machine":       {1, 1400, 1900, false},
		"lost on a long path":           {1, 1400, 2400, true},
		"lost, no timestamps":           {1, 0, 1020, true},
		"longer than two transmissions": {2, 3200, 3200, false},
	} {
		if got := wasLost(tc.retransmitted, tc.rtt*time.Millisecond, tc.took*time.Millisecond); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
