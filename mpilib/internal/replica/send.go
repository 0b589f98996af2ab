package replica

import "slices"

// A Send is a message that the program sends to another rank. Its memory is the caller's until Release, Complete or
// Undelivered; the first fields are set by the caller and not changed.
type Send struct {
	Context uint32
	To      int // rank, not this one
	Tag     int
	Bytes   int
	Digest  uint64 // of the content, by a function that is the same in all processes
	Call    uint64 // of the program, for reports,
	Name    string // what it is called, such as Bcast, and
	Line    string // where that is in its source; both are empty if unknown
	// InOrder says that the program itself sends the message, so that it has the same place among the
	// points and other such messages in all replicas. Messages of schedules have not.
	InOrder bool
	// Synchronous says that the send is complete for the program only when it is acknowledged. Its
	// destination is to call Delivered once a receive has matched it, not before.
	Synchronous bool
	Owner       any // the caller's

	nth       uint64 // place in its stream
	dependsOn uint64 // the log's entries that it may depend on
	copied    bool
	released  bool
}

// key is a stream of messages between two ranks.
type key struct {
	context uint32
	tag     int
}

// streamOf returns the stream of a message: not just its pair of ranks, since messages of different tags
// overtake each other, in each replica otherwise.
func streamOf(context uint32, tag int) key { return key{context, tag} }

// A destination is another rank that messages are sent to.
type destination struct {
	rank      int
	outgoing  map[key]*outgoing
	order     []*Send // those that are not released, and others, in the order of sending
	stale     int     // how many of order are released
	serving   []serving
	sender    []int    // by replica: whose messages it acknowledges, a replica of this rank, as far as is known here
	sent      uint64   // messages
	total     []uint64 // by replica: messages that it has acknowledged
	asked     []uint64 // by replica: total for which Flush asks
	unsettled []uint64 // by replica: messages sent that it has not acknowledged
}

// serving is what a process has to do with a replica of a destination:
//
//	silent --failure--> takesOver --first message--> queries --Have--> serves
type serving uint8

const (
	silent    serving = iota // another replica sends it the messages
	takesOver                // this one is to, and has nothing to send yet
	queries                  // Have is awaited
	serves
)

// outgoing is a stream. It counts since it was made, and is forgotten once all that was
// sent is acknowledged by all, and the other way round.
type outgoing struct {
	sent   uint64
	acked  []uint64 // by replica; more than sent: this replica is behind
	sends  []*Send  // the last ones sent, those that are not released
	claims []claim
}

// A claim is what the digest of messages that this replica has not all sent yet is said to be.
type claim struct {
	replica    int    // that served those messages
	next, last uint64 // the first that is not in have yet; the last
	first      place  // of the first
	have, want uint64
}

// place is where the program sends something.
type place struct {
	call       uint64 // 0: unknown
	name, line string
}

func placeOf(s *Send) place { return place{s.Call, s.Name, s.Line} }

func newDestination(rank, replicas int) destination {
	return destination{
		rank: rank, outgoing: map[key]*outgoing{}, serving: make([]serving, replicas), sender: make([]int, replicas), total: make([]uint64, replicas),
		asked: make([]uint64, replicas), unsettled: make([]uint64, replicas),
	}
}

// stream returns the state of a stream.
func (d *destination) stream(k key) *outgoing {
	s := d.outgoing[k]
	if s == nil {
		s = &outgoing{acked: make([]uint64, len(d.serving))}
		d.outgoing[k] = s
	}
	return s
}

// Send sends s. It stays with the Process until all live replicas of its destination have
// acknowledged it.
func (p *Process) Send(s *Send) {
	if p.expelled {
		return
	}
	if s.InOrder {
		p.digest = mix(mix(mix(mix(p.digest, uint64(s.Context)), uint64(s.To)), uint64(s.Tag)), s.Digest)
	}
	d := &p.peers[s.To].destination
	k := streamOf(s.Context, s.Tag)
	o := d.stream(k)
	o.sent++
	d.sent++
	s.nth, s.dependsOn = o.sent, p.dependsOn()
	o.settleClaims(p, s)
	needed := false
	for c := range o.acked {
		if p.needs(s, o, c) {
			needed = true
			d.unsettled[c]++
		}
	}
	if !needed {
		s.released = true
		d.forget(p, k, o)
		p.emit(Effect{Kind: s.completion(p, o), Send: s})
		return
	}
	o.sends = append(o.sends, s)
	d.order = append(d.order, s)
	p.keep(s)
	if s.dependsOn > p.log.committed {
		p.awaitingCommit = append(p.awaitingCommit, s)
		return
	}
	p.dispatch(s)
}

// needs reports whether a replica lives that has not acknowledged s.
func (p *Process) needs(s *Send, o *outgoing, replica int) bool {
	return o.acked[replica] < s.nth && !p.failed[p.cfg.Layout.Process(s.To, replica)]
}

// dispatch transmits s to the replicas that this process serves.
func (p *Process) dispatch(s *Send) {
	d := &p.peers[s.To].destination
	o := d.outgoing[streamOf(s.Context, s.Tag)]
	for c := range d.serving {
		if s.released || !p.needs(s, o, c) {
			continue
		}
		switch to := p.cfg.Layout.Process(s.To, c); d.serving[c] {
		case serves:
			p.emit(Effect{Kind: Transmit, Process: to, Send: s})
		case takesOver:
			sendQuery(p, s.To, c)
		}
	}
}

// keep copies s if there is room, or holds it.
func (p *Process) keep(s *Send) {
	if !s.Synchronous && len(p.held) == p.awaiting && s.fits(p) {
		s.copyFor(p)
		return
	}
	if s.Synchronous {
		p.awaiting++
	}
	p.held = append(p.held, s)
	p.askForAcks()
}

// fits reports whether there is room to copy s.
func (s *Send) fits(p *Process) bool { return p.kept+s.Bytes+SendCost <= p.cfg.MaxKept }

func (s *Send) copyFor(p *Process) {
	p.kept += s.Bytes + SendCost
	s.copied = true
	p.emit(Effect{Kind: Copy, Send: s})
}

// Blocked reports whether sends wait for others to be acknowledged.
func (p *Process) Blocked() bool { return len(p.held) > 0 }

// askForAcks asks all that have not acknowledged something to do so soon, if sends wait for it.
func (p *Process) askForAcks() {
	if len(p.held) == 0 && !p.draining {
		return
	}
	for rank := range p.peers {
		d := &p.peers[rank].destination
		for c, n := range d.unsettled {
			to := p.cfg.Layout.Process(rank, c)
			if n == 0 || p.failed[to] {
				continue
			}
			if !p.draining { // the others may wait for receives that come after what is held
				n = 1
			}
			if d.asked[c] < d.total[c]+n {
				d.asked[c] = d.total[c] + n
				p.sendControl(to, Message{Kind: Flush, Count: d.asked[c]})
			}
		}
	}
}

// acknowledged takes the acknowledgements of a process.
func (p *Process) acknowledged(from int, acks []AckEntry) error {
	rank, c := p.cfg.Rank(from), p.cfg.Replica(from)
	d := &p.peers[rank].destination
	for _, a := range acks {
		k := streamOf(a.Context, a.Tag)
		o := d.stream(k)
		p.claim(o, rank, c, a)
		settled := min(o.sent-min(o.sent, o.acked[c]), uint64(a.Count))
		d.unsettled[c] -= settled
		d.total[c] += uint64(a.Count)
		o.acked[c] += uint64(a.Count)
		p.release(d, o)
		if p.draining {
			o.checkSurplus(p, d, k)
		}
		d.forget(p, k, o)
	}
	copyHeld(p)
	p.askForAcks()
	return nil
}

// release lets go of the messages of a stream that all have.
func (p *Process) release(d *destination, o *outgoing) {
	for len(o.sends) > 0 {
		s := o.sends[0]
		for c := range o.acked {
			if p.needs(s, o, c) {
				return
			}
		}
		o.sends[0] = nil
		o.sends = o.sends[1:]
		p.drop(d, o, s)
	}
}

// drop lets go of s, which is of the stream o.
func (p *Process) drop(d *destination, o *outgoing, s *Send) {
	s.released = true
	d.stale++
	if s.copied {
		p.kept -= s.Bytes + SendCost
		p.emit(Effect{Kind: Release, Send: s})
	} else {
		p.held = slices.DeleteFunc(p.held, func(h *Send) bool { return h == s })
		if s.Synchronous {
			p.awaiting--
		}
		p.emit(Effect{Kind: s.completion(p, o), Send: s})
	}
	if d.stale > len(d.order)/2 {
		d.order = slices.DeleteFunc(d.order, func(s *Send) bool { return s.released })
		d.stale = 0
	}
}

// completion returns how s, which no live replica of its destination lacks, ends for the program. Where a replica has left, the
// rank has what it wants.
func (s *Send) completion(p *Process, o *outgoing) EffectKind {
	for c, n := range o.acked {
		if n >= s.nth || p.ended.left[p.cfg.Layout.Process(s.To, c)] {
			return Complete
		}
	}
	return Undelivered
}

// copyHeld copies what is held, as far as there is room.
func copyHeld(p *Process) {
	if len(p.held) == p.awaiting {
		return
	}
	remaining := make([]*Send, 0, len(p.held))
	full := false
	for _, s := range p.held {
		if !s.Synchronous {
			full = full || !s.fits(p)
		}
		if s.Synchronous || full {
			remaining = append(remaining, s)
			continue
		}
		s.copyFor(p)
	}
	p.held = remaining
}

// forget deletes a stream of which nothing is known that the beginning of another would not be.
func (d *destination) forget(p *Process, k key, o *outgoing) {
	if len(o.sends) > 0 || len(o.claims) > 0 {
		return
	}
	for c, n := range o.acked {
		if n != o.sent && !p.failed[p.cfg.Layout.Process(d.rank, c)] {
			return
		}
	}
	delete(d.outgoing, k)
}
