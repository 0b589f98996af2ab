// Package wan emulates wide-area paths for packets that a network namespace
// forwards between its interfaces.
package wan

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnsupported is returned by New where the kernel is not Linux.
var ErrUnsupported = errors.New("wan: the emulator needs Linux (network namespaces and NFQUEUE)")

// A Shape is what one direction of a path does to its packets. The zero Shape
// does nothing: packets are counted and released at once.
type Shape struct {
	// Delay is the one-way propagation delay, from the end of a packet's
	// transmission to its release.
	Delay time.Duration
	// Jitter varies Delay for each packet, drawn evenly from
	// [Delay-Jitter, Delay+Jitter] and never below zero. Order is kept all the
	// same: a packet that drew a short delay waits for those before it.
	Jitter time.Duration
	// Reorder lets a packet with a shorter delay overtake: Jitter then changes
	// the order of packets.
	Reorder bool
	// Loss is the probability, 0 to 1, that a packet is dropped. 1 cuts the
	// path.
	Loss float64
	// Duplicate is the probability, 0 to 1, that a packet arrives twice.
	Duplicate float64
	// Rate limits the path, in bits of IP packets per second; 0 is no limit.
	Rate int64
	// Queue is how many bytes may wait for the link before the next packet is
	// dropped; 0 chooses the bytes that Rate carries in 2*Delay (one round trip
	// where both directions are alike), and at least 128 KiB. Without a Rate
	// nothing waits and Queue means nothing.
	Queue int
}

// A Path is one ordered pair of places and the two interfaces between which
// its packets are forwarded.
type Path struct {
	From, To string // names for people and for Counters, such as site names
	In, Out  string // interface names in the namespace New is called in
	Shape
}

// Options are the settings of a whole Emulator. The zero value is good.
type Options struct {
	// Seed starts the random draws of every path (loss, duplicates, jitter). Two
	// runs with equal seeds that see equal packets do equal things.
	Seed uint64
	// FirstQueue is the first NFQUEUE number used in the namespace; the queues
	// after it follow without a gap.
	FirstQueue uint16
	// MaxQueues bounds the queues, and with them the threads; 0 means 64.
	// While the paths are no more than that each has its own; beyond it all
	// paths that enter by one interface share a queue.
	MaxQueues int
}

// A Counter is what one path has done so far.
type Counter struct {
	From, To string

	Packets    uint64        // IP packets carried, those on their way included
	Bytes      uint64        // bytes of these packets, IP header included
	Messages   uint64        // writes and datagrams among them, see the package comment
	Dropped    uint64        // packets not carried: Lost + Overflowed
	Lost       uint64        // dropped by Shape.Loss
	Overflowed uint64        // dropped because Shape.Queue (or the emulator's own bound) was full
	Duplicated uint64        // packets that were sent twice, each counted once in Packets
	LateMax    time.Duration // longest time from a packet's due time to its release
	LateAvg    time.Duration // mean of the same
}

// maxDelay bounds Delay and Jitter; no path on earth needs more.
const maxDelay = time.Minute

// Validate says what is wrong with s, naming the field and its value.
func (s Shape) Validate() error {
	switch {
	case s.Delay < 0 || s.Delay > maxDelay:
		return fmt.Errorf("delay %v is not between 0 and %v", s.Delay, maxDelay)
	case s.Jitter < 0 || s.Jitter > maxDelay:
		return fmt.Errorf("jitter %v is not between 0 and %v", s.Jitter, maxDelay)
	case !(s.Loss >= 0 && s.Loss <= 1):
		return fmt.Errorf("loss %v is not between 0 and 1", s.Loss)
	case !(s.Duplicate >= 0 && s.Duplicate <= 1):
		return fmt.Errorf("duplicate %v is not between 0 and 1", s.Duplicate)
	case s.Rate < 0:
		return fmt.Errorf("rate %d bit/s is negative", s.Rate)
	case s.Queue < 0:
		return fmt.Errorf("queue %d bytes is negative", s.Queue)
	}
	return nil
}
