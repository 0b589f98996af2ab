package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The layout of a message. Numbers are big-endian, and a node is site:str8 name:str8, each a length
// byte and that many bytes of text:
//
//	version:u8 kind:u8 round:u64 from to n:u16 entries[n]
//	entry: node incarnation:u64 heartbeat:u64 age:u64(ns) flags:u8, of which bit 0 says that it left
//
// A receiver refuses another version: all hosts of a job must speak the same one, and a host whose
// messages are refused is declared failed.
const (
	codecVersion = 1
	flagLeft     = 1

	nodeLen  = 2 * (1 + overlay.MaxNameLen)
	entryLen = nodeLen + 3*8 + 1
	minNode  = 2 * (1 + 1) // names are not empty
	minLen   = minNode + 3*8 + 1
)

// MaxEncoded is the largest length of an encoded message, in bytes.
const MaxEncoded = 2 + 8 + 2*nodeLen + 2 + (MaxMembers+1)*entryLen

// maxAge bounds the age of an entry. Older entries have no effect.
const maxAge = 365 * 24 * time.Hour

// ErrMalformed is wrapped by the errors of Decode.
var ErrMalformed = errors.New("malformed gossip")

// Append appends the encoded message to b and returns the extended slice. Names of nodes must pass
// overlay.CheckName, and entries number at most MaxMembers+1, as in all messages of a Detector.
func (m *Message) Append(b []byte) []byte {
	b = append(b, codecVersion, byte(m.Kind))
	b = binary.BigEndian.AppendUint64(b, m.Round)
	b = appendNode(appendNode(b, m.From), m.To)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Entries)))
	for i := range m.Entries {
		b = m.Entries[i].append(b)
	}
	return b
}

func (e *Entry) append(b []byte) []byte {
	b = appendNode(b, e.ID)
	b = binary.BigEndian.AppendUint64(b, e.Incarnation)
	b = binary.BigEndian.AppendUint64(b, e.Heartbeat)
	b = binary.BigEndian.AppendUint64(b, uint64(min(max(0, e.Age), maxAge)))
	flags := byte(0)
	if e.Left {
		flags = flagLeft
	}
	return append(b, flags)
}

func appendNode(b []byte, id overlay.NodeID) []byte {
	b = append(append(b, byte(len(id.Site))), id.Site...)
	return append(append(b, byte(len(id.Name))), id.Name...)
}

// Decode decodes a message. It shares no memory with b.
func Decode(b []byte) (Message, error) {
	r := reader{remaining: b}
	if v := r.byte(); r.err == nil && v != codecVersion {
		r.fail("version %d; this host speaks %d", v, codecVersion)
	}
	m := Message{Kind: Kind(r.byte())}
	if m.Kind.String() == "unknown" {
		r.fail("kind %d", m.Kind)
	}
	m.Round = r.uint64()
	m.From, m.To = r.node(), r.node()
	n := int(binary.BigEndian.Uint16(r.take(2)))
	if n > MaxMembers+1 {
		r.fail("%d entries; at most %d", n, MaxMembers+1)
	}
	if n > len(r.remaining)/minLen {
		r.fail("%d entries in %d bytes", n, len(r.remaining))
	}
	if r.err == nil && n > 0 {
		m.Entries = make([]Entry, n)
	}
	for i := range m.Entries {
		m.Entries[i] = r.entry()
	}
	if len(r.remaining) > 0 {
		r.fail("%d bytes too many", len(r.remaining))
	}
	if r.err != nil {
		return Message{}, r.err
	}
	return m, nil
}

// reader decodes a message and keeps its first error.
type reader struct {
	remaining []byte
	err       error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %w", ErrMalformed, fmt.Errorf(format, args...))
	}
}

// take returns the next n bytes, of which there are at most 255, or zeros after an error.
func (r *reader) take(n int) []byte {
	if len(r.remaining) < n {
		r.fail("it ends early")
	}
	if r.err != nil {
		var zeros [255]byte
		return zeros[:n]
	}
	b := r.remaining[:n]
	r.remaining = r.remaining[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) name(what string) string {
	name := string(r.take(int(r.byte())))
	if err := overlay.CheckName(what, name); err != nil {
		r.fail("%w", err)
	}
	return name
}

func (r *reader) node() overlay.NodeID {
	site := overlay.SiteID(r.name("site"))
	return overlay.NodeID{Site: site, Name: r.name("node")}
}

func (r *reader) entry() Entry {
	e := Entry{ID: r.node(), Incarnation: r.uint64(), Heartbeat: r.uint64()}
	age := r.uint64()
	if age > uint64(maxAge) {
		r.fail("news of %v that is %d ns old", e.ID, age)
	}
	e.Age = time.Duration(age)
	flags := r.byte()
	if flags&^flagLeft != 0 {
		r.fail("flags %#02x of %v", flags, e.ID)
	}
	e.Left = flags&flagLeft != 0
	return e
}
