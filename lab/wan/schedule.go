package wan

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// perPacketRate is the rate, in bit/s, below which packets must arrive one by one: a 64 KiB
// super-packet occupies a slower link for more than a millisecond, and dropping it would drop 45
// packets at once.
const perPacketRate = 500_000_000

// minQueue is the minimum default Queue, two of the largest super-packets.
const minQueue = 128 << 10

// A fate is the decision about one packet.
type fate uint8

const (
	fatePass     fate = iota // release at the due time
	fateLost                 // drop: drawn by Loss
	fateOverflow             // drop: the queue of the link was full
)

// A link is the state of one path between two packets. It has no clock: times are durations since
// the emulator's start and never decrease from call to call.
type link struct {
	free time.Duration // when the last accepted packet has left the sender's end
	last time.Duration // the latest due time returned
	rng  *rand.Rand
}

// newLink returns the link of the path from -> to. Its random draws depend only on seed and the two
// names, so adding a path does not change the others' runs.
func newLink(seed uint64, from, to string) *link {
	h := fnv.New64a()
	h.Write([]byte(from))
	h.Write([]byte{0})
	h.Write([]byte(to))
	return &link{rng: rand.New(rand.NewPCG(seed, h.Sum64()))}
}

// admit decides the fate of a packet of size wire bytes that arrives now: its
// due time if it passes, and whether it arrives twice. A Shape field that is
// zero draws nothing.
//
//	due = max(now, free) + size/Rate + Delay ± Jitter
func (l *link) admit(s *Shape, now time.Duration, size int) (f fate, due time.Duration, twice bool) {
	if s.Loss > 0 && l.rng.Float64() < s.Loss {
		return fateLost, 0, false
	}
	sent := now
	if s.Rate > 0 {
		start := max(now, l.free)
		end := start + transmission(size, s.Rate)
		if end-now > transmission(s.queueLimit(), s.Rate) {
			return fateOverflow, 0, false
		}
		l.free, sent = end, end
	}
	twice = s.Duplicate > 0 && l.rng.Float64() < s.Duplicate
	delay := s.Delay
	if s.Jitter > 0 {
		delay = max(0, delay-s.Jitter+time.Duration(l.rng.Int64N(2*int64(s.Jitter)+1)))
	}
	due = sent + delay
	if !s.Reorder {
		due = max(due, l.last)
	}
	l.last = max(due, l.last)
	return fatePass, due, twice
}

// transmission returns how long size bytes take at rate bit/s, which is
// positive. It saturates at a century.
func transmission(size int, rate int64) time.Duration {
	const century = 100 * 365 * 24 * float64(time.Hour)
	return time.Duration(min(century, float64(size)*8*float64(time.Second)/float64(rate)))
}

// queueLimit returns the bytes that may wait for the link, including the packet being sent.
func (s *Shape) queueLimit() int {
	if s.Queue > 0 {
		return s.Queue
	}
	bdp := float64(s.Rate) / 8 * (2 * s.Delay).Seconds()
	return max(minQueue, int(min(bdp, 1<<40)))
}

// perPacket reports whether super-packets must be segmented before s is applied to them.
func (s *Shape) perPacket() bool {
	return s.Rate > 0 && s.Rate < perPacketRate ||
		s.Loss > 0 && s.Loss < 1 ||
		s.Duplicate > 0 ||
		s.Reorder && s.Jitter > 0
}

// assign spreads paths over at most limit queues and returns each path's
// queue, counted from 0, how many queues there are, and whether each path has
// its own. Otherwise all paths of an In interface share one.
func assign(paths []Path, limit int) (queue []int, n int, own bool) {
	queue = make([]int, len(paths))
	if len(paths) <= limit {
		for i := range paths {
			queue[i] = i
		}
		return queue, len(paths), true
	}
	seen := make(map[string]int)
	for i, p := range paths {
		k, ok := seen[p.In]
		if !ok {
			k = len(seen)
			seen[p.In] = k
		}
		queue[i] = k % limit
	}
	return queue, min(len(seen), limit), false
}
