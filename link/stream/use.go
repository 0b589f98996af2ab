package stream

import "time"

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
	Asked    time.Duration // time since a question that has no answer yet; 0: there is none
	Least    time.Duration // minimum of all measured round trips: what the path takes without other traffic
	Sent     uint64        // bytes given to the system, including headers
	Received uint64        // bytes
	Brought  uint64        // of these, bytes of the stream, including duplicates
	InFlight uint64        // bytes of the stream that were sent on it and are not acknowledged
	Acked    uint64        // bytes of the stream that were sent on it and are acknowledged
}

// Carriers returns the states of the living carriers, the oldest first.
func (s *Stream) Carriers() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]State, 0, len(s.carriers))
	for _, c := range s.carriers {
		asked := time.Duration(0)
		if !c.asked.at.IsZero() {
			asked = time.Since(c.asked.at)
		}
		all = append(all, State{
			Carrier: c, Used: s.send.Uses(c.id), Silent: c.silent, Since: c.since, RTT: c.rtt, Asked: asked, Least: c.least,
			Sent: c.outN, Received: c.in, Brought: c.data, InFlight: s.send.InFlight(c.id), Acked: s.send.Delivered(c.id),
		})
	}
	return all
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
