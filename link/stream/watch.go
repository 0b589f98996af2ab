package stream

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// The watch looks at each carrier every tick and decides, from when something last arrived, whether
// to ask the peer for a sign of life and when to consider the path dead. It asks only when it must:
// while unacknowledged data is in flight, once after data has arrived and no more does, or before a
// firewall forgets an idle connection. A socket alone detects neither in time: its own keepalive
// pauses while data is in flight, and counts in seconds. The peer of a busy carrier sends at least
// every signOfLife, so that a slow path is not taken for a dead one.
const (
	Tick = 50 * time.Millisecond // between calls of Watch

	// AskIdle is the silence without load after which the peer is asked, unless Options.AskAfter
	// says otherwise: it keeps firewalls from forgetting the connection.
	AskIdle = 15 * time.Second

	askLoaded  = 150 * time.Millisecond // of silence under load, after which the peer is asked
	signOfLife = 100 * time.Millisecond // after which arrived data is acknowledged though it was not taken
	lateAfter  = 200 * time.Millisecond // after an answer is due: the link uses what it has ready
	doubtAfter = 200 * time.Millisecond // the same, or twice the answer time: another path is looked for
	giveUp     = 2 * time.Second        // after the question: the carrier is given up

	// abandonAfter, or two round trips if they take longer, is how long a carrier that is given no
	// more data has for its data to be acknowledged. The rest is then sent again on better
	// carriers: what arrives late on a slow path would hold back everything after it, up to the
	// window.
	abandonAfter = 2 * Tick

	// recovering is how recently, plus a round trip, the peer's system must have acknowledged
	// something for a carrier without an answer to count as one that sends lost data again: a
	// little longer than the minimum retransmission timeout of Linux, 200 ms, in which nothing is
	// acknowledged. On a dead path the last acknowledgement is older before the carrier is in doubt.
	recovering = askLoaded + doubtAfter - Tick
)

// shortIdle is the minimum time without traffic that counts as idle.
const shortIdle = time.Second

// IdleError is the error for Options.Lost of a carrier that died at the first traffic after an idle
// time: a firewall or NAT on the way may have forgotten the connection.
type IdleError struct {
	Idle time.Duration // time without traffic
	Err  error         // the error of the first traffic after it
}

// Error returns the idle time and the cause.
func (e *IdleError) Error() string { return fmt.Sprintf("idle for %v, and then: %v", e.Idle, e.Err) }

// Unwrap returns Err.
func (e *IdleError) Unwrap() error { return e.Err }

// speaks records that something is about to be written.
func (c *Carrier) speaks(now int64) {
	if idle := time.Duration(now-max(c.heard, c.spoke)) * Tick; c.woke == 0 && idle >= shortIdle {
		c.woke = idle
	}
}

// overdue reports whether the peer should have answered a question before now.
func (c *Carrier) overdue() bool { return c.late || c.silent }

// died returns the error for a carrier that died unintentionally. If an answer was overdue, it had fallen silent: the peer, which
// had no answer either, was the first to give it up.
func (c *Carrier) died(err error) error {
	if c.overdue() && !errors.Is(err, ErrSilent) {
		err = fmt.Errorf("%w; then: %w", ErrSilent, err)
	}
	if c.woke > 0 {
		return &IdleError{c.woke, err}
	}
	return err
}

// ErrSilent is the error for Options.Lost of a carrier whose peer does not answer a question any
// more.
var ErrSilent = errors.New("nothing comes in any more, not even an answer to a question")

// errStuck is the error for Options.Lost of a carrier that is given no more data and has not even
// taken its last frame when others have delivered the same bytes. Until a write ends the bytes cannot
// be freed, and without room for more the stream would stand still as long as that takes.
var errStuck = errors.New("it is left for others, and its last frame is stuck")

// sign is the watch's verdict about a carrier.
type sign uint8

const (
	fine     sign = iota
	ask           // send a question
	late          // the answer is overdue
	doubtful      // look for another path
	gone          // give the carrier up
)

// judge decides. silence is the time since something arrived and asked the time since the
// unanswered question (negative: there is none); answer is how long an answer may take. load reports that data is in flight which the peer should acknowledge, or
// that data from the peer may be in flight without this end's knowledge. idle is how long a carrier
// without load may be silent.
func judge(silence, asked, answer, idle time.Duration, load bool) sign {
	switch {
	case asked < 0 && (load && silence >= askLoaded || silence >= idle):
		return ask
	case asked < 0 || silence < asked:
		return fine
	case asked >= max(giveUp, 4*answer):
		return gone
	case asked >= answer+max(doubtAfter, answer):
		return doubtful
	case asked >= answer+lateAfter:
		return late
	}
	return fine
}

// A question is a LinkPing that was sent.
type question struct {
	number uint64
	at     time.Time
	since  int64 // tick at which it was queued; 0: no question is unanswered
}

// put records that the question was sent, again if an earlier one is unanswered: the answer to that is
// then the one that is timed.
func (q *question) put(tick int64) {
	if q.at.IsZero() {
		q.number++
		q.at = time.Now()
	}
	if q.since == 0 {
		q.since = tick
	}
}

// answer processes a LinkPong, and returns how long it took to arrive.
func (q *question) answer(number uint64) (time.Duration, bool) {
	if number != q.number || q.at.IsZero() {
		return 0, false
	}
	took := time.Since(q.at)
	q.at, q.since = time.Time{}, 0
	return took, true
}

// Watch performs one tick of the watch. Call it every Tick.
func (s *Stream) Watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	now := s.ticks.Add(1)
	s.load.head.look(s.send, now)
	alive, prompt, asks := false, false, false
	for _, c := range append([]*Carrier(nil), s.carriers...) {
		loaded := s.loaded(c)
		s.look(c, now)
		alive = alive || !c.dead && !c.silent
		prompt = prompt || !c.dead && !c.silent && !c.late
		asks = asks || !c.dead && c.asked.since == now && loaded
	}
	if asks {
		s.askOthers(now)
	}
	if !prompt && alive && s.o.Late != nil {
		s.o.Late()
	}
	s.dismiss(alive)
	s.notice()
	if s.lead == nil {
		return
	}
	if now-s.readAt > 1 {
		s.readOn() // otherwise the peer's questions would get no answer; a process that reads continually needs no help
	}
	if s.ack() != s.ackSent && s.ackSent == s.ackSentAtTick {
		s.lead.queueSignal(sayAck) // no other frame has carried it since the last tick
	}
	s.ackSentAtTick = s.ackSent
	s.resize(time.Now())
}

// look checks one carrier.
func (s *Stream) look(c *Carrier, now int64) {
	since := func(then int64) time.Duration { return time.Duration(now-then) * Tick }
	if s.o.Silent != nil {
		s.judge(c, now, since)
	}
	switch least := max(2*c.least, abandonAfter); {
	case c.dead:
	case s.send.Uses(c.id):
		c.used = now
	case since(c.used) >= least && s.send.Abandon(c.id) > 0:
		s.wakeAll()
	case since(c.used) >= least && c.from < c.to && c.to <= s.send.Acked():
		s.failed(c, c.died(errStuck))
	}
	if !c.writing && (c.pending || s.send.Sendable()) {
		c.wake() // Flush may have left it
	}
	if !c.dead && c.served > c.spoke && since(c.spoke) >= signOfLife {
		c.queueSignal(sayAck)
	}
}

// judge sends a question on a carrier, and doubts the carrier or gives it up without an answer.
func (s *Stream) judge(c *Carrier, now int64, since func(int64) time.Duration) {
	if c.heard > c.asked.since {
		c.asked.since, c.silent = 0, false
	}
	asked := time.Duration(-1)
	if c.asked.since > 0 {
		asked = since(c.asked.since)
	}
	idle := AskIdle
	if s.o.AskAfter != nil {
		idle = s.o.AskAfter(c)
	}
	verdict := judge(since(c.heard), asked, c.answerTime(), idle, s.loaded(c))
	c.late = verdict == late && !c.recovers()
	switch verdict {
	case ask:
		c.asked.since, c.asking = now, c.served
		c.queueSignal(sayPing)
	case doubtful:
		c.silent = !c.recovers()
	case gone:
		s.failed(c, c.died(ErrSilent))
	}
}

// recovers reports whether a carrier's answer is late because it waits in a queue, or lost data is being
// sent again before it: the peer's system still acknowledges what arrives, as it would not on a dead
// path. Such a carrier is neither dropped nor reason to look for another path.
func (c *Carrier) recovers() bool {
	if c.s.o.Acked == nil {
		return false
	}
	age, known := c.s.o.Acked(c)
	return known && age < recovering+c.least
}

// loaded reports whether a carrier must not be silent for long: it carries what the peer has to
// acknowledge, or data has arrived on it since the peer was last asked whether that was all. A
// receiver would not notice otherwise that its path is dead.
func (s *Stream) loaded(c *Carrier) bool { return s.send.InFlight(c.id) > 0 || c.served > c.asking }

// answerTime returns how long nothing may arrive after a question although the path is alive: as long as answers have
// taken, and longer where they vary because packets wait in a queue or overtake each other (RFC 6298). An answer
// takes longer behind much data, but then data arrives, or acknowledgements.
func (c *Carrier) answerTime() time.Duration { return max(c.least, c.trips.SRTT+4*c.trips.Var) }

// askOthers sends a question on each other carrier, which may be silent for the same reason as one
// that carries data: whether there is another to continue on is then known as soon as that one is
// in doubt, and not as long again after it. Recent arrivals on the others prove nothing: they may
// have been in flight already.
func (s *Stream) askOthers(now int64) {
	for _, c := range s.carriers {
		if !c.dead && c.asked.since == 0 {
			c.asked.since = now
			c.queueSignal(sayPing)
		}
	}
}

// dismiss removes silent carriers if another is alive, and calls Silent if none is.
func (s *Stream) dismiss(alive bool) {
	for _, c := range append([]*Carrier(nil), s.carriers...) {
		if !c.silent {
			continue
		}
		if alive {
			s.failed(c, c.died(ErrSilent))
			s.askOthers(s.ticks.Load()) // those on which something arrived since they were asked
		} else {
			s.o.Silent(s.send.Acked() < s.send.End())
			return
		}
	}
}

// releaseIdle releases the memory of a stream that is idle.
func (s *Stream) releaseIdle() {
	if s.writing(0, math.MaxUint64) {
		return
	}
	s.out.clear()
	if s.recv.Stored() == 0 {
		s.in.clear(s.took)
	}
	if s.windows.idle++; s.windows.idle >= int64(narrowAfter) {
		s.narrow()
	}
}
