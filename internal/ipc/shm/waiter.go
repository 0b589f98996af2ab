package shm

import "time"

// A WaitPolicy sets how a process waits. The zero value suits a process that has a processor to
// itself.
type WaitPolicy struct {
	// Crowded means that more processes of the job than processors want to run: a polling process
	// keeps the one it waits for from running, so it yields at once, and continues to yield while
	// that lets other processes run.
	Crowded bool

	// Budget is how long a wait polls before it should sleep: 50 us if 0. If negative, a wait
	// should sleep at once.
	Budget time.Duration
}

// A Step is the action of a wait after a poll that found nothing.
type Step uint8

const (
	Spin  Step = iota + 1 // call [Pause], then poll
	Yield                 // call [YieldCPU], then poll
	Park                  // announce the sleep, then sleep
	Nap                   // call [NapCPU], then poll
)

// YieldEvery is the number of polls after which a wait should let other goroutines run if there is
// only one processor: that costs as much as a poll.
const YieldEvery = 16

const (
	defaultBudget = 50 * time.Microsecond
	maxBudget     = 5 * time.Millisecond

	fewSpins = 128 // before the first call of Next
	minSpins = 4

	// A crowded wait yields this often even after its budget is spent, unless a yield takes so long
	// that the process running instead must be computing.
	crowdYields = 64
	longYield   = time.Millisecond

	// A wait tests this often whether others want the processor, and assumes so while a yield takes
	// longer than quickYield: until several in a row were quick. After a yield that took longYield
	// the other process is computing, and the wait does not yield again for that long.
	tryEvery   = 100 * time.Microsecond
	quickYield = 2 * time.Microsecond
	quickRow   = 16
	noYieldFor = 100 * time.Millisecond

	// A crowded process with that many useless turns looks for another place in the order of turns,
	// and keeps it for a while, twice as long after each time that it did not help.
	maxUselessYields = 64
	minStay          = 2 * time.Millisecond
	maxStay          = 256 * time.Millisecond

	gain    = 2  // budgets that a successful wait adds to the account
	most    = 16 // maximum of the account, in budgets
	sampled = 16 // one in so many waits polls even though the account is empty
)

// A Waiter decides how the waits of one thread proceed. It reads no clock and does nothing itself:
// times are since any fixed moment.
//
// A wait spins where the peer can run meanwhile, and yields where the two share a processor: always
// if that is crowded, else while they happen to be on the same one. It also yields while others
// want the processor and soon return it, which it tests now and then: the wait may depend on them
// indirectly. A yield to a computing process costs a time slice; it is not tried again for long.
//
// Processes that yield to each other on one processor run in turn, in a stable order. With an
// unfavourable order, what a process waits for is sent long after its turn, and it and others run
// without effect before its next turn. A process that detects this sleeps briefly: the turn in
// which it wakes is arbitrary and becomes its new place, so that it soon finds a favourable one.
//
// Useless polling is bounded: a wait that succeeded within its budget pays two budgets into an
// account, and one that did not is charged the time it took. Once the account is empty, only every
// 16th wait polls for longer than a moment, until one of those succeeds.
type Waiter struct {
	policy WaitPolicy
	credit time.Duration
	asked  int // waits that found the account empty
	spin   int // spins of a wait before it calls Next: few if the last wait ended beside its peer

	// Of the current wait.
	spins, yields int  // spins since the last call of Next; yields so far
	timed         bool // start is set
	start, last   time.Duration
	brief         bool // the account is empty

	// Of other processes that want the processor.
	yielded bool          // the last step was a yield
	tried   time.Duration // time of the last test; if in the future, no test before it
	wanted  bool          // others want the processor
	quick   int           // consecutive yields that no other process used

	// Of the process's place in the order of turns.
	uselessYields int           // useless turns, minus one for each wait
	stay          time.Duration // minimum time in the next place
	stays         time.Duration // end of the minimum time in this one
}

// NewWaiter returns a waiter with a full account.
func NewWaiter(p WaitPolicy) *Waiter {
	switch {
	case p.Budget == 0:
		p.Budget = defaultBudget
	case p.Budget < 0:
		p.Budget = 0
	}
	p.Budget = min(p.Budget, maxBudget)
	return &Waiter{policy: p, credit: most * p.Budget, spin: fewSpins, stay: minStay}
}

// Begin starts a wait.
func (w *Waiter) Begin() {
	w.spins, w.yields, w.timed, w.brief, w.yielded = 0, 0, false, false, false
	if w.credit <= 0 {
		w.asked++
		w.brief = w.asked%sampled != 0
	}
}

// Spinning reports whether the next step is Spin, whatever the time: then the caller need not read
// a clock for Next, which takes as long as a small message. It counts as that step.
func (w *Waiter) Spinning() bool {
	if w.spins >= w.Spins() {
		return false
	}
	w.spins++
	return true
}

// Spins returns how many steps at the start of a wait are Spin, whatever the time.
func (w *Waiter) Spins() int {
	if w.policy.Crowded || w.policy.Budget == 0 {
		return 0
	}
	return w.spin
}

// Next returns the step after a poll that found nothing, once Spinning is false. beside means that
// the process waited for was last seen on the caller's processor.
func (w *Waiter) Next(now time.Duration, beside bool) Step {
	if !w.timed {
		w.timed, w.start, w.last = true, now, now
	}
	long := now - w.last
	w.last = now
	if w.yielded {
		w.judge(now, long)
	}
	if w.shouldMove(now) {
		return Nap
	}
	if !w.keepSpinning(now-w.start, long) {
		w.credit = max(w.credit-(now-w.start), 0)
		return Park
	}
	if beside || w.policy.Crowded || w.wanted {
		w.spin, w.yielded = minSpins, true
		w.yields++
		return Yield
	}
	if now-w.tried >= tryEvery {
		w.spin, w.spins, w.yielded = fewSpins, fewSpins, true // so that the next call measures the yield
		return Yield
	}
	w.spin, w.spins, w.yielded = fewSpins, 1, false
	return Spin
}

// shouldMove reports whether the process must look for another place.
func (w *Waiter) shouldMove(now time.Duration) bool {
	if w.uselessYields < maxUselessYields || w.yields > 0 || now < w.stays {
		return false
	}
	w.uselessYields = 0
	w.stays = now + w.stay + scatter(now)%w.stay
	w.stay = min(2*w.stay, maxStay)
	return true
}

// scatter returns a pseudo-random time of up to a minute that depends on now: processes that all
// moved at once would be in the same order again.
func scatter(now time.Duration) time.Duration {
	return time.Duration(uint64(now) * 0x9e3779b97f4a7c15 >> 28)
}

// judge evaluates how long a yield took.
func (w *Waiter) judge(now, long time.Duration) {
	w.tried = now
	switch {
	case long >= longYield:
		w.wanted, w.tried = false, now+noYieldFor
	case long > quickYield:
		w.wanted, w.quick = true, 0
	default:
		if w.quick++; w.quick >= quickRow {
			w.wanted = false
		}
	}
}

func (w *Waiter) keepSpinning(spent, long time.Duration) bool {
	switch {
	case w.policy.Budget == 0 || w.brief:
		return false
	case spent < w.policy.Budget:
		return true
	default:
		return w.policy.Crowded && w.yields < crowdYields && long < longYield
	}
}

// Found ends a successful wait that has not parked.
func (w *Waiter) Found() {
	if w.policy.Crowded {
		if w.uselessYields = min(max(w.uselessYields+w.yields-1, 0), 2*maxUselessYields); w.uselessYields == 0 {
			w.stay = minStay
		}
	}
	w.credit = min(w.credit+gain*w.policy.Budget, most*w.policy.Budget)
}
