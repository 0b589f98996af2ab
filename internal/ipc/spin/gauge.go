package spin

import (
	"math"
	"time"
)

const (
	defaultBudget = 200 * time.Microsecond
	maxBudget     = time.Millisecond // beyond it a deadline would be too late

	gain     = 2  // budgets that a wait pays in when spinning was useful
	most     = 16 // maximum of the account, in budgets
	probeOne = 16 // one in so many waits spins even though the account is empty
	fewTurns = 4  // of others, within a wait on a single processor

	// minTurn is how long a poll and a yield take at least if another process had the processor meanwhile: twice
	// what they take without, and less than two switches of threads.
	minTurn = 2 * time.Microsecond
)

// A gauge decides whether and how long the waits of one connection spin. It reads no clock: times
// are since any fixed moment.
type gauge struct {
	budget time.Duration // of one wait; 0: none spins
	credit time.Duration // time that may be wasted before waits stop spinning
	asked  int           // waits that found the account empty

	start time.Duration // of the current wait
	last  time.Duration // of its latest poll
	turns int           // of others, which it may still wait for

	expect  bool // the next read is expected to find nothing at first
	foresaw int  // reads that were predicted to wait, or tested
}

// newGauge returns a gauge with a full account: a connection begins with handshakes, which are
// answered soon.
func newGauge(budget time.Duration) gauge {
	switch {
	case budget == 0:
		budget = defaultBudget
	case budget < 0:
		budget = 0
	}
	budget = min(budget, maxBudget)
	return gauge{budget: budget, credit: most * budget}
}

// worthwhile reports whether the next wait should spin.
func (g *gauge) worthwhile() bool {
	if g.budget == 0 {
		return false
	}
	if g.credit > 0 {
		return true
	}
	g.asked++
	return g.asked%probeOne == 0
}

// begin starts a wait that spins, on a number of processors.
func (g *gauge) begin(now time.Duration, processors int) {
	g.start, g.last, g.turns = now, now, math.MaxInt
	if processors == 1 {
		g.turns = fewTurns
	}
}

// keepSpinning reports, after a poll that found nothing, whether to yield and poll again. If not,
// the wait has failed.
func (g *gauge) keepSpinning(now time.Duration) bool {
	spent := now - g.start
	if now-g.last > minTurn {
		g.turns--
	}
	if g.last = now; spent < g.budget && g.turns > 0 {
		return true
	}
	g.pay(spent)
	return false
}

// end records that the wait ended with data, or with the connection, and reports whether spinning
// was useful.
func (g *gauge) end(now time.Duration) bool {
	if spent := now - g.start; spent > g.budget {
		g.pay(spent) // the CPU was used by others for long: sleeping would not have been slower
		return false
	}
	g.credit = min(g.credit+gain*g.budget, most*g.budget)
	return true
}

// predict reports whether a read should yield before its first poll: there is one processor, and
// the last read paid for a wait and took everything, as it is when two peers on that processor take
// turns. Every 16th read polls first.
func (g *gauge) predict(processors int) bool {
	if !g.expect || processors != 1 || g.credit <= 0 {
		return false
	}
	g.foresaw++
	return g.foresaw%probeOne != 0
}

func (g *gauge) pay(spent time.Duration) { g.credit = max(g.credit-spent, 0) }
