package link

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// This file decides, without sockets or clocks, whether a path's throughput is reason to leave it:
// the technique says which of two paths is better only as long as both carry what is sent. A
// middlebox may limit datagrams to a trickle, or carry a flow for a while and then stop.
//
//	          held back, far below what it           a relay is in use
//	          was or what a relay carried            beside it
//	judging ------------------------------> wanted ----------------> trying
//	   ^                                                               |
//	   |    the relay carries no more: longer until the next trial     |
//	   +---------------------------------------------------------------+
//	   |    it does: the class is avoided for a time, which doubles    |
//	   +---------------------------------------------------------------+
//
// Two rules prevent oscillation. A path is left for another only when the other carries gainFactor
// times as much for a while, measured in the same way at nearly the same time; and the times
// between two trials, and for which a class is avoided, double as long as nothing has changed. When
// such a time is over the class is used again as if nothing had happened (improve.go), and leaving
// it takes no longer than the first time.
const (
	rankEvery = 250 * time.Millisecond // between readings

	gainFactor = 2         // times as much, or the relay is not worth it
	soonFactor = 4         // times as much, and no longer measurement is needed
	growFactor = 2         // times as much as when it was last judged: a flow in slow start
	farFactor  = 4         // times less than a relay has carried: a trial is worth it
	fallFactor = 8         // times less than the path itself has carried at its best
	slowRate   = 300_000   // bytes a second below which a path is doubted though no better one is known
	plenty     = 2_500_000 // bytes a second above which no path is doubted: a busy host delays all paths for a moment

	judgeFor      = 500 * time.Millisecond // plus judgeRTTs: how long a path must have held back for that to count
	slowFor       = time.Second            // plus slowRTTs: the same if slowRate is the only reason: a flow starts slowly
	failFor       = 2 * time.Second        // plus failRTTs: after which a relay on trial has failed
	minTrialBytes = 64 << 10               // bytes that a relay must have moved before it can win
	tryFor        = 10 * time.Second       // after which a trial with little to send is over

	judgeRTTs, slowRTTs, failRTTs, settleRTTs = 4, 12, 16, 2

	farther     = 50 * time.Millisecond // plus fartherPart times: round trips longer than by a relay
	fartherPart = 3

	firstAvoid = 30 * time.Second // doubles up to maxAvoid
	maxAvoid   = 10 * time.Minute
	firstRetry = 30 * time.Second // after a trial that failed; doubles up to maxAvoid
	fresh      = 10 * time.Minute // how long a relay's measured rate remains valid

	freeDeaths = 2                // carriers of a class that may fall silent, none of them old,
	shortLife  = time.Minute      // which is younger than this,
	oneDeath   = 5 * time.Second  // several at once counting as one
	deathAvoid = 15 * time.Second // before the class is avoided; doubles up to maxAvoid
)

// A reading is what a link measured since the previous reading.
type reading struct {
	class overlay.Technique // of the carriers in use
	took  time.Duration
	held  bool          // almost all the time, bytes waited that the carriers did not take
	young bool          // no carrier in use has lived for slowRTTs round trips: its flow may still be in slow start
	bytes uint64        // that arrived, both ways
	rtt   time.Duration // minimum of the path in use
	relay time.Duration // of a standby relay; 0: there is none
}

// A finding is the action that follows from a reading.
type finding uint8

const (
	keep    finding = iota
	wantTry         // try a relay instead of the path in use; see begin and unable
	won             // keep the relay on trial
	failed          // leave the relay on trial and return to the previous path
)

// sum is the total of several readings.
type sum struct {
	took  time.Duration
	bytes uint64
}

func (s *sum) add(r reading) { s.took += r.took; s.bytes += r.bytes }

func (s sum) rate() float64 {
	if s.took == 0 {
		return 0
	}
	return float64(s.bytes) / s.took.Seconds()
}

// A record is what is known of one class.
type record struct {
	rate float64   // latest bytes a second while it held the link back
	at   time.Time // when that was measured
	best float64   // maximum of these, decaying slowly

	until   time.Time // end of the time for which it is avoided
	avoided time.Duration
	why     string

	deaths int
	died   time.Time // of the last one that counted in deaths
	fell   time.Time // when a carrier was last lost as silent
}

// trialRecord is what is known of trials of a relay instead of a path.
type trialRecord struct {
	retry     time.Time // no trial before that, unless the path carries far less than at the last one
	wait      time.Duration
	triedRate float64
}

// A ranker decides for one link. It judges only the class in use, and tries only a relay instead:
// improve.go looks for what is better than a relay.
type ranker struct {
	class overlay.Technique // at the last reading
	age   time.Duration     // how long it has been in use
	held  sum               // of consecutive readings that were held back
	start float64           // rate at the last judgement, if the flow was in slow start then; else 0
	kinds map[overlay.Technique]*record
	paths map[overlay.Technique]*trialRecord // see trialsOf

	trying  bool
	from    overlay.Technique // the class that the relay replaces for the trial
	base    float64           // what that class carried
	far     bool              // its round trips are the reason, not its rate
	fromRTT time.Duration
	tried   time.Duration // how long the relay has been in use
	total   sum           // since the relay settled
	busy    sum           // the part of total that was held back
	doubt   doubt         // set with wantTry
}

// doubt is the reason for a trial.
type doubt struct {
	class overlay.Technique
	rate  float64
	rtt   time.Duration
	far   bool
}

// forget forgets what is known of all classes: they take other paths now.
func (k *ranker) forget() { k.kinds, k.paths = nil, nil }

func (k *ranker) recordOf(class overlay.Technique) *record {
	if k.kinds == nil {
		k.kinds = map[overlay.Technique]*record{}
	}
	if k.kinds[class] == nil {
		k.kinds[class] = &record{}
	}
	return k.kinds[class]
}

// trialsOf returns the record of trials of the path that a class takes: what one class could not gain by a
// relay, another on the same path cannot either.
func (k *ranker) trialsOf(class overlay.Technique) *trialRecord {
	if isHostTCP(class) {
		class = overlay.Direct
	}
	if k.paths == nil {
		k.paths = map[overlay.Technique]*trialRecord{}
	}
	if k.paths[class] == nil {
		k.paths[class] = &trialRecord{}
	}
	return k.paths[class]
}

// next processes a reading.
func (k *ranker) next(r reading, now time.Time) finding {
	if r.class != k.class {
		k.class, k.age, k.held, k.start = r.class, 0, sum{}, 0
	}
	k.age += r.took
	if k.trying {
		return k.judgeTrial(r, now)
	}
	if r.class != overlay.Relay && r.relay > 0 && r.rtt > fartherPart*r.relay+farther && k.age >= failFor+failRTTs*r.rtt {
		if !now.Before(k.trialsOf(r.class).retry) {
			k.doubt = doubt{class: r.class, rate: k.held.rate(), rtt: r.rtt, far: true}
			return wantTry
		}
	}
	if !r.held {
		k.held = sum{}
		return keep
	}
	k.held.add(r)
	if k.held.took < judgeFor+judgeRTTs*r.rtt {
		return keep
	}
	rate := k.held.rate()
	k.held = sum{}
	return k.judge(r, rate, now)
}

// judge evaluates the rate of a path while it held the link back.
func (k *ranker) judge(r reading, rate float64, now time.Time) finding {
	rec := k.recordOf(r.class)
	before := rec.rate // half a second says little about a slow path
	rec.rate, rec.at = rate, now
	rec.best = max(rate, rec.best*0.98)
	start := k.start
	k.start = 0
	if r.young {
		k.start = rate
	}
	if r.class == overlay.Relay {
		k.clearPenalty(rate, now)
		return keep
	}
	relay := k.recordOf(overlay.Relay)
	known := !relay.at.IsZero() && now.Sub(relay.at) < fresh
	trials := k.trialsOf(r.class)
	switch {
	case now.Before(trials.retry) && farFactor*rate >= trials.triedRate:
		return keep
	case rate >= plenty, r.young && rate >= growFactor*start:
		return keep
	case known && farFactor*rate < relay.rate:
	case fallFactor*rate < rec.best:
	case rate < slowRate && before < slowRate && k.age >= slowFor+slowRTTs*r.rtt:
		rate = max(rate, before)
	default:
		return keep
	}
	k.doubt = doubt{class: r.class, rate: rate, rtt: r.rtt}
	return wantTry
}

// clearPenalty ends the avoidance of classes when a relay has become slower than they were.
func (k *ranker) clearPenalty(rate float64, now time.Time) {
	for _, rec := range k.kinds {
		if now.Before(rec.until) && rec.deaths == 0 && gainFactor*rate < rec.rate {
			rec.until = now
		}
	}
}

// begin records that a relay is now in use instead of the class of the last wantTry.
func (k *ranker) begin() {
	k.trying, k.from, k.base, k.far, k.fromRTT = true, k.doubt.class, k.doubt.rate, k.doubt.far, k.doubt.rtt
	k.tried, k.total, k.busy, k.held = 0, sum{}, sum{}, sum{}
}

// unable records that no relay was available for a trial.
func (k *ranker) unable(now time.Time) { k.fail(k.doubt.class, k.doubt.rate, now) }

// fail postpones the next trial.
func (k *ranker) fail(class overlay.Technique, rate float64, now time.Time) {
	t := k.trialsOf(class)
	t.wait = min(max(2*t.wait, firstRetry), maxAvoid)
	t.retry, t.triedRate = now.Add(t.wait), rate
}

// judgeTrial is next during a trial.
func (k *ranker) judgeTrial(r reading, now time.Time) finding {
	if r.class != overlay.Relay { // it was lost
		k.trying = false
		k.fail(k.from, k.base, now)
		return failed
	}
	if k.tried += r.took; k.tried <= settleRTTs*r.rtt {
		return keep
	}
	k.total.add(r)
	if r.held {
		k.busy.add(r)
	}
	gain, soon := float64(gainFactor), float64(soonFactor)
	if k.far {
		gain, soon = 1, 1
	}
	long := max(tryFor, 2*(failFor+failRTTs*r.rtt))
	moved := k.far || k.total.bytes >= minTrialBytes
	switch {
	case k.total.took >= judgeFor+judgeRTTs*r.rtt && k.total.rate() >= soon*k.base && moved,
		k.total.took >= failFor+failRTTs*r.rtt && k.total.rate() >= gain*k.base && moved,
		k.total.took >= long && k.busy.took == 0 && moved: // it carries all there is to send, and the path did not
		k.trying = false
		k.avoid(now)
		return won
	case k.busy.took >= failFor+failRTTs*r.rtt:
		k.trying = false
		relay := k.recordOf(overlay.Relay)
		relay.rate, relay.at = k.busy.rate(), now
		k.fail(k.from, min(k.base, relay.rate), now)
		return failed
	case k.total.took >= long:
		k.trying = false
		k.fail(k.from, k.base, now)
		return failed
	}
	return keep
}

// avoid marks the class that lost a trial as avoided, and records why.
func (k *ranker) avoid(now time.Time) {
	rec, relay := k.recordOf(k.from), k.recordOf(overlay.Relay)
	rec.put(firstAvoid, now)
	*k.trialsOf(k.from) = trialRecord{}
	if k.far {
		rec.why = fmt.Sprintf("%v took %v for a round trip, and a relay less than a third of it", k.from, k.fromRTT.Round(time.Millisecond))
		return
	}
	rec.rate, rec.best = k.base, k.base
	relay.rate, relay.at = k.total.rate(), now
	if k.busy.took > 0 {
		relay.rate = max(relay.rate, k.busy.rate())
	}
	rec.why = fmt.Sprintf("%v carried %s, a relay %s", k.from, rateText(k.base), rateText(relay.rate))
}

// put marks a class as avoided for the time first, or for twice as long as last time if that was
// not long ago.
func (r *record) put(first time.Duration, now time.Time) {
	if r.avoided == 0 || now.Sub(r.until) > max(10*r.avoided, 2*first) {
		r.avoided = first
	} else {
		r.avoided = min(2*r.avoided, maxAvoid)
	}
	r.until = now.Add(r.avoided)
}

// silent records that a carrier of a class fell silent after it lived for the given time, and
// reports whether the class is avoided from now on because of it.
func (k *ranker) silent(class overlay.Technique, lived time.Duration, now time.Time) bool {
	rec := k.recordOf(class)
	rec.fell = now
	if class == overlay.Relay || class == 0 || !rec.died.IsZero() && now.Sub(rec.died) < oneDeath {
		return false
	}
	rec.died = now
	if lived >= shortLife {
		rec.deaths = 0
	}
	if rec.deaths++; rec.deaths <= freeDeaths {
		return false
	}
	rec.put(deathAvoid, now)
	rec.why = fmt.Sprintf("%v fell silent %d times, the last after %v", class, rec.deaths, lived.Round(time.Second))
	return true
}

// fellLately reports whether a carrier on the path of a class was lost as silent within the given time.
func (k *ranker) fellLately(class overlay.Technique, within time.Duration, now time.Time) bool {
	for of, rec := range k.kinds {
		if samePath(of, class) && !rec.fell.IsZero() && now.Sub(rec.fell) < within {
			return true
		}
	}
	return false
}

// samePath reports whether connections of two classes take the same path: TCP from one host to the other does, whichever end
// dials. Datagrams may be treated otherwise on the way, and proxies are elsewhere.
func samePath(a, b overlay.Technique) bool {
	return a == b || isHostTCP(a) && isHostTCP(b)
}

// isHostTCP reports whether connections of a class are TCP from one host to the other.
func isHostTCP(t overlay.Technique) bool {
	return t != 0 && t.Kind() != overlay.ByProxy && t.Kind() != overlay.BothSend
}

// avoids reports whether a class is avoided, and why.
func (k *ranker) avoids(class overlay.Technique, now time.Time) (why string, yes bool) {
	if rec := k.kinds[class]; rec != nil && now.Before(rec.until) {
		return rec.why, true
	}
	return "", false
}

// rateText formats bytes a second in Mb/s, with two significant digits.
func rateText(rate float64) string {
	mbit := rate * 8 / 1e6
	switch {
	case mbit < 9.95:
		return fmt.Sprintf("%.1f Mb/s", mbit)
	default:
		return fmt.Sprintf("%.0f Mb/s", mbit)
	}
}
