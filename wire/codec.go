package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

func appendStr8(b []byte, s string) []byte {
	if len(s) > 255 {
		panic(fmt.Sprintf("wire: string of %d bytes behind a one-byte length", len(s)))
	}
	return append(append(b, byte(len(s))), s...)
}

// appendText appends a str16 for humans. It truncates what is longer than maxText: losing the tail
// of an explanation is better than losing the frame.
func appendText(b []byte, s string) []byte {
	if len(s) > maxText {
		s = s[:maxText-3] + "..."
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

const maxText = 2048

// reader decodes a body and remembers its first error, so that decoders read field after field and
// check once.
type reader struct {
	of     Type // the frame's
	unread []byte
	err    error
}

var errShort = errors.New("body ends early")

// take returns the next n bytes, or nil after an error.
func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n > len(r.unread) {
		r.err = errShort
		return nil
	}
	b := r.unread[:n]
	r.unread = r.unread[n:]
	return b
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) bytes(dst []byte) { copy(dst, r.take(len(dst))) }

func (r *reader) str8() string { return string(r.take(int(r.u8()))) }

func (r *reader) text() string {
	n := int(r.u16())
	if n > maxText && r.err == nil {
		r.err = fmt.Errorf("text of %d bytes, at most %d are allowed", n, maxText)
	}
	return string(r.take(n))
}

// end returns the first error, or an error if bytes are left over.
func (r *reader) end() error {
	if r.err == nil && len(r.unread) > 0 {
		r.err = fmt.Errorf("%d bytes too many", len(r.unread))
	}
	return r.err
}
