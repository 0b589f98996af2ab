package carrier

import "time"

// This file decides when a connection changes its congestion control because of losses. Reno and
// cubic (RFC 5681, RFC 9438) take each loss for a full path: where one packet in a hundred is lost
// for other reasons, a round trip of 200 ms leaves them 1 Mb/s. BBR sends at the rate at which data
// arrives. On a full path it is less fair, so it is chosen only where the losses are not the path's
// congestion signal.

// lossTolerant is the congestion control that such a connection gets, if the kernel has it and lets
// this process choose it.
const lossTolerant = "bbr"

const (
	lossEvery  = time.Second      // between two checks of a connection
	lossWithin = 30 * time.Second // losses further apart mean nothing

	minLosses    = 4                    // retransmitted segments, in
	minLossLooks = 2                    // at least this many checks, because one burst is a queue that overflowed,
	maxPerLoss   = 500                  // and at least one for this many sent segments
	minLossRTT   = 5 * time.Millisecond // below, a window grows again quickly

	// A queue that is about to overflow shows in the round trip: losses count while that exceeds
	// the shortest by at most a part of it, or this much.
	queuePart  = 4
	queueSlack = 5 * time.Millisecond
)

// lossSample holds the kernel's counters of a connection.
type lossSample struct {
	segments uint32 // data segments sent, including retransmissions
	again    uint32 // of them, retransmissions
	rtt      time.Duration
	shortest time.Duration // minimum round trip
}

// losses evaluates the samples of one connection. The zero value is ready.
type losses struct {
	last  lossSample
	begun bool

	since    time.Time // start of the counters below
	segments uint32
	again    uint32
	looks    int // checks that found losses
}

// lossy processes a sample, and reports whether data is lost that no queue has dropped.
func (l *losses) lossy(x lossSample, now time.Time) bool {
	segments, again := x.segments-l.last.segments, x.again-l.last.again // they wrap
	first := !l.begun
	l.last, l.begun = x, true
	if first {
		l.since = now
		return false
	}
	if now.Sub(l.since) > lossWithin {
		*l = losses{last: x, begun: true, since: now}
	}
	if x.shortest < minLossRTT || x.rtt > x.shortest+max(x.shortest/queuePart, queueSlack) {
		return false
	}
	l.segments += segments
	l.again += again
	if again > 0 {
		l.looks++
	}
	return l.looks >= minLossLooks && l.again >= minLosses && uint64(l.again)*maxPerLoss >= uint64(l.segments)
}
