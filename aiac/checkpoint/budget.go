package checkpoint

import "time"

// A Budget decides when saving is due, so that what it takes stays below a share of the time. It earns that share as
// time passes, and pays what was spent; the next state is due when it has earned what the last one took, all
// of it: also what followed from it until now. It saves up no more than one state, so a long
// time without any is not followed by many.
//
// What was spent exceeds the share of the time by the first state, whose cost nobody knows, and by what a state
// takes more than the last one; both are earned before the next.
//
// Times are since the start. A Budget is pure, and belongs to its caller.
type Budget struct {
	Share float64       // of the time, above 0 and at most 1
	First time.Duration // before that nothing is due

	credit time.Duration // earned and not spent; below 0 after a state that cost more than was expected
	at     time.Duration // until when it is earned
	spent  time.Duration
	began  time.Duration // spent when the last state began
	last   time.Duration // what the state before that took
	states uint64
}

// IsDue reports whether a state is due at a time, which does not fall from call to call.
func (b *Budget) IsDue(elapsed time.Duration) bool {
	b.credit += time.Duration(b.Share * float64(max(0, elapsed-b.at)))
	b.at = max(b.at, elapsed)
	if b.states == 0 {
		return elapsed >= b.First
	}
	expected := max(b.last, b.spent-b.began)
	if b.credit < expected {
		return false
	}
	b.credit = expected
	return true
}

// Begin notes that a state is saved now: what is spent from here on is its cost.
func (b *Budget) Begin() {
	if b.states > 0 {
		b.last = b.spent - b.began
	}
	b.began = b.spent
	b.states++
}

// Spend notes what was spent on states, this task's or others'.
func (b *Budget) Spend(d time.Duration) {
	b.spent += d
	b.credit -= d
}

// Spent returns the sum of all Spend.
func (b *Budget) Spent() time.Duration { return b.spent }
