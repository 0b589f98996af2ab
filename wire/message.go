package wire

import (
	"encoding/binary"
	"fmt"
)

// EnvelopeKind tells what stands behind an Envelope on a link.
type EnvelopeKind uint8

// The kinds. A link whose peer sends another one is closed.
const (
	EnvelopeMessage EnvelopeKind = 1 // Length bytes of a message follow
	EnvelopeGoodbye EnvelopeKind = 2 // the sender will send no more messages; the receiver answers with Confirm
	EnvelopeConfirm EnvelopeKind = 3 // the sender has read everything before the peer's Goodbye
)

// EnvelopeLen is the size of an encoded Envelope and MaxMessage the greatest
// Length, both in bytes.
const (
	EnvelopeLen = 20
	MaxMessage  = 1 << 40
)

// Envelope goes before every message on an established link. It is not a
// frame: links are authenticated and messages are many, so magic and version
// are spared (the Hello has settled both). Its layout, big-endian:
//
//	kind:u8 zero[3] context:u32 tag:u32 length:u64
//
// Context, Tag and Length are zero except with EnvelopeMessage.
type Envelope struct {
	Kind    EnvelopeKind
	Context uint32 // of the communicator, agreed by its members
	Tag     uint32 // at most 1<<31 - 1
	Length  uint64 // of the message
}

// Append appends the encoded envelope to b.
func (e Envelope) Append(b []byte) []byte {
	b = append(b, byte(e.Kind), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, e.Context)
	b = binary.BigEndian.AppendUint32(b, e.Tag)
	return binary.BigEndian.AppendUint64(b, e.Length)
}

// ParseEnvelope decodes the first EnvelopeLen bytes of b and checks that they
// are what Append makes.
func ParseEnvelope(b []byte) (Envelope, error) {
	if len(b) < EnvelopeLen {
		return Envelope{}, fmt.Errorf("%w: envelope of %d bytes", ErrMalformed, len(b))
	}
	e := Envelope{
		Kind:    EnvelopeKind(b[0]),
		Context: binary.BigEndian.Uint32(b[4:]),
		Tag:     binary.BigEndian.Uint32(b[8:]),
		Length:  binary.BigEndian.Uint64(b[12:]),
	}
	switch {
	case e.Kind < EnvelopeMessage || e.Kind > EnvelopeConfirm:
		return Envelope{}, fmt.Errorf("%w: envelope kind %d", ErrMalformed, e.Kind)
	case b[1]|b[2]|b[3] != 0:
		return Envelope{}, fmt.Errorf("%w: envelope bytes 1 to 3 are % x, want zero", ErrMalformed, b[1:4])
	case e.Kind != EnvelopeMessage && (e.Context != 0 || e.Tag != 0 || e.Length != 0):
		return Envelope{}, fmt.Errorf("%w: envelope of kind %d carries a message", ErrMalformed, e.Kind)
	case e.Tag >= 1<<31:
		return Envelope{}, fmt.Errorf("%w: tag %d", ErrMalformed, e.Tag)
	case e.Length > MaxMessage:
		return Envelope{}, fmt.Errorf("%w: message of %d bytes, at most %d are allowed", ErrMalformed, e.Length, uint64(MaxMessage))
	}
	return e, nil
}
