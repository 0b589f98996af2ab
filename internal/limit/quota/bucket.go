package quota

import "time"

// Burst and batch of a bucket, as time at its rate. A bucket that was idle lets
// a burst pass at once. One that ran dry is looked at again when it has a batch,
// because to wake up for every few bytes costs more than the bytes.
const (
	burstTime = 20 * time.Millisecond
	batchTime = 2 * time.Millisecond
	minBurst  = 64 << 10 // bytes
)

// bucket is a token bucket whose tokens are bytes. It may be drawn below zero:
// who takes more than there is makes those behind him wait the longer, and the
// rate holds all the same. A bucket without a rate gives anything.
type bucket struct {
	rate  float64 // bytes per second; 0 is no limit
	burst float64 // bytes, the most that is saved up
	level float64
	at    time.Time // of level
}

// setRate changes the rate from now on.
func (b *bucket) setRate(r Rate, now time.Time) {
	b.refill(now)
	fresh := b.rate == 0
	b.rate = r.bytes()
	b.burst = max(b.rate*burstTime.Seconds(), minBurst)
	if fresh {
		b.level = b.burst
	}
	b.level = min(b.level, b.burst)
}

func (b *bucket) refill(now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.level = min(b.burst, b.level+b.rate*d.Seconds())
		b.at = now
	}
}

// open reports at the time of the last refill whether anything may pass.
func (b *bucket) open() bool { return b.rate == 0 || b.level > 0 }

func (b *bucket) take(n int) {
	if b.rate != 0 {
		b.level -= float64(n)
	}
}

// putBack returns what was taken and not used.
func (b *bucket) putBack(n int) {
	if b.rate != 0 {
		b.level = min(b.burst, b.level+float64(n))
	}
}

// nextRefill is when a bucket that is not open is worth another look.
func (b *bucket) nextRefill() time.Time {
	if b.open() {
		return b.at
	}
	batch := min(b.burst, b.rate*batchTime.Seconds())
	seconds := (batch - b.level) / b.rate
	// One nanosecond more: a wait that rounding cut short would find nothing.
	return b.at.Add(time.Duration(seconds*float64(time.Second)) + 1)
}
