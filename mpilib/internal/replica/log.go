package replica

import (
	"fmt"
	"slices"
)

// A log is the decisions of a rank, as far as this process knows them. Its positions count from 1.
type log struct {
	leader    int               // the replica whose log it is
	entries   []Entry           // after base
	positions map[uint64]uint64 // of entries, by point
	base      uint64            // how many are forgotten
	committed uint64            // position up to which all live replicas have it
	holders   []holder
	announced uint64 // position up to which the others know that it is used here

	points uint64           // begun
	open   map[uint64]point // those whose outcome the program has not got
	used   uint64           // position up to which no outcome is needed here any more
	last   uint64           // highest position of an outcome that the program has got
}

// A point is one that was begun.
type point struct {
	kind uint8
	sent uint64
	line string
}

// A holder is what a replica has of the log: so many positions of a leader's.
type holder struct {
	leader   int
	position uint64
	used     uint64
}

func (l *log) init(replicas int) {
	l.holders, l.open, l.positions = make([]holder, replicas), map[uint64]point{}, map[uint64]uint64{}
}

// length returns the position of the last entry.
func (l *log) length() uint64 { return l.base + uint64(len(l.entries)) }

// add appends entries.
func (l *log) add(entries []Entry) {
	for _, e := range entries {
		l.entries = append(l.entries, e)
		l.positions[e.Point] = l.length()
	}
}

// truncate forgets the entries after a position.
func (l *log) truncate(position uint64) {
	for _, e := range l.entries[position-l.base:] {
		delete(l.positions, e.Point)
	}
	l.entries = slices.Clip(l.entries[:position-l.base])
}

// trim forgets the first n entries.
func (l *log) trim(n int) {
	for _, e := range l.entries[:n] {
		delete(l.positions, e.Point)
	}
	l.entries, l.base = l.entries[n:], l.base+uint64(n)
}

// since returns the entries after a position, which are not forgotten.
func (l *log) since(position uint64) []Entry { return slices.Clone(l.entries[position-l.base:]) }

// IsLeader reports whether this process decides.
func (p *Process) IsLeader() bool { return p.log.leader == p.replica }

// dependsOn returns the position on which what is sent now may depend.
func (p *Process) dependsOn() uint64 {
	switch {
	case p.cfg.SendDeterministic:
		return 0
	case p.IsLeader():
		return p.log.length()
	}
	return p.log.last
}

// Begin begins a point of a kind, and returns its number. line is where it is in the program's source, for reports; empty
// if unknown.
func (p *Process) Begin(kind uint8, line string) uint64 {
	p.log.points++
	p.log.open[p.log.points] = point{kind, p.digest, line}
	return p.log.points
}

// An Answer says what is to be done at a point.
type Answer uint8

// The answers.
const (
	Wait   Answer = iota // for Wake
	Replay               // the outcome that was decided
	Choose               // this process leads: call Decide as soon as there is an outcome
)

// Answer says what is to be done at a point that was begun and has not got its outcome.
func (p *Process) Answer(at uint64) Answer {
	l := &p.log
	position := l.positions[at]
	switch {
	case position > 0 && (position <= l.committed || p.IsLeader()):
		return Replay
	case position == 0 && p.IsLeader() && !p.tooFarAhead():
		return Choose
	}
	return Wait
}

// Outcome returns what Answer does. With Replay it also returns the outcome of the point, which the program gets:
// it is not asked for again.
func (p *Process) Outcome(at uint64) (Outcome, Answer) {
	l := &p.log
	answer := p.Answer(at)
	if answer != Replay {
		return Outcome{}, answer
	}
	position := l.positions[at]
	e := l.entries[position-l.base-1]
	if o := l.open[at]; e.Kind != o.kind || e.Sent != o.sent {
		what := fmt.Sprintf("what the program sent before this %s is not the same", p.cfg.kindName(e.Kind))
		if e.Kind != o.kind {
			what = fmt.Sprintf("%s, and in the other %s", p.cfg.kindName(o.kind), p.cfg.kindName(e.Kind))
		}
		p.diverge(l.leader, Divergence{Point: at, Lines: [2]string{o.line}, What: what})
	}
	p.markUsed(at, position)
	return e.Outcome, Replay
}

// tooFarAhead reports whether this process leads, and a replica has yet to use too many of the outcomes.
func (p *Process) tooFarAhead() bool {
	least := p.log.length()
	p.eachReplica(func(c, _ int) { least = min(least, p.log.holders[c].used) })
	return p.IsLeader() && p.log.length()-least >= uint64(p.cfg.MaxAhead)
}

// Decide decides the outcome of a point, which only the leader may do.
func (p *Process) Decide(at uint64, o Outcome) {
	l := &p.log
	begun, ok := l.open[at]
	if !ok || !p.IsLeader() || l.positions[at] != 0 {
		panic(fmt.Sprintf("replica: point %d is decided, which replica %d is not to do", at, p.replica))
	}
	e := Entry{Point: at, Kind: begun.kind, Sent: begun.sent, Outcome: o}
	base := l.length()
	l.add([]Entry{e})
	p.eachReplica(func(_, q int) { p.sendControl(q, Message{Kind: Decisions, Count: base, Entries: []Entry{e}}) })
	p.markUsed(at, l.length())
	p.commit()
}

// markUsed notes that the program has got an outcome.
func (p *Process) markUsed(at, position uint64) {
	l := &p.log
	delete(l.open, at)
	l.last = max(l.last, position)
	p.prune()
}

// prune forgets the entries that all live replicas have and the program has got, and tells the others from time to time how
// far it is.
func (p *Process) prune() {
	l := &p.log
	n := 0
	for _, e := range l.entries[:l.committed-l.base] {
		if _, open := l.open[e.Point]; open || e.Point > l.points {
			break
		}
		n++
	}
	l.trim(n)
	l.used = l.base
	if l.used-l.announced >= uint64(p.cfg.MaxAhead+3)/4 && !p.IsLeader() {
		p.announce()
	}
}

// announce tells the other replicas what this one has of the leader's log.
func (p *Process) announce() {
	l := &p.log
	l.announced = l.used
	p.eachReplica(func(_, q int) {
		p.sendControl(q, Message{Kind: Committed, Leader: l.leader, Count: l.length(), Used: l.used})
	})
}

// decisions takes what the leader has decided.
func (p *Process) decisions(from int, m Message) error {
	l := &p.log
	if p.cfg.Replica(from) != l.leader || m.Count != l.length() {
		return fmt.Errorf("%w: process %d decides after %d outcomes, of %d of replica %d", ErrProtocol, from, m.Count, l.length(), l.leader)
	}
	l.add(m.Entries)
	p.logGrown()
	return nil
}

// logGrown is called when the leader's log has grown here.
func (p *Process) logGrown() {
	l := &p.log
	l.holders[l.leader].leader, l.holders[l.leader].position = l.leader, l.length()
	p.announce()
	p.commit()
}

// handleCommitted notes what another replica has of the log.
func (p *Process) handleCommitted(from int, m Message) error {
	l := &p.log
	if m.Leader >= p.cfg.Replicas || m.Used > m.Count || m.Leader == l.leader && p.IsLeader() && m.Count > l.length() {
		return fmt.Errorf("%w: process %d has %d outcomes, of %d of replica %d, and used %d", ErrProtocol, from, m.Count, l.length(), m.Leader, m.Used)
	}
	ahead := p.tooFarAhead()
	l.holders[p.cfg.Replica(from)] = holder{m.Leader, m.Count, m.Used}
	p.commit()
	if ahead && !p.tooFarAhead() {
		p.emit(Effect{Kind: Wake})
	}
	return nil
}

// commit commits what all live replicas have, and sends what waited for that.
func (p *Process) commit() {
	l := &p.log
	all := l.length()
	p.eachReplica(func(c, _ int) {
		if h := l.holders[c]; h.leader == l.leader {
			all = min(all, h.position)
		} else {
			all = 0
		}
	})
	if all <= l.committed {
		return
	}
	l.committed = all
	if !p.IsLeader() {
		p.emit(Effect{Kind: Wake})
		p.postAll()
	}
	for len(p.awaitingCommit) > 0 && p.awaitingCommit[0].dependsOn <= l.committed {
		s := p.awaitingCommit[0]
		p.awaitingCommit = p.awaitingCommit[1:]
		p.dispatch(s)
	}
	p.prune()
}

// failure is called when other replicas of the rank have failed: a new leader begins, and less
// is needed to commit.
func (l *log) failure(p *Process) {
	if lowest(p.cfg.Replicas, p.alive(p.rank)) == p.replica && l.leader != p.replica {
		p.becomeLeader()
	}
	p.commit()
	p.emit(Effect{Kind: Wake}) // a slow replica may have been waited for
}

// becomeLeader begins with what this process has of the log. The other replicas replace by that what they
// have beyond what this one knows them to have.
func (p *Process) becomeLeader() {
	l := &p.log
	before := l.leader
	l.leader = p.replica
	if p.ended.within(p) {
		return // nothing is to be decided any more, and others may not know yet which replicas have left
	}
	p.eachReplica(func(c, q int) {
		base := l.committed
		if h := &l.holders[c]; h.leader == before {
			base = max(base, min(h.position, l.length()))
		}
		p.sendControl(q, Message{Kind: Lead, Failed: failures(p), Count: base, Entries: l.since(base)})
	})
	p.postAll()
}

// newLeader takes the log of a replica that leads from now on.
func (p *Process) newLeader(from int, m Message) error {
	l := &p.log
	c := p.cfg.Replica(from)
	if c <= l.leader || c > p.replica || m.Count > l.length() || m.Count+uint64(len(m.Entries)) < l.committed {
		return fmt.Errorf("%w: process %d leads after %d outcomes, of %d of replica %d", ErrProtocol, from, m.Count, l.length(), l.leader)
	}
	p.recordFailures(m.Failed, true)
	if p.expelled {
		return nil
	}
	if lowest(p.cfg.Replicas, p.alive(p.rank)) != c {
		return fmt.Errorf("%w: process %d leads, but a lower replica lives", ErrProtocol, from)
	}
	keep := max(m.Count, l.committed)
	l.leader = c
	l.truncate(keep)
	l.add(m.Entries[keep-m.Count:])
	p.logGrown()
	return nil
}
