package carrier

import "time"

// This file decides when a connection is to change its congestion control because of
// losses. Reno and cubic (RFC 5681, RFC 9438) take each loss for a full path: where one packet in a
// hundred is lost for other reasons, a round trip of 200 ms leaves them 1 Mb/s. BBR sends by
// the rate at which data arrives. On a path that is full it is the less considerate, so it is
// chosen only where the losses are not the path's way to say so.

// lossTolerant is the congestion control that such a connection gets, if the kernel has it
// and lets this process choose it.
const lossTolerant = "bbr"

const (
	lossEvery  = time.Second      // between two looks at a connection
	lossWithin = 30 * time.Second // losses further apart say nothing

	minLosses    = 4                    // segments sent again, in
	minLossLooks = 2                    // looks at least, for one burst is a queue that overflowed,
	maxPerLoss   = 500                  // and one at least of so many segments that were sent
	minLossRTT   = 5 * time.Millisecond // below, a window has grown again soon

	// A queue that is about to overflow is seen in the round trip: losses count while that is
	// no longer than the shortest by more than a part of it, or so much.
	queuePart  = 4
	queueSlack = 5 * time.Millisecond
)

// lossSample is what the kernel has counted on a connection.
type lossSample struct {
	segments uint32 // with data, sent; those sent again included
	again    uint32 // of them, sent again
	rtt      time.Duration
	shortest time.Duration // of all round trips
}

// losses judges the samples of one connection. The zero value is ready.
type losses struct {
	last  lossSample
	begun bool

	since    time.Time // that these count from
	segments uint32
	again    uint32
	looks    int // that found losses
}

// lossy takes a sample, and reports whether data is lost that no queue has dropped.
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
