package checkpoint

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	b := Budget{Share: .02, First: time.Second}
	if b.IsDue(time.Second - 1) {
		t.Error("due before the first")
	}
	if !b.IsDue(time.Second) {
		t.Error("the first is not due")
	}
	b.Begin()
	b.Spend(30 * time.Millisecond) // 20 were earned
	b.Spend(10 * time.Millisecond) // sent later
	for _, c := range []struct {
		at  time.Duration
		due bool
	}{{3999 * time.Millisecond, false}, {4001 * time.Millisecond, true}, {time.Hour, true}} { // 40 for each state
		if b.IsDue(c.at) != c.due {
			t.Errorf("at %v due: %v", c.at, !c.due)
		}
	}
	b.Begin()
	b.Spend(time.Millisecond)
	if b.IsDue(time.Hour) {
		t.Error("another one is due while the last has cost 1 ms so far, and the one before 40")
	}
	b.Spend(39 * time.Millisecond)
	if b.IsDue(time.Hour + 1999*time.Millisecond) {
		t.Error("an hour without states is followed by two")
	}
	if !b.IsDue(time.Hour + 2*time.Second) {
		t.Error("the third is not due")
	}
	if b.Spent() != 80*time.Millisecond {
		t.Errorf("spent %v", b.Spent())
	}
}

// Whatever states cost, the sum is at most the share of the time, the first state, and what each took more than was
// expected of it until it was earned; and if they cost the same, and more than is earned from one look to the next, the share is used.
func TestBudgetHolds(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b := Budget{Share: .02, First: 500 * time.Millisecond}
		mean := time.Duration(1+rng.IntN(100)) * time.Millisecond
		isEven := seed%2 == 0
		now, most := time.Duration(0), time.Duration(0)
		for now < 10*time.Minute {
			now += time.Duration(rng.IntN(200)) * time.Millisecond
			if !b.IsDue(now) {
				continue
			}
			if b.states > 0 && float64(b.spent+min(b.last, b.spent-b.began)) > .02*float64(now) {
				t.Fatalf("seed %d: a state is due after %v, of which %v were spent", seed, now, b.spent)
			}
			b.Begin()
			cost := mean
			if !isEven {
				cost = time.Duration(rng.Int64N(int64(2 * mean)))
			}
			most = max(most, cost)
			b.Spend(cost / 2)
			now += cost
			b.Spend(cost - cost/2)
			if float64(b.spent) > .02*float64(now)+float64(most) {
				t.Fatalf("seed %d: after %v %v were spent, of states of at most %v", seed, now, b.spent, most)
			}
		}
		if isEven && mean > 10*time.Millisecond && float64(b.spent) < .015*float64(now)-float64(mean) {
			t.Errorf("seed %d: after %v only %v were spent, of states of %v", seed, now, b.spent, mean)
		}
	}
}
