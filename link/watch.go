package link

import (
	"errors"
	"time"
)

// The watch looks at each carrier every tick and decides, by when something came
// in last, whether to ask the peer for a sign of life and when to believe that
// the path is dead. It asks only when it must: while data is on its way that was
// not acknowledged, or before a firewall forgets an idle connection. A socket
// alone tells neither in time (its own keepalive rests while data is under way,
// and counts in seconds).
const (
	tick = 50 * time.Millisecond

	askLoaded  = 250 * time.Millisecond // of silence under load, after which the peer is asked
	askIdle    = 15 * time.Second       // of silence without load: firewalls are to remember the connection
	doubtAfter = 250 * time.Millisecond // after the question, and twice the round trip: another way is looked for
	giveUp     = 2 * time.Second        // after the question: the carrier is given up
)

var errSilent = errors.New("nothing comes in any more, not even an answer to a question")

// sign is what the watch makes of a carrier.
type sign uint8

const (
	fine     sign = iota
	ask           // put a question
	doubtful      // look for another way
	gone          // give it up
)

// judge is the decision. All are durations until now: since something came in,
// since the question that has no answer yet (negative: there is none). load says
// that something is under way that the peer should acknowledge.
func judge(silence, asked, rtt time.Duration, load bool) sign {
	switch {
	case asked < 0 && (load && silence >= askLoaded || silence >= askIdle):
		return ask
	case asked < 0 || silence < asked:
		return fine
	case asked >= max(giveUp, 4*rtt):
		return gone
	case asked >= doubtAfter+2*rtt:
		return doubtful
	}
	return fine
}

// watch is one tick. It returns false when the link is over.
func (s *stream) watch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	now := s.ticks.Add(1)
	since := func(then int64) time.Duration { return time.Duration(now-then) * tick }
	for _, c := range append([]*carrier(nil), s.carriers...) {
		heard := c.heard.Load()
		if c.asked > 0 && heard > c.asked {
			c.asked = 0
		}
		asked := time.Duration(-1)
		if c.asked > 0 {
			asked = since(c.asked)
		}
		switch judge(since(heard), asked, c.rtt, s.send.Carried(c.id) > 0) {
		case ask:
			c.asked = now
			c.say(sayPing)
		case doubtful:
			if !c.doubted {
				c.doubted = true
				s.doubt()
			}
		case gone:
			s.failed(c, errSilent)
		}
	}
	if s.reads == 0 {
		s.readOn() // or the peer's questions would have no answer
	}
	if s.ack() != s.told {
		s.wantAck()
	}
	return !s.over
}
