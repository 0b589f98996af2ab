// Package decode bounds the memory of protobuf messages before they are decoded. Two bytes on the
// wire, an empty element of a list, can become two hundred in memory: what a message will take is
// counted along its descriptor first, and too much is refused unread.
//
// It knows the layout of Go's messages, and neither peers nor budgets. Its state is what it has
// learned of message types.
package decode

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/overlay"
)

// What a message may have unless its type is Large.
const (
	MaxBytes  = 64 << 10  // encoded
	MaxMemory = 768 << 10 // decoded, beside perByte for each encoded byte
)

// perByte is what each byte of any message may take when it is decoded.
const perByte = 4

// Large is a type of message with bounds of its own. DecodeBounds returns those in place of MaxBytes
// and MaxMemory. It must not look at the message.
type Large interface {
	DecodeBounds() (bytes, memory int)
}

// Bounds returns what a message of m's type may have.
func Bounds(m proto.Message) (bytes, memory int) {
	if l, ok := m.(Large); ok {
		return l.DecodeBounds()
	}
	return MaxBytes, MaxMemory
}

// CheckLength fails with an overlay.ErrOverloaded if n bytes are too long for a message of m's type.
func CheckLength(n int, m proto.Message) error {
	if most, _ := Bounds(m); n > most {
		return fmt.Errorf("%w: a %s of %d bytes; at most %d are taken", overlay.ErrOverloaded, m.ProtoReflect().Descriptor().FullName(), n, most)
	}
	return nil
}

// Check returns at least the memory that b will take as a message of m's type, m included. It fails
// with an overlay.ErrOverloaded, and has allocated nothing, if b is too long or would take too much.
// A malformed b is not an error: decoding it fails, and takes no more than that.
func Check(b []byte, m proto.Message) (cost int, err error) {
	if err := CheckLength(len(b), m); err != nil {
		return 0, err
	}
	_, memory := Bounds(m)
	most := perByte*len(b) + memory
	w := walk{left: most}
	if w.message(shapeOf(m.ProtoReflect()), b, maxDepth); w.left < 0 {
		return 0, fmt.Errorf("%w: a %s of %d bytes would take more than %d in memory", overlay.ErrOverloaded, m.ProtoReflect().Descriptor().FullName(), len(b), most)
	}
	return most - w.left, nil
}

// Unmarshal is proto.Unmarshal of what Check takes.
func Unmarshal(b []byte, m proto.Message) error {
	if _, err := Check(b, m); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// maxDepth bounds messages within messages. The deepest regular one has six.
const maxDepth = 64

// walk counts what an encoded message takes.
type walk struct {
	left int // of what it may take; negative: it takes more
}

// take counts n more bytes, and reports whether that is within the bound.
func (w *walk) take(n int) bool {
	w.left -= n
	return w.left >= 0
}

// message counts a message, and reports whether decoding goes on behind it. It ends at whatever is
// malformed, as this does.
func (w *walk) message(s *shape, b []byte, depth int) bool {
	if depth == 0 {
		w.left = -1
		return false
	}
	if !w.take(s.size) {
		return false
	}
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return false
		}
		n := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if n < 0 { // nothing of the field is decoded then
			return false
		}
		if !w.field(s.fields[number], kind, b[tag:tag+n], tag+n, depth) {
			return false
		}
		b = b[tag+n:]
	}
	return true
}

// field counts one occurrence of a field; f is nil for an unknown one. whole is its length with its
// tag.
func (w *walk) field(f *field, kind protowire.Type, value []byte, whole, depth int) bool {
	switch {
	case f == nil || kind != f.kind && !(f.packable && kind == protowire.BytesType):
		return w.take(growth*whole + block) // kept as it is
	case kind != protowire.BytesType:
		return w.take(f.each)
	}
	content, _ := protowire.ConsumeBytes(value)
	switch {
	case f.message != nil:
		return w.take(f.each) && w.message(f.message, content, depth-1)
	case f.packable && f.fixed > 0:
		return w.take(len(content) / f.fixed * f.each)
	case f.packable:
		n := 0
		for _, c := range content {
			if c < 0x80 { // the last of a number
				n++
			}
		}
		return w.take(n * f.each)
	}
	return w.take(f.each + allocated(len(content)))
}
