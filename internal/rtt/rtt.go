// Package rtt estimates the round trip of a path, and says how long to wait for an answer on it. Whoever waits for the
// other end of a path takes the time from an Estimate of that path: a constant is too short on some path, and there is
// none that a probe or a session may not meet.
//
// It opens no socket and has no clock. An Estimate belongs to who holds it.
package rtt

import "time"

const (
	granularity = 200 * time.Millisecond // least time beyond the round trip, as Linux adds it (TCP_RTO_MIN)

	// unmeasured is the RTO of a path of which nothing is known (RFC 6298, section 2.1).
	unmeasured = time.Second

	// MaxRTO bounds one wait (RFC 6298, section 2.4, asks for 60 s at least).
	MaxRTO = time.Minute

	minTries, maxTries = 2, 6 // transmissions that count for Silence

	// farthest is what a path of which nothing is known is taken for: two hops over a geostationary satellite, and
	// some queue.
	farthest = 1500 * time.Millisecond
)

// Estimate is the smoothed round trip of a path and its variation (RFC 6298). The zero value knows nothing.
type Estimate struct {
	SRTT, Var time.Duration
}

// IsMeasured reports whether anything is known of the path.
func (e Estimate) IsMeasured() bool { return e.SRTT > 0 }

// Add returns the estimate after another sample, which must not be that of a question that was repeated, since its
// answer may be to either (section 3).
func (e Estimate) Add(sample time.Duration) Estimate {
	sample = max(sample, 1)
	if !e.IsMeasured() {
		return Estimate{SRTT: sample, Var: sample / 2} // section 2.2
	}
	return Estimate{SRTT: (7*e.SRTT + sample) / 8, Var: (3*e.Var + (e.SRTT - sample).Abs()) / 4} // section 2.3
}

// RTO returns how long to wait for an answer before the question is repeated for the n-th time, counted from 0: the
// time doubles (sections 2 and 5.5).
func (e Estimate) RTO(n int) time.Duration {
	first := unmeasured
	if e.IsMeasured() {
		first = e.SRTT + max(4*e.Var, granularity)
	}
	return min(first<<min(max(n, 0), 16), MaxRTO)
}

// Answer returns how long an answer may take where the network or TCP repeats what is lost: the times of so many
// round trips, of which each may be lost once, and of a machine that is busy for a second. Nothing is to be concluded
// from a shorter silence.
func (e Estimate) Answer(trips int) time.Duration {
	trip := farthest
	if e.IsMeasured() {
		trip = e.SRTT + min(4*e.Var, e.SRTT)
	}
	return time.Duration(3+trips)*trip + time.Second
}

// Silence returns how long it takes until the path is dead in all likelihood when TCP repeats what is not acknowledged, each
// time after twice as long, and of sent segments repeated were sent again so far. That share of all transmissions is lost: a
// silence is the path's death when at most one in a thousand is as long by chance, and after the first repetition and the
// time for its answer at least.
func (e Estimate) Silence(sent, repeated uint64) time.Duration {
	tries, chance := minTries, 1.0
	if repeated > 0 && sent > 0 {
		lost := min(float64(repeated)/float64(max(sent, repeated)), 1)
		tries = 0
		for ; tries < minTries || chance > 0.001 && tries < maxTries; tries++ {
			chance *= lost
		}
	}
	return e.RTO(tries - 1)
}

// Longer returns the one of two estimates that has to wait longer.
func (e Estimate) Longer(o Estimate) Estimate {
	if !e.IsMeasured() || o.IsMeasured() && o.RTO(0) > e.RTO(0) {
		return o
	}
	return e
}
