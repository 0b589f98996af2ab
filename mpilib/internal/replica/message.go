package replica

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A Kind is the kind of a Message.
type Kind uint8

// Every message begins with kind:u8. A set is count:u32 and as many processes:u32, ascending. An ack is context:varint
// tag:varint count:uvarint digest:u64, where context and tag are differences from the ack before, from 0 in the first: each
// message of a schedule may have a tag of its own, and the next one is mostly near. An entry is point:u64 kind:u8 sent:u64
// source:i32 tag:i32 size:u32 data[size]. Integers of fixed size are big-endian; the others are those of package binary, without
// leading zeros. A move is seat:u32 process:u32, a list of them has their count:u32 before it and ascending seats. From epoch
// 1 on the kind has the bit hasEpoch, and epoch:u32 behind it. An unlisted kind is an error: both ends belong to one job and one release.
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

	Join    Kind = 10 // rank:u32 replica:u32               the sender, with a spare number, comes to take that seat
	Welcome Kind = 11 // moves                              answers Join, and tells of each later layout
	Ready   Kind = 12 //                                    all processes of the layout have answered the sender
	Agree   Kind = 13 // size:u32 data[size]                a message of package agree, among the seats of a layout
	State   Kind = 14 // milestone:u64 ok:u8 moves size:u32 data[size]   what a newcomer's program goes on from
	Loaded  Kind = 15 // milestone:u64 ok:u8                the sender has loaded it, or could not
	Admit   Kind = 16 // milestone:u64 failed:set moves     the sender has this layout, in which the newcomer has its seat
	Begin   Kind = 17 // agreement:u64                      the sender has begun it, and waits for the receiver
	Total   Kind = 18 // milestone:u64 messages:u64         so many did the sender's rank send to the receiver's before it
)

// hasEpoch is set in the kind of a message that carries an epoch.
const hasEpoch = 0x80

// MaxData is how many bytes the data of an outcome may have.
const MaxData = 64 << 10

var kindNames = [...]string{"0", "Ack", "Have", "Query", "Flush", "Decisions", "Lead", "Committed", "Failures", "Done", "Join", "Welcome", "Ready", "Agree", "State", "Loaded", "Admit", "Begin", "Total"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// within reports whether replicas of one rank send such messages to each other. Others are between ranks.
func (k Kind) within() bool { return k == Decisions || k == Lead || k == Committed || k == Done }

// ofRounds reports whether messages of the kind bring newcomers to their seats.
func (k Kind) ofRounds() bool { return k >= Join }

// A Message is one between processes. Which fields matter depends on the kind; the others are zero.
type Message struct {
	Kind    Kind
	Epoch   uint32 // of the sender's layout
	Acks    []AckEntry
	Failed  []int  // processes, ascending
	Count   uint64 // of Flush: messages; of Decisions and Lead: entries before; of Committed: entries; of State, Loaded, Total and Admit: the milestone; of Begin: the agreement
	Entries []Entry
	Leader  int    // replica
	Used    uint64 // entries that the program does not need any more; of Total: messages
	Seat    Seat   // of Join
	Moves   []Move // the sender's layout, as of Layout.Moves
	Data    []byte
	OK      bool
}

// An AckEntry acknowledges further messages of a stream.
type AckEntry struct {
	Context uint32
	Tag     int
	Count   uint32
	Digest  uint64 // of those messages' digests, in order; 0: not known
}

// The least sizes of what is repeated.
const (
	ackSize   = 1 + 1 + 1 + 8
	entrySize = 8 + 1 + 8 + 4 + 4 + 4
)

// Append appends m's encoding to b and returns the longer slice.
func (m Message) Append(b []byte) []byte {
	if m.Epoch == 0 {
		b = append(b, byte(m.Kind))
	} else {
		b = binary.BigEndian.AppendUint32(append(b, byte(m.Kind)|hasEpoch), m.Epoch)
	}
	switch m.Kind {
	case Ack, Have:
		b = appendAcks(b, m.Acks)
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
	case Join, Welcome, Agree, State, Loaded, Admit, Begin, Total:
		b = appendOfRounds(b, m)
	}
	return b
}

// appendOfRounds appends what follows the kind of a message that brings newcomers to their seats.
func appendOfRounds(b []byte, m Message) []byte {
	if m.Kind == State || m.Kind == Loaded || m.Kind == Admit || m.Kind == Begin || m.Kind == Total {
		b = binary.BigEndian.AppendUint64(b, m.Count)
	}
	switch m.Kind {
	case Join:
		b = binary.BigEndian.AppendUint32(b, uint32(m.Seat.Rank))
		b = binary.BigEndian.AppendUint32(b, uint32(m.Seat.Replica))
	case Total:
		b = binary.BigEndian.AppendUint64(b, m.Used)
	case Loaded:
		b = appendBool(b, m.OK)
	case Admit:
		b = appendMoves(appendSet(b, m.Failed), m.Moves)
	case Welcome:
		b = appendMoves(b, m.Moves)
	case State:
		b = appendData(appendMoves(appendBool(b, m.OK), m.Moves), m.Data)
	case Agree:
		b = appendData(b, m.Data)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendMoves(b []byte, moves []Move) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(moves)))
	for _, m := range moves {
		b = binary.BigEndian.AppendUint32(b, uint32(m.Seat))
		b = binary.BigEndian.AppendUint32(b, uint32(m.Process))
	}
	return b
}

func appendData(b, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...)
}

func appendAcks(b []byte, acks []AckEntry) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(acks)))
	var before AckEntry
	for _, a := range acks {
		b = binary.AppendVarint(b, int64(a.Context)-int64(before.Context))
		b = binary.AppendVarint(b, int64(a.Tag)-int64(before.Tag))
		b = binary.AppendUvarint(b, uint64(a.Count))
		b = binary.BigEndian.AppendUint64(b, a.Digest)
		before = a
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
	if m.Kind&hasEpoch != 0 {
		m.Kind, m.Epoch = m.Kind&^hasEpoch, uint32(r.take(4))
		r.check(m.Epoch > 0, "epoch 0 is not written")
	}
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
	case Done, Ready:
	case Join, Welcome, Agree, State, Loaded, Admit, Begin, Total:
		r.ofRounds(&m, l)
	default:
		r.check(false, "there is no such kind")
	}
	r.check(len(r.b) == 0, "%d bytes too many", len(r.b))
	if r.err != nil {
		return Message{}, fmt.Errorf("replica: message %v: %w", m.Kind, r.err)
	}
	return m, nil
}

// ofRounds reads what follows the kind of a message that brings newcomers to their seats.
func (r *reader) ofRounds(m *Message, l Layout) {
	if m.Kind == State || m.Kind == Loaded || m.Kind == Admit || m.Kind == Begin || m.Kind == Total {
		m.Count = r.take(8)
	}
	switch m.Kind {
	case Join:
		m.Seat = Seat{Rank: int(r.take(4)), Replica: int(r.take(4))}
		r.check(m.Seat.Rank < l.Ranks && m.Seat.Replica < l.Replicas, "no seat is %v", m.Seat)
	case Total:
		m.Used = r.take(8)
	case Loaded:
		m.OK = r.yes()
	case Admit:
		m.Failed, m.Moves = r.set(l.Size()), r.moves(l)
	case Welcome:
		m.Moves = r.moves(l)
	case State:
		m.OK, m.Moves, m.Data = r.yes(), r.moves(l), r.data()
	case Agree:
		m.Data = r.data()
	}
}

func (r *reader) yes() bool {
	v := r.take(1)
	r.check(v <= 1, "%d is neither yes nor no", v)
	return v == 1
}

func (r *reader) moves(l Layout) (moves []Move) {
	last, seen := -1, map[int]bool{}
	for range r.count(8) {
		m := Move{Seat: int(r.take(4)), Process: int(r.take(4))}
		r.check(m.Seat > last && m.Seat < l.Seats(), "seat %d of %d follows %d", m.Seat, l.Seats(), last)
		r.check(m.Process >= l.Seats() && m.Process < l.Size() && !seen[m.Process], "process %d of %d takes a seat", m.Process, l.Size())
		moves, last, seen[m.Process] = append(moves, m), m.Seat, true
	}
	return moves
}

func (r *reader) data() []byte {
	n := r.count(1)
	if r.err != nil {
		return nil
	}
	data := slices.Clone(r.b[:n])
	r.b = r.b[n:]
	return data
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

// uvarint reads an unsigned integer of variable size.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.check(n > 0 && (n == 1 || r.b[n-1] != 0), "not a number of variable size, or one with leading zeros")
	if r.err != nil {
		return 0
	}
	r.b = r.b[n:]
	return v
}

// varint reads one with a sign.
func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) acks() (acks []AckEntry) {
	var context, tag int64
	for range r.count(ackSize) {
		context, tag = context+r.varint(), tag+r.varint()
		count := r.uvarint()
		r.check(context >= 0 && context <= math.MaxUint32 && tag >= math.MinInt32 && tag <= math.MaxInt32, "context %d, tag %d", context, tag)
		r.check(count > 0 && count <= math.MaxUint32, "%d messages of a stream", count)
		a := AckEntry{Context: uint32(context), Tag: int(tag), Count: uint32(count), Digest: r.take(8)}
		if r.err != nil {
			return nil
		}
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
