package quota

import "time"

// Burst and batch of a bucket, as time at its rate. A bucket that was idle lets a burst pass at
// once. One that ran dry is checked again when it has a batch, because a wake-up for every few
// bytes costs more than the bytes.
const (
	burstTime = 20 * time.Millisecond
	batchTime = 2 * time.Millisecond
	minBurst  = 64 << 10 // bytes
)

// bucket is a token bucket whose tokens are bytes. Its level may become negative: a request for
// more than there is delays the following ones, and the rate is still enforced. A bucket without a
// rate grants everything.
type bucket struct {
	rate  float64 // bytes per second; 0: unlimited
	burst float64 // bytes, the maximum level
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

// open reports whether anything may pass, as of the last refill.
func (b *bucket) open() bool { return b.rate == 0 || b.level > 0 }

func (b *bucket) take(n int) {
	if b.rate != 0 {
		b.level -= float64(n)
	}
}

// putBack returns tokens that were taken and not used.
func (b *bucket) putBack(n int) {
	if b.rate != 0 {
		b.level = min(b.burst, b.level+float64(n))
	}
}

// nextRefill returns when to check a bucket that is not open again.
func (b *bucket) nextRefill() time.Time {
	if b.open() {
		return b.at
	}
	batch := min(b.burst, b.rate*batchTime.Seconds())
	seconds := (batch - b.level) / b.rate
	// One nanosecond more: after a wait that rounding cut short nothing would be available.
	return b.at.Add(time.Duration(seconds*float64(time.Second)) + 1)
}
