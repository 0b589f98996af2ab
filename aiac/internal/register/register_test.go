package register

import (
	"math/rand/v2"
	"testing"
)

// everyRegister returns all registers of two tasks whose states are at most the given one.
func everyRegister(highest state) (all []Register) {
	for a := running(0); a <= highest; a++ {
		for b := running(1); b <= highest; b++ {
			all = append(all, Register{[]state{a, b}})
		}
	}
	return all
}

// The laws of a state-based CRDT, for all small registers: the merge is commutative, associative and
// idempotent, and is the least register that is not below either.
func TestMergeIsALeastUpperBound(t *testing.T) {
	below := func(a, b Register) bool { return a.states[0] <= b.states[0] && a.states[1] <= b.states[1] }
	all := everyRegister(running(4))
	for _, a := range all {
		if !a.Merge(a).Equal(a) {
			t.Fatalf("%v merged with itself is %v", a, a.Merge(a))
		}
		for _, b := range all {
			ab := a.Merge(b)
			if !ab.Equal(b.Merge(a)) || !below(a, ab) || !below(b, ab) {
				t.Fatalf("%v and %v merge to %v and %v", a, b, ab, b.Merge(a))
			}
			for _, c := range all {
				if !ab.Merge(c).Equal(a.Merge(b.Merge(c))) {
					t.Fatalf("the merge of %v, %v, %v depends on the order", a, b, c)
				}
				if below(a, c) && below(b, c) && !below(ab, c) {
					t.Fatalf("%v and %v merge to %v, and %v is less", a, b, ab, c)
				}
			}
		}
	}
}

// An event is the start of a process for a task, or its death.
type event struct {
	task   int
	number uint32
	lost   bool
}

func (e event) in(r Register) Register {
	if e.lost {
		return r.Lost(e.task, e.number)
	}
	return r.Replaced(e.task, e.number)
}

// Whoever learns of all events has the same register, though it learns them in another order, more
// than once, or from other registers.
func TestOrderDoesNotMatter(t *testing.T) {
	events := []event{{0, 0, true}, {0, 3, false}, {0, 3, true}, {0, 5, false}, {1, 1, true}, {1, 4, false}}
	want := New(3)
	for _, e := range events {
		want = e.in(want)
	}
	if n, lost := want.Process(0); n != 5 || lost {
		t.Fatalf("task 0 is in process %d, lost: %v; want process 5", n, lost)
	}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := []Register{New(3), New(3), New(3)}
		for _, i := range rng.Perm(len(events)) {
			for range 1 + rng.IntN(2) {
				at := rng.IntN(len(all))
				all[at] = events[i].in(all[at])
			}
			from, to := rng.IntN(len(all)), rng.IntN(len(all))
			all[to] = all[to].Merge(all[from])
		}
		got := all[0].Merge(all[1]).Merge(all[2])
		if !got.Equal(want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

func TestStatesOfATask(t *testing.T) {
	r := New(3)
	lost := r.Lost(1, 1)
	if n, isLost := lost.Process(1); n != 1 || !isLost || lost.IsComplete() || !r.IsComplete() {
		t.Errorf("after the death of process 1: %v, before: %v", lost, r)
	}
	next := lost.Replaced(1, 3)
	if n, isLost := next.Process(1); n != 3 || isLost || !next.IsComplete() {
		t.Errorf("after its replacement: %v", next)
	}
	if !next.Lost(1, 1).Equal(next) || !next.Replaced(1, 1).Equal(next) {
		t.Error("a late report of process 1 changes the register")
	}
	if task, ok := next.Task(3); task != 1 || !ok {
		t.Errorf("process 3 runs task %d, %v", task, ok)
	}
	if _, ok := next.Task(1); ok {
		t.Error("process 1 still has a task")
	}
}
