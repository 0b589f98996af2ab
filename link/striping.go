package link

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file stripes a link over several carriers as stripe.go decides. The end that dialled the
// link does so for both directions: the other end's headers say how much it has to send. All
// carriers of a stripe use one technique, that of the first.

var (
	errSurplus   = errors.New("the link is no faster for it")
	errOtherKind = errors.New("what came is of another technique than the carriers of the stripe")
)

// stripingState is the striping state of a supervisor. It is owned by the goroutine that watches
// the mesh's links.
type stripingState struct {
	striper
	due   time.Time
	last  stream.Load
	seen  time.Time                // when last was taken
	marks map[*stream.Carrier]mark // of the carriers in use
	retry time.Duration            // for a link with a configured number of carriers
}

// mark is what was known of a carrier at the last sample.
type mark struct {
	bytes  uint64 // carried, both ways
	recent uint64 // moving average of bytes a sample
	weight uint32 // 0: striping gave it none
}

// widening is the outcome of dialling more carriers. The supervisor's mu guards it.
type widening struct {
	under bool // under way
	done  bool
	err   error
}

// stripe takes a sample of the link when one is due.
func (sv *supervisor) stripe(now time.Time) {
	v := &sv.striping
	if now.Before(v.due) || sv.mesh.cfg.Carriers == 1 {
		return
	}
	v.due = now.Add(sampleEvery)
	if !sv.settled() {
		return
	}
	used := sv.stripes()
	if len(used) == 0 {
		return
	}
	v.weighAll(sv.link.stream, used)
	told := configuredCarriers(sv.mesh.cfg.Carriers, pathOf(used[0].Carrier).Technique)
	switch v.decide(told, sv.link.stream.Load(), time.Now(), used) {
	case addCarrier:
		sv.widen(now, used)
	case removeNewest:
		sv.retire(used[len(used)-1:])
	case keepOne:
		sv.retire(used[1:])
	}
}

// settled processes the outcome of dialling more carriers, and reports whether no dial is under
// way.
func (sv *supervisor) settled() bool {
	sv.mu.Lock()
	w := sv.widening
	sv.widening.done = false
	busy := sv.dialing || sv.improving || w.under
	sv.mu.Unlock()
	if w.done {
		sv.striping.added(w.err)
	}
	return !busy
}

// stripes returns the carriers that data is sent on, the oldest first.
func (sv *supervisor) stripes() (used []stream.State) {
	for _, c := range sv.link.stream.Carriers() {
		if c.Used && !c.Silent {
			used = append(used, c)
		}
	}
	return used
}

// decide returns the striper's verdict, or that of the configured number: told is that number, or
// 0. load is the stream's load at time at.
func (v *stripingState) decide(told int, load stream.Load, at time.Time, used []stream.State) verdict {
	last, since := v.last, at.Sub(v.seen)
	v.last, v.seen = load, at
	switch {
	case told > 0 && len(used) > told:
		return removeNewest
	case told > 0 && len(used) < told:
		return addCarrier
	case told > 0:
		return noChange
	}
	x := sample{
		bytes: perSample(load.Sent-last.Sent+load.Received-last.Received, since),
		held:  4*(load.Held-last.Held) >= 3*(load.Ticks-last.Ticks),
		rtt:   used[0].Least, carriers: len(used),
	}
	for _, c := range used {
		a, ok := c.Carrier.Owner.(*carrierInfo)
		x.rtt = min(x.rtt, leastRTT(c))
		x.lossy = x.lossy || ok && a.loss.Lossy()
	}
	return v.next(x)
}

// A carrier has fallen behind if it has held back the stream for behindAfter and behindTrips of its
// minimum round trips, while something has arrived on another one within heardWithin.
const (
	behindAfter = 2 * time.Second
	behindTrips = 8
	heardWithin = 500 * time.Millisecond
)

// leaveBehind retires a carrier that the others wait for, and what was sent on it goes again on them.
// Each end does so for what it sends.
func (sv *supervisor) leaveBehind() {
	used := sv.stripes()
	if i := behind(used); i >= 0 {
		sv.retire(used[i : i+1])
	}
}

// behind returns the carrier that the others wait for, or -1. Losses may leave one of several
// connections on a path with a few packets a round trip (RFC 5681, section 3.1), while what the
// others bring cannot be taken before what it has.
func behind(used []stream.State) int {
	for i, c := range used {
		alive := slices.ContainsFunc(used, func(o stream.State) bool { return o.Carrier != c.Carrier && o.Quiet <= heardWithin })
		if alive && c.Holds >= max(behindAfter, behindTrips*c.Least) {
			return i
		}
	}
	return -1
}

// leastRTT returns the minimum round trip time of a carrier, which its kernel knows better than this
// process if that was held up whenever it asked.
func leastRTT(c stream.State) time.Duration {
	if a, ok := c.Carrier.Owner.(*carrierInfo); ok && a.endToEnd() {
		if rtt, known := carrier.LeastRTT(a.socket); known {
			return min(c.Least, rtt)
		}
	}
	return c.Least
}

// perSample scales the bytes that arrived in a time to sampleEvery: samples are late by a tick or
// two, and by seconds after a search for a better path.
func perSample(bytes uint64, in time.Duration) uint64 {
	return uint64(float64(bytes) * float64(sampleEvery) / float64(max(in, time.Millisecond)))
}

// added processes the outcome of a verdict.
func (v *stripingState) added(err error) {
	if err == nil {
		v.retry = 0
		return
	}
	v.failed()
	v.retry = min(max(2*v.retry, firstLook), maxInterval)
	v.due = v.due.Add(v.retry)
}

// weighAll gives the carriers weights in proportion to what each brought recently.
func (v *stripingState) weighAll(s *stream.Stream, used []stream.State) {
	const minBytes = 256 << 10 // minimum bytes a sample that allow a conclusion
	marks := make(map[*stream.Carrier]mark, len(used))
	weights, brought, sum := make([]uint32, len(used)), make([]uint64, len(used)), uint64(0)
	for i, c := range used {
		m, known := v.marks[c.Carrier]
		moved := c.Acked + c.Received
		if known {
			m.recent = (3*m.recent + moved - min(m.bytes, moved)) / 4
		}
		m.bytes = moved
		marks[c.Carrier] = m
		weights[i], brought[i] = m.weight, m.recent
		sum += m.recent
	}
	v.marks = marks
	if len(used) < 2 || sum < minBytes {
		return
	}
	if weights, change := weigh(weights, brought); change {
		for i, c := range used {
			v.use(s, c.Carrier, weights[i])
		}
	}
}

// use sets a carrier's weight.
func (v *stripingState) use(s *stream.Stream, c *stream.Carrier, weight uint32) {
	m := v.marks[c]
	m.weight = weight
	v.marks[c] = m
	s.Use(c, weight)
}

// widen dials the carriers that the link lacks, of the technique in use. Each of them then shares
// in what is sent, with the smallest weight in use.
func (sv *supervisor) widen(now time.Time, used []stream.State) {
	v := &sv.striping
	weight := uint32(fullWeight)
	for _, c := range used {
		if w := v.marks[c.Carrier].weight; w > 0 {
			weight = min(weight, w)
		}
	}
	for _, c := range used {
		if v.marks[c.Carrier].weight == 0 {
			v.use(sv.link.stream, c.Carrier, weight)
		}
	}
	n := max(sv.mesh.cfg.Carriers-len(used), 1)
	class := pathOf(used[0].Carrier).Technique
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.widening = widening{under: sv.mesh.spawn(func(ctx context.Context) {
		var err error
		for ; n > 0 && err == nil; n-- {
			err = sv.join(ctx, class, weight)
		}
		sv.mu.Lock()
		defer sv.mu.Unlock()
		sv.widening = widening{done: true, err: err}
	})}
}

// join adds one more carrier of a class to the link: a standby one, or a new one.
func (sv *supervisor) join(ctx context.Context, class overlay.Technique, weight uint32) error {
	s := sv.link.stream
	for _, c := range s.Carriers() {
		if !c.Used && !c.Silent && !c.Carrier.Owner.(*carrierInfo).left.Load() && pathOf(c.Carrier).Technique == class {
			s.Use(c.Carrier, weight)
			return nil
		}
	}
	ways := overlay.DirectOnly
	if class == overlay.Relay {
		ways = overlay.RelayOnly // successive dials rotate among the proxies, so this one leads over another proxy
	}
	c, err := sv.dial(ctx, lookBound, ways)
	if err != nil {
		return err
	}
	used := sv.stripes()
	if pathOf(c).Technique != class || len(used) == 0 || pathOf(used[0].Carrier).Technique != class {
		sv.choose(c)
		return errOtherKind
	}
	s.Use(c, weight)
	return nil
}

// retire takes carriers out of the stripe.
func (sv *supervisor) retire(surplus []stream.State) {
	for _, c := range surplus {
		sv.link.stream.Use(c.Carrier, 0)
		sv.leave(c.Carrier, errSurplus)
	}
}
