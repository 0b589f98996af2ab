package decode

import (
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// How Go allocates.
const (
	// growth is what a list takes for each element while it grows: at most twice its length, and the
	// old list until that is copied.
	growth = 3

	block     = 16 // smallest unit of memory in which a few bytes lie
	page      = 8 << 10
	pagedFrom = 32 << 10 // size from which on memory consists of pages

	pointer, text, slice = 8, 16, 24 // bytes of such a variable
	wrapper              = 32        // what a field of a oneof lies in
)

// allocated returns at least the memory that n bytes take.
func allocated(n int) int {
	switch {
	case n == 0:
		return 0
	case n > pagedFrom:
		return (n + page - 1) / page * page
	case n > 8*block:
		n += n/8 + 8
	}
	return (n + block - 1) / block * block
}

// shape is what is known of a type of message.
type shape struct {
	size   int // of its struct
	fields map[protowire.Number]*field
}

// field is what is known of a field.
type field struct {
	kind     protowire.Type
	packable bool   // a list of numbers, of which many may be in one value
	fixed    int    // encoded size of each of these; 0: it varies
	each     int    // memory for each occurrence, or each number, beside its content
	message  *shape // of the content; nil: it is text, bytes or a number
}

var shapes = struct {
	sync.RWMutex
	of map[protoreflect.MessageDescriptor]*shape
}{of: map[protoreflect.MessageDescriptor]*shape{}}

// shapeOf returns the shape of m's type.
func shapeOf(m protoreflect.Message) *shape {
	shapes.RLock()
	s := shapes.of[m.Descriptor()]
	shapes.RUnlock()
	if s != nil {
		return s
	}
	shapes.Lock()
	defer shapes.Unlock()
	return learn(m)
}

// learn returns the shape of m's type, and of all types in it. The caller holds the lock.
func learn(m protoreflect.Message) *shape {
	if s := shapes.of[m.Descriptor()]; s != nil {
		return s
	}
	s := &shape{fields: map[protowire.Number]*field{}}
	if t := reflect.TypeOf(m.Interface()); t.Kind() == reflect.Pointer {
		s.size = allocated(int(t.Elem().Size()))
	}
	shapes.of[m.Descriptor()] = s // before its fields: a type may contain itself
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); fd.Kind() != protoreflect.GroupKind { // which no message here has
			s.fields[fd.Number()] = fieldOf(m, fd)
		}
	}
	return s
}

// fieldOf returns a field of m's type. No message here has a map.
func fieldOf(m protoreflect.Message, fd protoreflect.FieldDescriptor) *field {
	if fd.IsList() {
		f := plainField(fd)
		if fd.Message() != nil {
			f.message = learn(m.NewField(fd).List().NewElement().Message())
		}
		f.packable = f.kind != protowire.BytesType
		f.each = growth * sizeOf(fd)
		return f
	}
	f := plainField(fd)
	if fd.Message() != nil {
		f.message = learn(m.NewField(fd).Message())
	}
	if fd.ContainingOneof() != nil || fd.HasPresence() && fd.Message() == nil {
		f.each = wrapper // or a pointer
	}
	return f
}

// plainField returns a field by its kind alone.
func plainField(fd protoreflect.FieldDescriptor) *field {
	f := &field{kind: protowire.VarintType}
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.StringKind, protoreflect.BytesKind:
		f.kind = protowire.BytesType
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		f.kind, f.fixed = protowire.Fixed32Type, 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		f.kind, f.fixed = protowire.Fixed64Type, 8
	}
	return f
}

// sizeOf returns the size of a variable of the field's type.
func sizeOf(fd protoreflect.FieldDescriptor) int {
	switch fd.Kind() {
	case protoreflect.BytesKind:
		return slice
	case protoreflect.StringKind:
		return text
	case protoreflect.BoolKind:
		return 1
	case protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind,
		protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return 4
	}
	return pointer // to a message, or a number of 64 bits
}
