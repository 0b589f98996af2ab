package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/isthmus-grid/isthmus/wire"
)

// ExposedBuffer describes, in an RTS, the sender's buffer, which the receiver copies itself (zero-copy).
type ExposedBuffer struct {
	Addr  uint64 // of the message in the sender's memory
	Slot  int    // of the copy
	Valid bool
}

// exposedSize is the size of an encoded ExposedBuffer: addr:u64 slot:u32, big-endian.
const exposedSize = 12

// Append appends the encoded description to b.
func (l ExposedBuffer) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, l.Addr), uint32(l.Slot))
}

// ParseExposedBuffer parses the payload of an RTS's record: none, or an ExposedBuffer with one of so many slots.
func ParseExposedBuffer(payload []byte, slots int) (ExposedBuffer, error) {
	if len(payload) == 0 {
		return ExposedBuffer{}, nil
	}
	var b [exposedSize]byte
	if n := copy(b[:], payload); n != exposedSize || n != len(payload) {
		return ExposedBuffer{}, fmt.Errorf("%w: a copy slot described in %d bytes", wire.ErrMalformed, len(payload))
	}
	l := ExposedBuffer{Addr: binary.BigEndian.Uint64(b[:]), Slot: int(binary.BigEndian.Uint32(b[8:])), Valid: true}
	if l.Slot >= slots {
		return ExposedBuffer{}, fmt.Errorf("%w: copy slot %d of %d", wire.ErrMalformed, l.Slot, slots)
	}
	return l, nil
}
