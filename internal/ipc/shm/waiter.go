package shm

import "time"

// A Pace says how a process waits. The zero value is a good one for a process
// that has a processor to itself.
type WaitPolicy struct {
	// Crowded says that more processes of the job than processors want to run: one that
	// polls keeps the one it waits for from running, so it yields at once, and goes on
	// yielding while that gives the processor to others.
	Crowded bool

	// Budget is how long a wait polls before it should sleep: 50 us if 0. It is not
	// spent by one that should sleep at once, if negative.
	Budget time.Duration
}

// A Step is what a wait should do after a poll that found nothing.
type Step uint8

const (
	Spin  Step = iota + 1 // call [Pause], then poll
	Yield                 // call [YieldCPU], then poll
	Park                  // announce the sleep, then sleep
	Nap                   // call [NapCPU], then poll
)

// YieldEvery is after how many polls who waits should let other goroutines run where there is one
// processor for all: that costs as much as a poll.
const YieldEvery = 16

const (
	defaultBudget = 50 * time.Microsecond
	maxBudget     = 5 * time.Millisecond

	fewSpins = 128 // before the first question
	minSpins = 4

	// A crowded wait makes so many yields though its budget is spent, unless one
	// takes so long that whoever runs instead must be computing.
	crowdYields = 64
	longYield   = time.Millisecond

	// A wait tries so often whether others want the processor, and takes it that they do
	// while a yield takes longer than quickYield: until so many in a row were quick. Where
	// one took longYield whoever runs instead computes, and is left alone for so long.
	tryEvery   = 100 * time.Microsecond
	quickYield = 2 * time.Microsecond
	quickRow   = 16
	noYieldFor = 100 * time.Millisecond

	// A crowded process that had so many turns in vain looks for another place among those
	// that take turns, and then stays for a while, twice as long each time it did not help.
	maxUselessYields = 64
	minStay          = 2 * time.Millisecond
	maxStay          = 256 * time.Millisecond

	gain    = 2  // budgets that a wait which paid adds to the account
	most    = 16 // budgets that the account holds
	sampled = 16 // of so many waits one polls though the account is empty
)

// A Waiter decides how the waits of one thread go on. It looks at no clock and
// does nothing itself: times are since any fixed moment.
//
// A wait spins where the peer can run meanwhile, and yields where the two share a
// processor: always if that is crowded, else while they happen to be on the same. It yields
// as well while it finds that others want the processor who soon give it back, which it tries
// now and then: they may be what it waits for by other ways. To yield beside who computes costs
// a time slice; it is not tried again for long.
//
// Processes that yield to each other on one processor run in turn, in an order that
// stays as it is. With a bad one, what a process waits for is sent long after its turn, and it and
// others run in vain before it has its next. Who finds that to be so sleeps for a moment: the
// turn during which it wakes is as good as any, so that is its new place, and the best one before long.
//
// What is polled in vain is bounded: a wait that found something within its
// budget pays two budgets into an account, one that did not pays what it took.
// Once it is empty, only every 16th wait polls for longer than a moment, until one of those pays.
type Waiter struct {
	policy WaitPolicy
	credit time.Duration
	asked  int // waits that found the account empty
	spin   int // spins of a wait before it asks: few where the last wait ended beside its peer

	// Of the wait under way.
	spins, yields int  // spins since it last asked; yields so far
	timed         bool // start is set
	start, last   time.Duration
	brief         bool // the account is empty

	// Of others who want the processor.
	yielded bool          // the last step was a yield
	tried   time.Duration // when it was tried last; later: not to be tried before
	wanted  bool          // somebody does
	quick   int           // yields in a row that nobody made use of

	// Of the process's place among those that take turns.
	uselessYields int           // turns that brought nothing, less one for each wait
	stay          time.Duration // how long it keeps the next place at least
	stays         time.Duration // until when it keeps this one
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

// Spinning reports whether the next step is Spin, whatever the time: the
// caller of Next need not look at a clock, which takes as long as a small
// message. It counts as that step.
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

// Next says what to do after a poll that found nothing, once Spinning is false. beside
// says that one who is waited for was last seen on the caller's processor.
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
		w.spin, w.spins, w.yielded = fewSpins, fewSpins, true // so that the next question tells how long it took
		return Yield
	}
	w.spin, w.spins, w.yielded = fewSpins, 1, false
	return Spin
}

// shouldMove reports whether the process is to look for another place.
func (w *Waiter) shouldMove(now time.Duration) bool {
	if w.uselessYields < maxUselessYields || w.yields > 0 || now < w.stays {
		return false
	}
	w.uselessYields = 0
	w.stays = now + w.stay + scatter(now)%w.stay
	w.stay = min(2*w.stay, maxStay)
	return true
}

// scatter returns some time of up to a minute, another one for each now: processes that all moved
// at once would find themselves in the same order again.
func scatter(now time.Duration) time.Duration {
	return time.Duration(uint64(now) * 0x9e3779b97f4a7c15 >> 28)
}

// judge notes how long a yield took.
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

// Found ends a wait that found something, without having parked.
func (w *Waiter) Found() {
	if w.policy.Crowded {
		if w.uselessYields = min(max(w.uselessYields+w.yields-1, 0), 2*maxUselessYields); w.uselessYields == 0 {
			w.stay = minStay
		}
	}
	w.credit = min(w.credit+gain*w.policy.Budget, most*w.policy.Budget)
}
