package agree

import (
	"encoding/binary"
	"fmt"
)

// A Kind is the kind of a message.
type Kind uint8

// Every message begins with kind:u8 seq:u64. A ballot is leader:u32 attempt:u32. A set is count:u32
// and as many ranks:u32, ascending. A value is flags:u64 max:u64 failed:set acked:set. All integers
// are big-endian. An unlisted kind is an error: both ends belong to one job and one release.
const (
	Contribute Kind = 1 // ballot value          to the parent
	Gather     Kind = 2 // ballot excluded:set   to a child
	Propose    Kind = 3 // ballot excluded:set value   to a child
	Accept     Kind = 4 // ballot                to the parent
	Commit     Kind = 5 // ballot excluded:set value   to a child
	Ask        Kind = 6 // failed:set            to the leader
	Answer     Kind = 7 // value                 to the sender of an Ask
)

// The parts of a message of a kind.
const (
	hasBallot = 1 << iota
	hasExcluded
	hasValue
)

var parts = [...]uint8{
	Contribute: hasBallot | hasValue,
	Gather:     hasBallot | hasExcluded,
	Propose:    hasBallot | hasExcluded | hasValue,
	Accept:     hasBallot,
	Commit:     hasBallot | hasExcluded | hasValue,
	Ask:        hasExcluded,
	Answer:     hasValue,
}

var kindNames = [...]string{"0", "Contribute", "Gather", "Propose", "Accept", "Commit", "Ask", "Answer"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// has reports whether messages of kind k have part.
func (k Kind) has(part uint8) bool { return int(k) < len(parts) && parts[k]&part != 0 }

// A Ballot identifies an attempt at an agreement.
type Ballot struct {
	Leader  int // its rank
	Attempt int // number of earlier attempts of this leader
}

// after reports whether b is later than c.
func (b Ballot) after(c Ballot) bool {
	return b.Leader > c.Leader || b.Leader == c.Leader && b.Attempt > c.Attempt
}

// A Message is a message between members. Which fields matter depends on the kind; the others are
// zero.
type Message struct {
	Kind     Kind
	Seq      uint64 // number of the agreement in the communicator, from 1
	Ballot   Ballot
	Excluded Set // excluded from the tree of the ballot; in an Ask: the failed ranks
	Value    Value
}

func (m Message) String() string {
	return fmt.Sprintf("%v{%d %d.%d -%v %x %d %v %v}", m.Kind, m.Seq, m.Ballot.Leader, m.Ballot.Attempt,
		m.Excluded, m.Value.Flags, m.Value.Max, m.Value.Failed, m.Value.Acked)
}

// Append appends m's encoding to b and returns the longer slice.
func (m Message) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, byte(m.Kind)), m.Seq)
	if m.Kind.has(hasBallot) {
		b = binary.BigEndian.AppendUint32(b, uint32(m.Ballot.Leader))
		b = binary.BigEndian.AppendUint32(b, uint32(m.Ballot.Attempt))
	}
	if m.Kind.has(hasExcluded) {
		b = appendSet(b, m.Excluded)
	}
	if m.Kind.has(hasValue) {
		b = binary.BigEndian.AppendUint64(b, m.Value.Flags)
		b = binary.BigEndian.AppendUint64(b, m.Value.Max)
		b = appendSet(b, m.Value.Failed)
		b = appendSet(b, m.Value.Acked)
	}
	return b
}

func appendSet(b []byte, s Set) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(s.Len()))
	for r := range s.Ranks() {
		b = binary.BigEndian.AppendUint32(b, uint32(r))
	}
	return b
}

// Parse parses the output of Append, a message between members of a communicator of size. It
// accepts nothing else: each message has one encoding, and every rank in it is below size. It keeps
// no reference to b.
func Parse(b []byte, size int) (Message, error) {
	r := reader{b: b, size: size}
	m := Message{Kind: Kind(r.take(1)), Seq: r.take(8)}
	if r.err == nil && (int(m.Kind) >= len(parts) || parts[m.Kind] == 0) {
		return Message{}, fmt.Errorf("agree: no kind of message is %d", m.Kind)
	}
	if m.Kind.has(hasBallot) {
		m.Ballot.Leader = r.rank()
		m.Ballot.Attempt = int(r.take(4))
	}
	if m.Kind.has(hasExcluded) {
		m.Excluded = r.set()
	}
	if m.Kind.has(hasValue) {
		m.Value = Value{Flags: r.take(8), Max: r.take(8), Failed: r.set(), Acked: r.set()}
	}
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%d bytes too many", len(r.b))
	}
	if r.err != nil {
		return Message{}, fmt.Errorf("agree: message %v: %w", m.Kind, r.err)
	}
	return m, nil
}

// A reader reads big-endian integers and remembers its first error.
type reader struct {
	b    []byte
	size int
	err  error
}

// take reads an integer of n bytes.
func (r *reader) take(n int) (v uint64) {
	if len(r.b) < n && r.err == nil {
		r.err = fmt.Errorf("it ends too early: %d bytes left, %d wanted", len(r.b), n)
	}
	if r.err != nil {
		return 0
	}
	for _, c := range r.b[:n] {
		v = v<<8 | uint64(c)
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) rank() int {
	v := r.take(4)
	if v >= uint64(r.size) && r.err == nil {
		r.err = fmt.Errorf("rank %d of %d", v, r.size)
	}
	if r.err != nil {
		return 0
	}
	return int(v)
}

func (r *reader) set() Set {
	n := r.take(4)
	if n > uint64(len(r.b)/4) && r.err == nil {
		r.err = fmt.Errorf("it ends too early: %d bytes left, a set of %d ranks wanted", len(r.b), n)
	}
	if r.err != nil || n == 0 {
		return Set{}
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = r.rank()
		if r.err == nil && i > 0 && ranks[i] <= ranks[i-1] {
			r.err = fmt.Errorf("rank %d follows %d in a set", ranks[i], ranks[i-1])
		}
		if r.err != nil {
			return Set{}
		}
	}
	return SetOf(ranks...)
}
