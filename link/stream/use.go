package stream

import (
	"time"

	"github.com/isthmus-grid/isthmus/link/resume"
)

// Use sets how much of what this end sends goes on a carrier, in proportion to the other carriers'
// weights, and makes the peer do the same. A carrier of weight 0 stands by: if none has a weight,
// the oldest carrier takes everything.
func (s *Stream) Use(c *Carrier, weight uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dead {
		return
	}
	s.send.Weight(c.id, weight)
	s.reshare()
	c.use = weight
	c.queueSignal(sayUse)
	s.wakeAll()
}

// Ask sends the peer a question on a carrier, which measures its round trip.
func (s *Stream) Ask(c *Carrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.dead {
		c.queueSignal(sayPing)
	}
}

// State is the state of a carrier at one time.
type State struct {
	Carrier  *Carrier
	Used     bool // data is sent on it
	Silent   bool
	Since    time.Time     // when it was attached
	RTT      time.Duration // of the latest question, or of the handshake
	Quiet    time.Duration // time since anything last arrived, in steps of Tick
	Asked    time.Duration // time since a question that has no answer yet; 0: there is none
	Least    time.Duration // minimum of all measured round trips: what the path takes without other traffic
	Sent     uint64        // bytes given to the system, including headers
	Received uint64        // bytes
	Brought  uint64        // of these, bytes of the stream, including duplicates
	InFlight uint64        // bytes of the stream that were sent on it and are not acknowledged
	Acked    uint64        // bytes of the stream that were sent on it and are acknowledged
	Holds    time.Duration // for how long the first bytes that are not acknowledged have been on it, and others sent after them; in steps of Tick
}

// Carriers returns the states of the living carriers, the oldest first.
func (s *Stream) Carriers() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, now := make([]State, 0, len(s.carriers)), s.ticks.Load()
	for _, c := range s.carriers {
		asked := time.Duration(0)
		if !c.asked.at.IsZero() {
			asked = time.Since(c.asked.at)
		}
		all = append(all, State{
			Holds: s.load.head.holds(c, now), Carrier: c, Used: s.send.Uses(c.id), Silent: c.silent, Since: c.since, RTT: c.rtt, Asked: asked, Least: c.least,
			Quiet: time.Duration(now-c.heard) * Tick,
			Sent:  c.outN, Received: c.in, Brought: c.data, InFlight: s.send.InFlight(c.id), Acked: s.send.Delivered(c.id),
		})
	}
	return all
}

// head is where a stream's acknowledgement stands. Times are in ticks.
type head struct {
	first resume.Carrier // the carrier of the first byte that is not acknowledged
	since int64          // since when it has been that one
	mark  uint64         // the end of what was sent
	at    int64          // at this time; it is not acknowledged yet
}

// look takes the state at a tick.
func (h *head) look(send *resume.Sender, now int64) {
	if first := send.First(); first != h.first {
		h.first, h.since = first, now
	}
	if send.Acked() >= h.mark {
		h.mark, h.at = send.Sent(), now
	}
}

// holds returns for how long all that was sent has waited for what a carrier has. On a carrier that
// is merely given more than others the first byte is often, but it is acknowledged soon.
func (h *head) holds(c *Carrier, now int64) time.Duration {
	if h.first == resume.None || h.first != c.id {
		return 0
	}
	return time.Duration(now-max(h.since, h.at)) * Tick
}

// Traffic returns how many bytes the carriers that count (Options.Counts) have moved so far,
// including closed carriers and headers. What is being written when a carrier dies is added when
// that call returns.
func (s *Stream) Traffic() (sent, received uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed.sent, s.passed.received
}

// Over reports whether the stream is over.
func (s *Stream) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Idle reports whether the peer has taken everything, and everything of the peer's stream was
// taken.
func (s *Stream) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.send.Acked() >= s.send.End() && s.waiting() == 0
}
