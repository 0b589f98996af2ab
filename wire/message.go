package wire

import (
	"encoding/binary"
	"fmt"
)

// EnvelopeKind is the type of an Envelope on a link.
type EnvelopeKind uint8

// The kinds. A link whose peer sends an unknown one is closed. An RTS announces a message that the
// receiver must request with a CTS; its id is chosen by the sender, and free again when the message
// is taken or withdrawn.
const (
	EnvelopeEager     EnvelopeKind = 1  // Length bytes of a message follow; with Synchronous the receiver answers Taken when a receive has matched it
	EnvelopeGoodbye   EnvelopeKind = 2  // the sender will send no more messages; the receiver answers Confirm
	EnvelopeConfirm   EnvelopeKind = 3  // the sender has read everything before the peer's Goodbye
	EnvelopeRTS       EnvelopeKind = 4  // a message of Length bytes; none of them follow here
	EnvelopeCTS       EnvelopeKind = 5  // a receive has matched the RTS and wants Length bytes of it: all, or none, which ends it; with Late the RTS arrived before its receive
	EnvelopeData      EnvelopeKind = 6  // the next Length bytes of the message follow; with Head they are sent eagerly
	EnvelopeTaken     EnvelopeKind = 7  // the receiver has all of the message, or has matched the synchronous message
	EnvelopeCredit    EnvelopeKind = 8  // Length more bytes may be sent eagerly
	EnvelopeWithdraw  EnvelopeKind = 9  // the sender wants to withdraw the message, announced by an RTS or synchronous
	EnvelopeWithdrawn EnvelopeKind = 10 // the message is withdrawn as if never sent; without this answer it was too late
	EnvelopeShare     EnvelopeKind = 11 // Length bytes follow that say how to map the sender's shared memory; none: there will be none
	EnvelopeSwitch    EnvelopeKind = 12 // everything that the sender sends after this goes through the shared memory
	EnvelopeBell      EnvelopeKind = 13 // the receiver slept and must check the shared memory; the only kind after Switch
	EnvelopeFailed    EnvelopeKind = 14 // process ID has failed, as far as the sender knows: no process communicates with it any more
	EnvelopeRevoked   EnvelopeKind = 15 // Tag contexts from Context on are revoked: nothing is sent or received in them any more
	EnvelopeNote      EnvelopeKind = 16 // Length bytes of an agreement among the communicator's processes follow; they match no receive
	EnvelopeCopying   EnvelopeKind = 17 // the receiver copies the buffer that the RTS exposes; in shared memory only
	EnvelopeReplica   EnvelopeKind = 18 // Length bytes follow that processes of ranks with replicas tell each other: a message of package replica
	EnvelopeSlot      EnvelopeKind = 19 // the sender takes values of slot Tag in Context, of Length bytes at most; 0: it takes no more
	EnvelopeValue     EnvelopeKind = 20 // Length bytes of a slot's value follow, from byte ID on; with Last they are the end of it
	envelopeKinds     EnvelopeKind = 21
)

// Flags of an Envelope.
const (
	EnvelopeSynchronous uint8 = 1 // of EnvelopeEager
	EnvelopeHead        uint8 = 2 // of EnvelopeData
	EnvelopeLate        uint8 = 4 // of EnvelopeCTS
	EnvelopeLast        uint8 = 8 // of EnvelopeValue
)

// EnvelopeLen is the size of an encoded Envelope and MaxMessage the maximum Length, both in bytes.
const (
	EnvelopeLen = 24
	MaxMessage  = 1 << 40
)

// Envelope precedes everything that two processes send each other on an established link. It is not
// a frame: links are authenticated and messages are many, so magic and version are omitted (the
// Hello has settled both). Its layout, big-endian:
//
//	kind:u8 flags:u8 zero[2] context:u32 tag:u32 id:u32 length:u64
//
// Fields that a kind does not use are zero: see uses.
type Envelope struct {
	Kind    EnvelopeKind
	Flags   uint8
	Context uint32 // of the communicator, agreed by its members
	Tag     uint32 // at most 1<<31 - 1
	ID      uint32 // of an RTS or a synchronous message; of EnvelopeFailed, a process number; of EnvelopeValue, an offset
	Length  uint64
}

// Append appends the encoded envelope to b.
func (e Envelope) Append(b []byte) []byte {
	b = append(b, byte(e.Kind), e.Flags, 0, 0)
	b = binary.BigEndian.AppendUint32(b, e.Context)
	b = binary.BigEndian.AppendUint32(b, e.Tag)
	b = binary.BigEndian.AppendUint32(b, e.ID)
	return binary.BigEndian.AppendUint64(b, e.Length)
}

// PlainMessage reports whether b encodes an eager message that is not synchronous, and if so
// returns its fields. It is a fast ParseEnvelope for callers that look for nothing else.
func PlainMessage(b *[EnvelopeLen]byte) (context, tag uint32, length uint64, ok bool) {
	context, tag, length = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint64(b[16:])
	ok = binary.BigEndian.Uint32(b[:]) == uint32(EnvelopeEager)<<24 && binary.BigEndian.Uint32(b[12:])|tag>>31 == 0 && length <= MaxMessage
	return context, tag, length, ok
}

// fields says which fields a kind uses.
type fields struct {
	flags             uint8
	match, id, length bool
}

var uses = [envelopeKinds]fields{
	EnvelopeEager:     {flags: EnvelopeSynchronous, match: true, id: true, length: true},
	EnvelopeGoodbye:   {},
	EnvelopeConfirm:   {},
	EnvelopeRTS:       {match: true, id: true, length: true},
	EnvelopeCTS:       {flags: EnvelopeLate, id: true, length: true},
	EnvelopeData:      {flags: EnvelopeHead, id: true, length: true},
	EnvelopeTaken:     {id: true},
	EnvelopeCredit:    {length: true},
	EnvelopeWithdraw:  {id: true},
	EnvelopeWithdrawn: {id: true},
	EnvelopeShare:     {length: true},
	EnvelopeSwitch:    {},
	EnvelopeBell:      {},
	EnvelopeFailed:    {id: true},
	EnvelopeRevoked:   {match: true},
	EnvelopeNote:      {match: true, length: true},
	EnvelopeCopying:   {id: true},
	EnvelopeReplica:   {length: true},
	EnvelopeSlot:      {match: true, length: true},
	EnvelopeValue:     {flags: EnvelopeLast, match: true, id: true, length: true},
}

// ParseEnvelope decodes the first EnvelopeLen bytes of b and checks that they are what Append
// produces for a valid envelope.
func ParseEnvelope(b []byte) (Envelope, error) {
	if len(b) < EnvelopeLen {
		return Envelope{}, fmt.Errorf("%w: envelope of %d bytes", ErrMalformed, len(b))
	}
	e := Envelope{
		Kind:    EnvelopeKind(b[0]),
		Flags:   b[1],
		Context: binary.BigEndian.Uint32(b[4:]),
		Tag:     binary.BigEndian.Uint32(b[8:]),
		ID:      binary.BigEndian.Uint32(b[12:]),
		Length:  binary.BigEndian.Uint64(b[16:]),
	}
	if e.Kind < EnvelopeEager || e.Kind >= envelopeKinds {
		return Envelope{}, fmt.Errorf("%w: envelope kind %d", ErrMalformed, e.Kind)
	}
	u := &uses[e.Kind]
	switch {
	case b[2]|b[3] != 0:
		return Envelope{}, fmt.Errorf("%w: envelope bytes 2 and 3 are % x, want zero", ErrMalformed, b[2:4])
	case e.Flags&^u.flags != 0:
		return Envelope{}, fmt.Errorf("%w: envelope of kind %d with flags %#x", ErrMalformed, e.Kind, e.Flags)
	case !u.match && (e.Context != 0 || e.Tag != 0), !u.id && e.ID != 0, !u.length && e.Length != 0,
		e.Kind == EnvelopeEager && e.Flags == 0 && e.ID != 0:
		return Envelope{}, fmt.Errorf("%w: envelope of kind %d says more than that: %+v", ErrMalformed, e.Kind, e)
	case e.Tag >= 1<<31:
		return Envelope{}, fmt.Errorf("%w: tag %d", ErrMalformed, e.Tag)
	case e.Length > MaxMessage:
		return Envelope{}, fmt.Errorf("%w: message of %d bytes, at most %d are allowed", ErrMalformed, e.Length, uint64(MaxMessage))
	}
	return e, nil
}
