package spin

import "time"

const (
	defaultBudget = 200 * time.Microsecond
	maxBudget     = time.Millisecond // beyond it a deadline would be late by too much

	gain      = 2  // budgets that a wait pays in when spinning was worth it
	most      = 16 // budgets that an account holds
	probeOne  = 16 // of so many waits one spins though the account is empty
	fewYields = 4  // of a wait where there is one processor
)

// A gauge decides whether and how long the waits of one connection spin. It
// looks at no clock: times are since any fixed moment.
type gauge struct {
	budget time.Duration // of one wait; 0 means that none spins
	credit time.Duration // what may be spent in vain before waits go without
	asked  int           // waits that found the account empty

	start  time.Duration // of the wait under way
	yields int           // that it may still make

	expect  bool // that the next read will find nothing at first
	foresaw int  // reads that were foreseen to wait, or tried
}

// newGauge returns a gauge whose account is full: a connection begins with
// handshakes, which are answered soon.
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

// begin starts a wait that spins, with so many processors.
func (g *gauge) begin(now time.Duration, processors int) {
	g.start, g.yields = now, int(^uint(0)>>1)
	if processors == 1 {
		g.yields = fewYields
	}
}

// keepSpinning reports, after a poll that found nothing, whether to yield and poll
// again. If not, the wait is over, in vain.
func (g *gauge) keepSpinning(now time.Duration) bool {
	spent := now - g.start
	if spent < g.budget && g.yields > 0 {
		g.yields--
		return true
	}
	g.pay(spent)
	return false
}

// end tells that the wait ended with data, or with the connection, and
// whether spinning was worth it.
func (g *gauge) end(now time.Duration) bool {
	if spent := now - g.start; spent > g.budget {
		g.pay(spent) // the CPU was somebody else's for long: sleeping would have been no later
		return false
	}
	g.credit = min(g.credit+gain*g.budget, most*g.budget)
	return true
}

// predict reports whether a read should not even look before it yields: there
// is one processor, and the last read paid for a wait and took all there was, as
// it is when two peers on that processor take turns. Every 16th read looks.
func (g *gauge) predict(processors int) bool {
	if !g.expect || processors != 1 || g.credit <= 0 {
		return false
	}
	g.foresaw++
	return g.foresaw%probeOne != 0
}

func (g *gauge) pay(spent time.Duration) { g.credit = max(g.credit-spent, 0) }
