package shm

import (
	"testing"
	"time"
)

// steps makes one wait that finds nothing, with a fixed time from step to step, and counts.
func steps(w *Waiter, each time.Duration) (spins, yields int) {
	w.Begin()
	for w.Spinning() {
		spins++
	}
	for now := time.Duration(0); w.Next(now, true) == Yield; now += each {
		yields++
	}
	return spins, yields
}

func TestWaits(t *testing.T) {
	const us = time.Microsecond
	for _, test := range []struct {
		name          string
		policy        WaitPolicy
		each          time.Duration
		spins, yields int
	}{
		{"alone", WaitPolicy{}, us, fewSpins, 50},
		{"slow yields", WaitPolicy{}, 20 * us, fewSpins, 3},
		{"own budget", WaitPolicy{Budget: 10 * us}, us, fewSpins, 10},
		{"budget beyond bounds", WaitPolicy{Budget: time.Second}, maxBudget / 10, fewSpins, 10},
		{"no budget", WaitPolicy{Budget: -1}, us, 0, 0},
		{"crowded, nobody there", WaitPolicy{Crowded: true}, us / 2, 0, 100},
		{"crowded, productive", WaitPolicy{Crowded: true}, 50 * us, 0, crowdYields},
		{"crowded by who computes", WaitPolicy{Crowded: true}, 3 * time.Millisecond, 0, 1},
	} {
		spins, yields := steps(NewWaiter(test.policy), test.each)
		if spins != test.spins || yields != test.yields {
			t.Errorf("%s: %d spins and %d yields, want %d and %d", test.name, spins, yields, test.spins, test.yields)
		}
	}
}

func TestWaitsInVainAreBounded(t *testing.T) {
	w := NewWaiter(WaitPolicy{})
	polled := 0
	for range 1000 {
		if _, yields := steps(w, time.Microsecond); yields > 0 {
			polled++
		}
	}
	if polled < most || polled > most+1+1000/sampled {
		t.Errorf("%d of 1000 waits in vain polled", polled)
	}
	for range 2 {
		w.Begin()
		w.Found() // successful
	}
	for i := range 4 {
		if _, yields := steps(w, time.Microsecond); yields == 0 {
			t.Errorf("wait %d after two that paid does not poll", i)
		}
	}
}

// A wait spins while its peer is elsewhere, and yields while it is on the same processor; the next
// wait yields after a short time.
func TestYieldsBesideThePeer(t *testing.T) {
	w := NewWaiter(WaitPolicy{})
	spins := func() (n int) {
		for w.Spinning() {
			n++
		}
		return n
	}
	w.Begin()
	for i, step := range []struct {
		beside bool
		spins  int // before it
		want   Step
	}{{false, fewSpins, Spin}, {false, fewSpins - 1, Spin}, {true, fewSpins - 1, Yield}, {true, 0, Yield}, {false, 0, Spin}, {true, fewSpins - 1, Yield}} {
		if n := spins(); n != step.spins {
			t.Errorf("step %d: after %d spins, want %d", i, n, step.spins)
		}
		if got := w.Next(time.Duration(i)*time.Microsecond, step.beside); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
	w.Found()
	w.Begin()
	if n := spins(); n != minSpins {
		t.Errorf("%d spins of the next wait, want %d", n, minSpins)
	}
}

// A wait that finds that others use its yields continues to yield, until they do not; a process
// that keeps the processor for long is left alone for a while.
func TestYieldsWhereOthersWantTheProcessor(t *testing.T) {
	const us = time.Microsecond
	w := NewWaiter(WaitPolicy{Budget: 5 * time.Millisecond})
	now := time.Second
	next := func(took time.Duration) Step {
		for w.Spinning() {
		}
		now += took
		return w.Next(now, false)
	}
	w.Begin()
	if next(0) != Yield || next(us) != Spin || next(us) != Spin {
		t.Fatal("nobody wants it: want one try")
	}
	if next(tryEvery) != Yield {
		t.Fatal("want another try after a time")
	}
	for i := range 3 {
		if next(20*us) != Yield {
			t.Fatalf("yield %d that another used: want more", i)
		}
	}
	for i := range quickRow - 1 {
		if next(us) != Yield {
			t.Fatalf("after %d quick ones: want more", i)
		}
	}
	if next(us) != Spin {
		t.Error("nobody wants it any more: want spinning")
	}
	w.Begin()
	if next(tryEvery) != Yield || next(2*longYield) != Spin {
		t.Fatal("somebody computes: want no more yields")
	}
	w.Begin()
	if next(tryEvery) != Spin {
		t.Error("want no try so soon after that")
	}
	w.Begin()
	if next(noYieldFor+tryEvery) != Yield {
		t.Error("want another try after a longer time")
	}
}

// rotation is a processor whose processes yield to each other and pass a token around.
type rotation struct {
	now     time.Duration
	waiters []*Waiter
	turns   []int                 // which process runs, in this order
	asleep  map[int]time.Duration // until when
	holder  int                   // which process can continue
	hops    int
	naps    int
}

// turn lets one process run until it yields or sleeps.
func (r *rotation) turn(t *testing.T) {
	r.now += 2 * time.Microsecond
	for p, until := range r.asleep {
		if until <= r.now {
			delete(r.asleep, p)
			r.turns = append([]int{p}, r.turns...)
		}
	}
	if len(r.turns) == 0 {
		return
	}
	p := r.turns[0]
	r.turns = r.turns[1:]
	w := r.waiters[p]
	if r.holder == p {
		w.Found()
		w.Begin()
		r.holder = (p + 1) % len(r.waiters)
		r.hops++
	}
	switch step := w.Next(r.now, true); step {
	case Yield:
		r.turns = append(r.turns, p)
	case Nap:
		r.asleep[p] = r.now + 60*time.Microsecond + r.now%(7*time.Microsecond)
		r.naps++
	default:
		t.Fatalf("step %d of rank %d, want a yield or a nap", step, p)
	}
}

// TestTurnsFallIntoOrder: whatever the order in which the processes of a ring get the processor,
// before long each one's turn follows that of its sender, and stays there.
func TestTurnsFallIntoOrder(t *testing.T) {
	for _, turns := range [][]int{{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {0, 3, 2, 1}} {
		r := rotation{turns: turns, asleep: map[int]time.Duration{}}
		for range turns {
			w := NewWaiter(WaitPolicy{Crowded: true})
			w.Begin()
			r.waiters = append(r.waiters, w)
		}
		const measured = 10_000
		for range 500_000 {
			r.turn(t)
		}
		before, naps := r.hops, r.naps
		for range measured {
			r.turn(t)
		}
		if hops := r.hops - before; hops < measured*9/10 || r.naps > naps {
			t.Errorf("from %v: %d hops in %d turns, with %d naps; %d naps before", turns, hops, measured, r.naps-naps, naps)
		}
	}
}

// TestNapsInVainGetRare: where no order is a good one, little time is spent on the search for it.
func TestNapsInVainGetRare(t *testing.T) {
	w := NewWaiter(WaitPolicy{Crowded: true})
	naps, waits := 0, 100_000
	for i := range waits {
		w.Begin()
		for turn := range 4 {
			if w.Next(time.Duration(10*i+2*turn)*time.Microsecond, true) == Nap {
				naps++
			}
		}
		w.Found()
	}
	if naps < 5 || naps > 12 { // in a second
		t.Errorf("%d naps", naps)
	}
}
