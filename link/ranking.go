package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file measures what a link's path carries, and carries out the decisions of rank.go. The end
// that dialled the link does so for both directions: the other end's headers say when that end has
// more to send than arrives.

// ranking holds the last reading. It is owned by the goroutine that watches the mesh's links.
type ranking struct {
	due  time.Time
	seen time.Time
	last stream.Load

	// The callbacks with the outcome of the latest path used of each class: its carriers may be dead
	// by the time the class is judged.
	outcomes map[overlay.Technique]func(error)
}

// noteUse records that a carrier is in use.
func (r *ranking) noteUse(a *carrierInfo) {
	if a.outcome == nil {
		return
	}
	if r.outcomes == nil {
		r.outcomes = map[overlay.Technique]func(error){}
	}
	r.outcomes[a.path.Technique] = a.outcome
}

// A carrier also holds back when it takes all that is sent, but that waits on the way: when the
// answer to a question takes longer than queueFor plus queueRTTs round trips, with queueBytes in
// flight or moved since the last reading.
const (
	queueFor   = 300 * time.Millisecond
	queueRTTs  = 4
	queueBytes = 16 << 10
)

// trials ensures that of a process's links to one site, possibly hundreds, only one at a time tries
// a relay instead of a technique: where the host itself slows all of them, a relay is no help.
// After a relay has won once, the others need not wait for each other.
type trials struct {
	mu   sync.Mutex
	next map[way]time.Time // when the next trial may begin
	won  map[way]time.Time // when a relay last won
}

const (
	trialLasts = 20 * time.Second // at most; after that the trial no longer counts
	trialPause = 5 * time.Second  // between a trial that ended and the next
)

// allowed reports whether a trial may begin, and if so records that it does.
func (t *trials) allowed(w way, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next, t.won = map[way]time.Time{}, map[way]time.Time{}
	}
	if last := t.won[w]; !last.IsZero() && now.Sub(last) < firstAvoid {
		return true
	}
	if now.Before(t.next[w]) {
		return false
	}
	t.next[w] = now.Add(trialLasts)
	return true
}

// ended records the end of a trial.
func (t *trials) ended(w way, won bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if won {
		t.won[w] = now
	}
	t.next[w] = now.Add(trialPause)
}

var errSlow = errors.New("a relay carries more")

// rank takes a reading when one is due, and reports whether a relay is on trial.
func (sv *supervisor) rank(now time.Time) bool {
	v := &sv.ranking
	if now.Before(v.due) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return sv.ranker.trying
	}
	v.due = now.Add(rankEvery)
	load, last, took := sv.link.stream.Load(), v.last, now.Sub(v.seen)
	first := v.seen.IsZero()
	v.last, v.seen = load, now
	r, relay, ok := sv.read(load, last, took)
	if !ok || first { // not ok includes readings delayed because this process itself was held up
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return sv.ranker.trying
	}
	sv.mu.Lock()
	f := sv.ranker.next(r, now)
	busy := sv.dialing || sv.improving || sv.widening.under
	if f == wantTry && !busy && sv.mesh.trials.allowed(way{sv.link.Path.Peer.Site, r.class}, now) {
		sv.improving = sv.mesh.spawn(func(ctx context.Context) { sv.try(ctx, relay) })
	}
	trying, from := sv.ranker.trying, sv.ranker.from
	why, _ := sv.ranker.avoids(from, now)
	sv.mu.Unlock()
	if f == won || f == failed {
		sv.mesh.trials.ended(way{sv.link.Path.Peer.Site, from}, f == won, now)
	}
	switch f {
	case won:
		sv.giveUp(from, why)
	case failed:
		sv.goBack(from)
	}
	return trying
}

// read takes a reading, and returns the standby relay, if there is one.
func (sv *supervisor) read(load, last stream.Load, took time.Duration) (r reading, relay *stream.Carrier, ok bool) {
	r = reading{
		took: took,
		held: 4*(load.Short-last.Short) >= 3*(load.Ticks-last.Ticks),
	}
	used, ok := sv.usedQuality()
	r.class, r.rtt = used.class, used.rtt
	queued := false
	r.young = true
	carriers := sv.link.stream.Carriers()
	for _, c := range carriers {
		// Count only carriers in use, because what still arrives on a path that was left says
		// nothing about the current one; and count only bytes of the stream, because questions are
		// sent while any arrive, and answers are not stream data.
		a, total := c.Carrier.Owner.(*carrierInfo), c.Acked+c.Brought
		if c.Used && a.path.Technique == r.class && total > a.totalBytes {
			r.bytes += total - a.totalBytes
		}
		a.totalBytes = total
		if c.Used {
			r.young = r.young && time.Since(c.Since) < slowRTTs*c.Least
			sv.ranking.noteUse(a)
		}
	}
	for _, c := range carriers {
		if c.Used && !c.Silent && pathOf(c.Carrier).Technique == r.class {
			queued = queued || max(c.RTT, c.Asked) > queueFor+queueRTTs*c.Least && (c.InFlight >= queueBytes || r.bytes >= queueBytes)
			if c.Asked == 0 && (c.InFlight > 0 || r.bytes > 0) {
				sv.link.stream.Ask(c.Carrier) // its answer queues behind what waits on the way, in both directions
			}
		}
		if pathOf(c.Carrier).Technique == overlay.Relay && !c.Used && !c.Silent && !c.Carrier.Owner.(*carrierInfo).left.Load() {
			relay, r.relay = c.Carrier, c.Least
		}
	}
	r.held = r.held || queued
	return r, relay, ok && r.class != 0 && took < 2*rankEvery
}

// try makes the link use a relay, the standby one or a new one, instead of the current carriers,
// which stand by then.
func (sv *supervisor) try(ctx context.Context, relay *stream.Carrier) {
	defer func() {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		sv.improving = false
	}()
	if relay == nil {
		var err error
		if relay, err = sv.dial(ctx, lookBound, overlay.RelayOnly); err != nil {
			sv.mu.Lock()
			defer sv.mu.Unlock()
			sv.ranker.unable(time.Now())
			return
		}
	}
	s := sv.link.stream
	s.Use(relay, 1)
	for _, c := range s.Carriers() {
		if c.Carrier != relay {
			s.Use(c.Carrier, 0)
		}
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.ranker.begin()
}

// goBack makes the link use the carriers of a class again, and the relays stand by.
func (sv *supervisor) goBack(class overlay.Technique) {
	s := sv.link.stream
	var back, relays []*stream.Carrier
	for _, c := range s.Carriers() {
		switch {
		case c.Silent:
		case pathOf(c.Carrier).Technique == class:
			back = append(back, c.Carrier)
		default:
			relays = append(relays, c.Carrier)
		}
	}
	if len(back) == 0 {
		return
	}
	for _, c := range back {
		s.Use(c, 1)
	}
	for _, c := range relays {
		s.Use(c, 0)
	}
}

// giveUp leaves the carriers of a class, and puts the reason into the path's report, the log and
// the helper's outcome: the next link to that site need not repeat the trial.
func (sv *supervisor) giveUp(class overlay.Technique, why string) {
	for _, c := range sv.link.stream.Carriers() {
		a := c.Carrier.Owner.(*carrierInfo)
		switch {
		case a.path.Technique == class:
			sv.leave(c.Carrier, errSlow)
		case c.Used:
			a.reason.Store(&why)
		}
	}
	sv.reportOutcome(class, why, sv.ranking.outcomes[class])
}

// reportOutcome logs why a class is avoided and reports it to the helper.
func (sv *supervisor) reportOutcome(class overlay.Technique, why string, outcome func(error)) {
	if log := sv.mesh.cfg.Log; log != nil {
		log.Info("a path is given up", "peer", sv.link.Peer.String(), "technique", class.String(), "cause", why)
	}
	if outcome != nil {
		outcome(fmt.Errorf("%w: %s", overlay.ErrInferior, why))
	}
}

// fellSilent records that a carrier has fallen silent. The stream is locked.
func (sv *supervisor) fellSilent(c *stream.Carrier, err error) {
	if !errors.Is(err, stream.ErrSilent) {
		return
	}
	a, now := c.Owner.(*carrierInfo), time.Now()
	sv.mu.Lock()
	avoided := sv.ranker.silent(a.path.Technique, now.Sub(a.since), now)
	why, _ := sv.ranker.avoids(a.path.Technique, now)
	sv.mu.Unlock()
	if avoided {
		sv.reportOutcome(a.path.Technique, why, a.outcome)
	}
}

// fellLately reports whether a carrier on the path of a class, with a round trip of rtt, fell silent a moment ago, or when the dial
// that this is the result of may have begun.
func (sv *supervisor) fellLately(class overlay.Technique, rtt time.Duration) bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.ranker.fellLately(class, max(afterFall, redialRTTs*rtt), time.Now())
}
