package replica

// An Arrival is a message that has begun to arrive. The engine keeps it with whatever takes the message.
type Arrival struct {
	Owner any // the caller's

	bytes     int
	digest    uint64
	delivered bool
}

// A Verdict says what is to be done with a message that begins to arrive.
type Verdict uint8

// The verdicts.
const (
	// Fresh: match it; its source is the rank of the process.
	Fresh Verdict = iota
	// Resumed: it is what a failed process began to send, and what that was matched with takes it.
	Resumed
	// Duplicate: it was delivered. Drop it.
	Duplicate
	// Stale: the process has failed, or serves this one no more. Drop it.
	Stale
)

// A source is another rank that messages come from.
type source struct {
	server   int // process whose messages are accepted
	incoming map[key]*incoming

	acks      []AckEntry  // due, by stream in the order of their first
	index     map[key]int // of acks
	messages  int         // that they are for,
	bytes     int         // and their bytes
	delivered uint64      // messages, acknowledged ones and due ones
	flush     []uint64    // by replica: acknowledge once so many are delivered; 0: not asked
	left      int         // replica that has left; -1: none
	surplus   *key        // stream of the first message delivered that it had not sent; nil: none
}

// incoming is a stream. It is forgotten once all of it is acknowledged, or due to be.
type incoming struct {
	begun []*Arrival // and not acknowledged: behind one that is not delivered
	sent  int        // how many of begun the server has sent, which is again those that another began
}

func newSource(l Layout, server int) source {
	return source{server: server, incoming: map[key]*incoming{}, index: map[key]int{}, flush: make([]uint64, l.Replicas), left: -1}
}

// Arrive takes the envelope of a message of a process of another rank, before it is matched. All Arrivals that
// are not Stale or Duplicate are to be Delivered. A Resumed one is that which was Fresh before.
func (p *Process) Arrive(process int, context uint32, tag, bytes int) (*Arrival, Verdict) {
	rank := p.cfg.Rank(process)
	if rank == Unseated || p.failed[process] || p.expelled || p.peers[rank].server != process {
		p.expel(process)
		return nil, Stale
	}
	s := &p.peers[rank].source
	k := streamOf(context, tag)
	in := s.incoming[k]
	if in == nil {
		in = new(incoming)
		s.incoming[k] = in
	}
	in.sent++
	if in.sent > len(in.begun) {
		a := &Arrival{bytes: bytes}
		in.begun = append(in.begun, a)
		return a, Fresh
	}
	a := in.begun[in.sent-1]
	if !a.delivered {
		return a, Resumed
	}
	p.advance(rank, k, in)
	return nil, Duplicate
}

// Delivered notes that all bytes of a message of a rank are here, in the program's buffer or kept, so that it
// can no more be lost but with this process; or that they are not needed. The digest is that of Send; 0: unknown, since the message did not arrive whole.
func (p *Process) Delivered(rank int, context uint32, tag int, a *Arrival, digest uint64) {
	a.delivered, a.digest = true, digest
	k := streamOf(context, tag)
	if in := p.peers[rank].incoming[k]; in != nil && !p.expelled {
		p.advance(rank, k, in)
	}
}

// advance has the first messages of a stream acknowledged, if they are delivered. Those that the server is yet to send
// again count as not delivered until it has.
func (p *Process) advance(rank int, k key, in *incoming) {
	s := &p.peers[rank].source
	for in.sent > 0 && in.begun[0].delivered {
		s.addDue(k, in.begun[0])
		in.begun[0] = nil
		in.begun = in.begun[1:]
		in.sent--
	}
	if len(in.begun) == 0 {
		delete(s.incoming, k)
	}
	compareWithLeft(p, rank)
	if s.messages >= p.cfg.AckEvery || s.bytes >= p.cfg.MaxKept/ackShare && s.messages > 0 || s.flushDue() {
		p.acknowledge(rank, -1)
	}
}

// addDue adds a message to the acknowledgements that are due.
func (s *source) addDue(k key, a *Arrival) {
	i, ok := s.index[k]
	if !ok {
		i = len(s.acks)
		s.index[k] = i
		s.acks = append(s.acks, AckEntry{Context: k.context, Tag: k.tag})
	}
	e := &s.acks[i]
	known := a.digest != 0 && (e.Count == 0 || e.Digest != 0)
	e.Count++
	if e.Digest = mix(e.Digest, a.digest); !known {
		e.Digest = 0
	}
	if s.left >= 0 && s.surplus == nil {
		s.surplus = &key{k.context, k.tag}
	}
	s.messages++
	s.bytes += a.bytes
	s.delivered++
}

// flushDue reports whether a process asked for acknowledgements that are due now.
func (s *source) flushDue() bool {
	for _, n := range s.flush {
		if n > 0 && s.delivered >= n && s.messages > 0 {
			return true
		}
	}
	return false
}

// flushBy is a process's wish to have messages of its rank acknowledged as soon as so many are delivered. If they are, all
// that is due is acknowledged now, and the others already were.
func flushBy(p *Process, from int, count uint64) {
	rank := p.cfg.Rank(from)
	s := &p.peers[rank].source
	c := p.cfg.Replica(from)
	if s.flush[c] = count; s.delivered >= count {
		s.flush[c] = 0
		p.acknowledge(rank, -1)
	}
}

// acknowledge sends the acknowledgements that are due to all live replicas of a rank; to server, unless it is -1,
// with Have.
func (p *Process) acknowledge(rank, server int) {
	s := &p.peers[rank].source
	acks := s.acks
	if len(acks) == 0 && server < 0 {
		return
	}
	for c := range p.cfg.Replicas {
		to, kind := p.cfg.Layout.Process(rank, c), Ack
		if to == server {
			kind = Have
		} else if len(acks) == 0 {
			continue
		}
		p.sendControl(to, Message{Kind: kind, Acks: acks})
		if s.flush[c] <= s.delivered {
			s.flush[c] = 0
		}
	}
	s.acks, s.messages, s.bytes = nil, 0, 0
	clear(s.index)
}
