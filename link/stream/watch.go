package stream

import (
	"errors"
	"fmt"
	"time"
)

// The watch looks at each carrier every tick and decides, by when something came
// in last, whether to ask the peer for a sign of life and when to believe that
// the path is dead. It asks only when it must: while data is on its way that was
// not acknowledged, once when data has come and no more does, or before a firewall forgets an idle connection. A socket
// alone tells neither in time: its own keepalive rests while data is under way,
// and counts in seconds. The peer of a busy carrier speaks at least every
// signOfLife, so that a slow path is not taken for a dead one.
const (
	Tick = 50 * time.Millisecond // between calls of Watch

	// AskIdle is the silence without load after which the peer is asked, where
	// Options.AskAfter says nothing else: firewalls are to remember the connection.
	AskIdle = 15 * time.Second

	askLoaded  = 150 * time.Millisecond // of silence under load, after which the peer is asked
	signOfLife = 100 * time.Millisecond // after which what comes in is acknowledged though nobody has taken it
	lateAfter  = 200 * time.Millisecond // after an answer should be here: what is at hand for the link is made use of
	doubtAfter = 200 * time.Millisecond // the same, or twice the time for an answer: another way is looked for
	giveUp     = 2 * time.Second        // after the question: the carrier is given up

	// abandonAfter, or two round trips if they take longer, is what a carrier has that
	// is given no more data for the acknowledgement of what it carries. The rest is then
	// sent again on the better ones: what comes late on a slow path would hold back
	// everything behind it, up to the window.
	abandonAfter = 2 * Tick
)

// shortIdle is the least time without a word that counts as idle.
const shortIdle = time.Second

// IdleError is what Options.Lost is told of a carrier that died at the first word
// after a time in which nothing passed: it may be that somebody on the way forgot it.
type IdleError struct {
	Idle time.Duration // that nothing passed
	Err  error         // what came of the word
}

// Error says both.
func (e *IdleError) Error() string { return fmt.Sprintf("idle for %v, and then: %v", e.Idle, e.Err) }

// Unwrap returns Err.
func (e *IdleError) Unwrap() error { return e.Err }

// speaks notes that something is about to be written.
func (c *Carrier) speaks(now int64) {
	if idle := time.Duration(now-max(c.heard, c.spoke)) * Tick; c.woke == 0 && idle >= shortIdle {
		c.woke = idle
	}
}

// died words the death of a carrier that nobody wanted.
func (c *Carrier) died(err error) error {
	if c.woke > 0 {
		return &IdleError{c.woke, err}
	}
	return err
}

// ErrSilent is what Options.Lost is told of a carrier whose peer is not heard any more,
// though it was asked.
var ErrSilent = errors.New("nothing comes in any more, not even an answer to a question")

// sign is what the watch makes of a carrier.
type sign uint8

const (
	fine     sign = iota
	ask           // put a question
	late          // the answer should be here
	doubtful      // look for another way
	gone          // give it up
)

// judge is the decision. All are durations until now: since something came in,
// since the question that has no answer yet (negative: there is none); answer is how long
// one may take, rtt how long one took last. load says
// that something is under way that the peer should acknowledge, or that data may be of
// which this end would not know, idle is how long
// a carrier without load may be silent.
func judge(silence, asked, answer, rtt, idle time.Duration, load bool) sign {
	switch {
	case asked < 0 && (load && silence >= askLoaded || silence >= idle):
		return ask
	case asked < 0 || silence < asked:
		return fine
	case asked >= max(giveUp, 4*rtt):
		return gone
	case asked >= answer+max(doubtAfter, answer):
		return doubtful
	case asked >= answer+lateAfter:
		return late
	}
	return fine
}

// A question is a LinkPing that was put.
type question struct {
	number uint64
	at     time.Time
	since  int64 // tick at which it was wanted; 0: there is none without an answer
}

func (q *question) put(tick int64) {
	q.number++
	q.at = time.Now()
	if q.since == 0 {
		q.since = tick
	}
}

// answer takes a LinkPong, and returns how long it took to come.
func (q *question) answer(number uint64) (time.Duration, bool) {
	if number != q.number || q.at.IsZero() {
		return 0, false
	}
	took := time.Since(q.at)
	q.at, q.since = time.Time{}, 0
	return took, true
}

// Watch is one tick of the watch. It is to be called every Tick.
func (s *Stream) Watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	now := s.ticks.Add(1)
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
		s.readOn() // or the peer's questions would have no answer; who reads again and again needs no help
	}
	if s.ack() != s.told && s.told == s.toldAt {
		s.lead.queueSignal(sayAck) // nothing took it along since the last tick
	}
	s.toldAt = s.told
	if s.send.Acked() >= s.send.End() && s.waiting() == 0 {
		s.releaseIdle()
	} else {
		s.rightSize(time.Now())
	}
}

// look sees to one carrier.
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
	}
	if !c.dead && c.served > c.spoke && since(c.spoke) >= signOfLife {
		c.queueSignal(sayAck)
	}
}

// judge has a carrier asked, and doubts it or gives it up without an answer.
func (s *Stream) judge(c *Carrier, now int64, since func(int64) time.Duration) {
	if c.heard > c.asked.since {
		c.slower = c.slower || c.silent
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
	verdict := judge(since(c.heard), asked, c.answerTime(), c.rtt, idle, s.loaded(c))
	c.late = verdict == late
	switch verdict {
	case ask:
		c.asked.since, c.asking = now, c.served
		c.queueSignal(sayPing)
	case doubtful:
		c.silent = true
	case gone:
		s.failed(c, c.died(ErrSilent))
	}
}

// loaded reports whether a carrier must not be silent for long: it carries what the peer
// has to acknowledge, or data has come on it, and the peer was not asked since whether
// that was all. A receiver would not notice otherwise that its path is dead.
func (s *Stream) loaded(c *Carrier) bool { return s.send.Carried(c.id) > 0 || c.served > c.asking }

// answerTime is how long nothing may come in after a question though the path is alive:
// the least round trip. An answer takes longer behind much data, but then data comes in,
// or what acknowledges it. Where that was shown to be wrong it is the latest round trip.
func (c *Carrier) answerTime() time.Duration {
	if c.slower {
		return max(c.rtt, c.least)
	}
	return c.least
}

// askOthers puts a question to each carrier that may be silent for the same reason as one
// that carries: whether there is another to go on with is then known as soon as that one
// is in doubt, and not as long again after it. What came on it a moment ago says nothing:
// it may have been under way.
func (s *Stream) askOthers(now int64) {
	for _, c := range s.carriers {
		if !c.dead && c.asked.since == 0 {
			c.asked.since = now
			c.queueSignal(sayPing)
		}
	}
}

// dismiss takes silent carriers out if there is another, and calls for one if
// there is not.
func (s *Stream) dismiss(alive bool) {
	for _, c := range append([]*Carrier(nil), s.carriers...) {
		if !c.silent {
			continue
		}
		if alive {
			s.failed(c, c.died(ErrSilent))
			s.askOthers(s.ticks.Load()) // those that were heard since they were asked
		} else {
			s.o.Silent(s.send.Acked() < s.send.End())
			return
		}
	}
}

// releaseIdle lets go of the memory of a stream that is idle.
func (s *Stream) releaseIdle() {
	if s.writingFrom(0) {
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
