package replica

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Kind is the kind of a Message.
type Kind uint8

// Every message begins with kind:u8. A set is count:u32 and as many processes:u32, ascending. An ack is context:u32
// tag:u32 count:u32 digest:u64. An entry is point:u64 kind:u8 sent:u64 source:i32 tag:i32 size:u32 data[size].
// All integers are big-endian. An unlisted kind is an error: both ends belong to one job and one
// release.
const (
	Ack       Kind = 1 // count:u32 acks                     to all replicas of a source
	Have      Kind = 2 // count:u32 acks                     answers Query: what was not acknowledged yet
	Query     Kind = 3 // failed:set                         what does the process have? It is served from here now
	Flush     Kind = 4 // messages:u64                       acknowledge when so many of the rank were delivered
	Decisions Kind = 5 // after:u64 count:u32 entries        of the leader: entries of the log, behind so many
	Lead      Kind = 6 // failed:set after:u64 count:u32 entries   the same, in place of what is there
	Committed Kind = 7 // leader:u32 length:u64 used:u64     the sender has so much of a leader's log
	Failures  Kind = 8 // failed:set                         the sender treats them as failed
	Done      Kind = 9 //                                    the sender has drained, and ends once all its rank's replicas have
)

// MaxData is how many bytes the data of an outcome may have.
const MaxData = 64 << 10

var kindNames = [...]string{"0", "Ack", "Have", "Query", "Flush", "Decisions", "Lead", "Committed", "Failures", "Done"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// within reports whether replicas of one rank send such messages to each other. Others are between ranks.
func (k Kind) within() bool { return k == Decisions || k == Lead || k == Committed || k == Done }

// A Message is one between processes. Which fields matter depends on the kind; the others are zero.
type Message struct {
	Kind    Kind
	Acks    []AckEntry
	Failed  []int  // processes, ascending
	Count   uint64 // of Flush: messages; of Decisions and Lead: entries before; of Committed: entries
	Entries []Entry
	Leader  int    // replica
	Used    uint64 // entries that the program does not need any more
}

// An AckEntry acknowledges further messages of a stream.
type AckEntry struct {
	Context uint32
	Tag     int
	Count   uint32
	Digest  uint64 // of those messages' digests, in order; 0: not known
}

// The sizes of what is repeated; an entry without its data.
const (
	ackSize   = 4 + 4 + 4 + 8
	entrySize = 8 + 1 + 8 + 4 + 4 + 4
)

// Append appends m's encoding to b and returns the longer slice.
func (m Message) Append(b []byte) []byte {
	b = append(b, byte(m.Kind))
	switch m.Kind {
	case Ack, Have:
		b = binary.BigEndian.AppendUint32(b, uint32(len(m.Acks)))
		for _, a := range m.Acks {
			b = binary.BigEndian.AppendUint32(b, a.Context)
			b = binary.BigEndian.AppendUint32(b, uint32(a.Tag))
			b = binary.BigEndian.AppendUint32(b, a.Count)
			b = binary.BigEndian.AppendUint64(b, a.Digest)
		}
	case Query, Failures:
		b = appendSet(b, m.Failed)
	case Flush:
		b = binary.BigEndian.AppendUint64(b, m.Count)
	case Lead:
		b = appendEntries(appendSet(b, m.Failed), m)
	case Decisions:
		b = appendEntries(b, m)
	case Committed:
		b = binary.BigEndian.AppendUint32(b, uint32(m.Leader))
		b = binary.BigEndian.AppendUint64(b, m.Count)
		b = binary.BigEndian.AppendUint64(b, m.Used)
	}
	return b
}

func appendSet(b []byte, processes []int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(processes)))
	for _, q := range processes {
		b = binary.BigEndian.AppendUint32(b, uint32(q))
	}
	return b
}

func appendEntries(b []byte, m Message) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Count)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Entries)))
	for _, e := range m.Entries {
		b = append(binary.BigEndian.AppendUint64(b, e.Point), e.Kind)
		b = binary.BigEndian.AppendUint64(b, e.Sent)
		b = binary.BigEndian.AppendUint32(b, uint32(e.Outcome.Source))
		b = binary.BigEndian.AppendUint32(b, uint32(e.Outcome.Tag))
		b = binary.BigEndian.AppendUint32(b, uint32(len(e.Outcome.Data)))
		b = append(b, e.Outcome.Data...)
	}
	return b
}

// Parse parses the output of Append, a message between processes of a layout. It accepts nothing else: each message
// has one encoding. It keeps no reference to b.
func Parse(b []byte, l Layout) (Message, error) {
	r := reader{b: b}
	m := Message{Kind: Kind(r.take(1))}
	switch m.Kind {
	case Ack, Have:
		m.Acks = r.acks()
	case Query, Failures:
		m.Failed = r.set(l.Size())
	case Flush:
		m.Count = r.take(8)
	case Lead:
		m.Failed = r.set(l.Size())
		m.Count, m.Entries = r.take(8), r.entries()
	case Decisions:
		m.Count, m.Entries = r.take(8), r.entries()
	case Committed:
		m.Leader, m.Count, m.Used = int(r.take(4)), r.take(8), r.take(8)
		r.check(m.Leader < l.Replicas, "replica %d of %d", m.Leader, l.Replicas)
	case Done:
	default:
		r.check(false, "there is no such kind")
	}
	r.check(len(r.b) == 0, "%d bytes too many", len(r.b))
	if r.err != nil {
		return Message{}, fmt.Errorf("replica: message %v: %w", m.Kind, r.err)
	}
	return m, nil
}

// A reader reads big-endian integers and remembers its first error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) check(ok bool, format string, args ...any) {
	if !ok && r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// take reads an integer of n bytes.
func (r *reader) take(n int) (v uint64) {
	r.check(len(r.b) >= n, "it ends too early: %d bytes left, %d wanted", len(r.b), n)
	if r.err != nil {
		return 0
	}
	for _, c := range r.b[:n] {
		v = v<<8 | uint64(c)
	}
	r.b = r.b[n:]
	return v
}

// count reads how many things of a size follow, which must be here.
func (r *reader) count(size int) int {
	n := r.take(4)
	r.check(n <= uint64(len(r.b)/size), "it ends too early: %d bytes left, %d of %d wanted", len(r.b), n, size)
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) acks() (acks []AckEntry) {
	for range r.count(ackSize) {
		a := AckEntry{Context: uint32(r.take(4)), Tag: r.signed(), Count: uint32(r.take(4)), Digest: r.take(8)}
		r.check(a.Count > 0, "0 messages of a stream")
		acks = append(acks, a)
	}
	return acks
}

// signed reads an integer of 4 bytes with a sign.
func (r *reader) signed() int { return int(int32(r.take(4))) }

func (r *reader) set(size int) (set []int) {
	last := -1
	for range r.count(4) {
		q := int(r.take(4))
		r.check(q < size, "process %d of %d", q, size)
		r.check(q > last, "process %d follows %d in a set", q, last)
		set, last = append(set, q), q
	}
	return set
}

func (r *reader) entries() (entries []Entry) {
	for range r.count(entrySize) {
		e := Entry{Point: r.take(8), Kind: uint8(r.take(1)), Sent: r.take(8)}
		e.Outcome.Source, e.Outcome.Tag = r.signed(), r.signed()
		n := r.count(1)
		r.check(n <= MaxData, "%d bytes of data", n)
		r.check(e.Point > 0 && e.Point < math.MaxInt64, "point %d", e.Point)
		if r.err != nil {
			return nil
		}
		e.Outcome.Data, r.b = string(r.b[:n]), r.b[n:]
		entries = append(entries, e)
	}
	return entries
}
