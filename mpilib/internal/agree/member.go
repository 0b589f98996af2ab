package agree

import (
	"errors"
	"fmt"
)

// ErrExpelled is returned by a member's calls once others consider it failed: they have continued
// without it, and it must not go on as a member.
var ErrExpelled = errors.New("agree: the others hold this process for failed; it must leave the communicator")

// A Member is one rank's part in the agreements of one communicator, which are numbered from 1 and
// made one after the other. See the package documentation for its requirements and guarantees.
type Member struct {
	rank, size int
	shape      func(int) int // of trees
	failed     Set           // all known failures
	starts     uint64        // agreements started, including queued ones
	queue      []Value       // started, waiting for earlier ones to be decided
	last       Decision      // the latest, to answer members that missed it; Seq 0: none
	now        agreement     // number last.Seq+1
	early      []arrival     // for number last.Seq+2; at most two from each member
	out        Out           // result of the current call
}

// An agreement is the state of an undecided agreement.
//
//	gathering --proposal--> proposed --commit--> decided: it becomes Member.last
//	    ^  |                 ^    |
//	    +--+  later ballots  +----+
//
// A member that has accepted a proposal goes back to gathering if a leader that has not accepted
// one asks it to.
type agreement struct {
	started  bool
	mine     Value // what this member contributes
	accepted bool
	value    Value // the proposal accepted last

	// The following fields belong to the ballot, and are reset with each.
	ballot   Ballot
	tree     tree
	children Set
	stage    stage
	heard    Set   // the children that have contributed or accepted
	sum      Value // of their contributions, and of mine
	answered bool  // the parent has been sent what it waits for
}

type stage uint8

const (
	gathering stage = iota
	proposed
)

type arrival struct {
	from    int
	message Message
}

// Out is the result of a call: messages to send first, in any order; the decisions are already
// final. Both belong to the caller.
type Out struct {
	Send    []Envelope
	Decided []Decision // in order
}

// An Envelope is a message to a rank.
type Envelope struct {
	To      int
	Message Message
}

// A Decision is the result of an agreement. Seq 0 stands for none.
type Decision struct {
	Seq   uint64
	Value Value
}

// New returns the member of rank in a communicator of size.
func New(rank, size int) *Member { return newMember(rank, size, binomial) }

func newMember(rank, size int, shape func(int) int) *Member {
	m := &Member{rank: rank, size: size, shape: shape}
	m.begin()
	return m
}

// Start contributes v to the next agreement and returns its number. An agreement started while an
// earlier one is undecided waits for it. v.Failed need not contain the failures reported to Fail.
func (m *Member) Start(v Value) (seq uint64, out Out) {
	m.starts++
	m.queue = append(m.queue, v)
	m.learn(v.Failed)
	m.progress()
	return m.starts, m.take()
}

// Fail reports that ranks have failed. Reporting a rank again does nothing.
func (m *Member) Fail(ranks ...int) Out {
	for _, r := range ranks {
		if r < 0 || r >= m.size || r == m.rank {
			panic(fmt.Sprintf("agree: rank %d of %d: wrong failed rank %d", m.rank, m.size, r))
		}
	}
	m.learn(SetOf(ranks...))
	m.progress()
	return m.take()
}

// Receive takes a message from another rank, as Parse returned it. It returns an error, and changes
// nothing, for a message that the protocol does not allow. It ignores messages from failed ranks.
func (m *Member) Receive(from int, msg Message) (Out, error) {
	if err := m.check(from, msg); err != nil {
		return Out{}, err
	}
	if m.failed.Has(from) {
		return Out{}, nil
	}
	switch {
	case msg.Seq == m.last.Seq:
		m.answer(from, msg)
	case msg.Seq == m.last.Seq+1:
		m.handle(from, msg)
	case msg.Seq == m.last.Seq+2:
		m.postpone(from, msg)
	}
	m.learn(msg.Excluded)
	m.learn(msg.Value.Failed)
	m.progress()
	return m.take(), nil
}

// Last returns the latest decision.
func (m *Member) Last() Decision { return m.last }

// Failed returns all failures this member knows.
func (m *Member) Failed() Set { return m.failed }

// WaitsFor returns the ranks whose messages the started agreement needs to make progress, or none
// if none is undecided. Perhaps no other member can detect that one of them has failed: the owner
// has to find out.
func (m *Member) WaitsFor() Set {
	a := &m.now
	var waits Set
	switch {
	case !a.started:
		return Set{}
	case !a.answered:
		waits = a.children.Minus(a.heard)
	default:
		waits = SetOf(a.tree.parent(m.rank))
	}
	if !m.failed.In(a.tree.excluded) { // another attempt is due
		waits = waits.Union(SetOf(m.leader()))
	}
	return waits.Minus(m.failed.Union(SetOf(m.rank)))
}

func (m *Member) take() Out {
	out := m.out
	m.out = Out{}
	return out
}

// check rejects messages that no correct member sends.
func (m *Member) check(from int, msg Message) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("agree: %v of agreement %d from rank %d to rank %d: %s", msg.Kind, msg.Seq, from, m.rank, fmt.Sprintf(format, args...))
	}
	if msg.Excluded.Has(m.rank) || msg.Value.Failed.Has(m.rank) {
		return ErrExpelled
	}
	if from < 0 || from >= m.size || from == m.rank {
		return fail("there is no such sender")
	}
	if msg.Seq == 0 || msg.Seq > m.last.Seq+2 {
		return fail("the last decided is %d, none but the next two can have begun", m.last.Seq)
	}
	switch msg.Kind {
	case Gather, Propose, Commit:
		t := tree{m.size, msg.Excluded, m.shape}
		if msg.Ballot.Leader != t.root() || t.parent(m.rank) != from {
			return fail("it comes not from the parent in the tree of leader %d without %v", msg.Ballot.Leader, msg.Excluded)
		}
	}
	contributed := msg.Seq <= m.last.Seq || msg.Seq == m.last.Seq+1 && m.now.started
	switch msg.Kind {
	case Propose, Accept, Commit, Answer:
		if !contributed {
			return fail("this member has not contributed yet")
		}
	case Contribute, Gather, Ask:
	default:
		return fail("there is no such kind")
	}
	return nil
}

// answer handles a message about the last decided agreement.
func (m *Member) answer(from int, msg Message) {
	switch msg.Kind {
	case Gather, Propose: // from a leader that has not learned of the decision
		m.send(msg.Ballot.Leader, Message{Kind: Answer, Value: m.last.Value}, msg.Seq)
	case Ask:
		m.send(from, Message{Kind: Answer, Value: m.last.Value}, msg.Seq)
	case Commit: // this member has decided already, but its children wait
		m.forward(msg)
	}
}

// postpone keeps a message for an agreement that others have already begun, having learned of a
// decision that this member has not. They cannot be past gathering, which takes this member's
// contribution.
func (m *Member) postpone(from int, msg Message) {
	if msg.Kind == Ask { // it only carries failures
		return
	}
	for i := range m.early {
		e := &m.early[i]
		if e.from == from && e.message.Kind == msg.Kind {
			if msg.Ballot.after(e.message.Ballot) {
				e.message = msg
			}
			return
		}
	}
	m.early = append(m.early, arrival{from, msg})
}

// handle handles a message about the agreement to be decided next.
func (m *Member) handle(from int, msg Message) {
	a := &m.now
	switch msg.Kind {
	case Contribute:
		if msg.Ballot == a.ballot && a.stage == gathering && a.children.Has(from) {
			a.heard = a.heard.Union(SetOf(from))
			a.sum = a.sum.plus(msg.Value)
		}
	case Gather:
		if msg.Ballot.after(a.ballot) {
			m.switchTo(msg.Ballot, msg.Excluded, gathering)
			m.forward(msg)
		}
	case Propose:
		if msg.Ballot.after(a.ballot) || msg.Ballot == a.ballot && a.stage == gathering {
			m.switchTo(msg.Ballot, msg.Excluded, proposed)
			a.accepted, a.value = true, msg.Value
			m.forward(msg)
		}
	case Accept:
		if msg.Ballot == a.ballot && a.stage == proposed && a.children.Has(from) {
			a.heard = a.heard.Union(SetOf(from))
		}
	case Commit:
		m.forward(msg)
		m.decide(msg.Value)
	case Answer:
		if a.ballot.Leader == m.rank { // possibly only the sender has learned of the decision
			m.down(Commit, msg.Value)
		}
		m.decide(msg.Value)
	}
}

// learn adds to the known failures. A member that has accepted a proposal sends Ask, because the
// member that would have told it of the decision may be among the dead. The failures it sends
// ensure that a leader that has not decided excludes them from its tree before it does.
func (m *Member) learn(failed Set) {
	if failed.In(m.failed) {
		return
	}
	m.failed = m.failed.Union(failed)
	if leader := m.leader(); m.now.stage == proposed && leader != m.rank {
		m.send(leader, Message{Kind: Ask, Excluded: m.failed}, m.last.Seq+1)
	}
}

// leader returns the rank that leads as far as this member knows.
func (m *Member) leader() int { return m.failed.lowestOutside() }

// progress does everything that is possible without another message.
func (m *Member) progress() {
	for m.step() {
	}
}

// step does one action, or returns false.
func (m *Member) step() bool {
	a := &m.now
	if !a.started {
		if len(m.queue) == 0 {
			return false
		}
		a.started, a.mine = true, m.queue[0]
		m.queue = m.queue[1:]
		a.mine.Failed = a.mine.Failed.Union(m.failed)
		a.sum = a.sum.plus(a.mine)
		return true
	}
	if m.leader() == m.rank && !(a.ballot.Leader == m.rank && m.failed.In(a.tree.excluded)) {
		m.lead()
		return true
	}
	if a.answered || !a.heard.Equal(a.children) {
		return false
	}
	root := a.ballot.Leader == m.rank
	switch {
	case a.stage == gathering && root:
		a.accepted, a.value = true, a.sum
		a.value.Failed = a.value.Failed.Union(m.failed) // also those that failed since they, or others, contributed
		a.stage, a.heard = proposed, Set{}
		m.down(Propose, a.value)
	case a.stage == gathering:
		m.up(Message{Kind: Contribute, Ballot: a.ballot, Value: a.sum})
	case root:
		m.down(Commit, a.value)
		m.decide(a.value)
	default:
		m.up(Message{Kind: Accept, Ballot: a.ballot})
	}
	return true
}

// lead starts an attempt of this member's own, without any of the failed ranks.
func (m *Member) lead() {
	a := &m.now
	b := Ballot{Leader: m.rank, Attempt: 1} // 0 is the one that all members begin with unasked
	if a.ballot.Leader == m.rank {
		b.Attempt = a.ballot.Attempt + 1
	}
	if a.accepted {
		m.switchTo(b, m.failed, proposed)
		m.down(Propose, a.value)
		return
	}
	m.switchTo(b, m.failed, gathering)
	m.down(Gather, Value{})
}

// switchTo switches to a ballot and stage.
func (m *Member) switchTo(b Ballot, excluded Set, s stage) {
	a := &m.now
	a.ballot, a.stage = b, s
	a.tree = tree{m.size, excluded, m.shape}
	a.children = SetOf(a.tree.children(m.rank)...)
	a.heard, a.answered = Set{}, false
	a.sum = Value{Flags: ^uint64(0), Acked: all(m.size)} // the neutral element of the sum
	if a.started {
		a.sum = a.sum.plus(a.mine)
	}
}

// decide ends the agreement, and with it the need to remember the one before.
func (m *Member) decide(v Value) {
	m.last = Decision{m.last.Seq + 1, v}
	m.out.Decided = append(m.out.Decided, m.last)
	m.failed = m.failed.Union(v.Failed)
	m.begin()
	early := m.early
	m.early = nil
	for _, e := range early {
		if !m.failed.Has(e.from) {
			m.handle(e.from, e.message)
		}
	}
}

// begin prepares the agreement after the last one. Its first ballot excludes the ranks that failed
// in the last, which is common knowledge: all that contribute know the same tree without a message.
func (m *Member) begin() {
	m.now = agreement{}
	failed := m.last.Value.Failed
	m.switchTo(Ballot{Leader: failed.lowestOutside()}, failed, gathering)
}

// up sends msg to the parent.
func (m *Member) up(msg Message) {
	m.now.answered = true
	m.send(m.now.tree.parent(m.rank), msg, m.last.Seq+1)
}

// down sends to the children in the tree of the ballot.
func (m *Member) down(k Kind, v Value) {
	a := &m.now
	for child := range a.children.Ranks() {
		m.send(child, Message{Kind: k, Ballot: a.ballot, Excluded: a.tree.excluded, Value: v}, m.last.Seq+1)
	}
}

// forward sends msg to the children in the tree along which it arrived.
func (m *Member) forward(msg Message) {
	for _, child := range (tree{m.size, msg.Excluded, m.shape}).children(m.rank) {
		m.send(child, msg, msg.Seq)
	}
}

func (m *Member) send(to int, msg Message, seq uint64) {
	if m.failed.Has(to) {
		return
	}
	msg.Seq = seq
	m.out.Send = append(m.out.Send, Envelope{to, msg})
}
