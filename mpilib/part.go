package mpilib

import (
	"fmt"
	"reflect"

	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
)

// Part is a piece of memory that a message is taken from or put into: the
// elements of a slice (PartOf), or what a datatype describes (PartAs). It refers
// to the memory and copies nothing; what is wrong with its arguments is told by
// the call that is given it. The zero Part has no bytes. The methods of Comm
// move Parts as the package's functions of the same names move slices.
type Part struct {
	memory  []byte
	origin  int64          // the byte of memory that displacements are from
	count   int64          // of elements
	layout  *datatype.Type // of one; nil: a Go type's, as they lie in memory
	elem    reflect.Type   // that Go type; nil in the zero Part
	size    int            // bytes of the message
	pieces  bool           // the message is not one piece of memory
	message []byte         // what it is otherwise
	err     error
}

// PartOf returns buf as a Part.
func PartOf[T Elem](buf []T) Part {
	b, err := view(buf)
	return Part{memory: b, count: int64(len(buf)), elem: reflect.TypeFor[T](), size: len(b), message: b, err: err}
}

// PartAs returns count elements of t, which is committed, laid over buf: their
// displacements are from buf's first byte (the address, count and datatype of
// MPI's calls). All of them must lie within buf. buf's own type does not matter.
func PartAs[T Elem](buf []T, count int, t *Datatype) Part { return PartAt(buf, 0, count, t) }

// PartAt is PartAs with displacements, which may then be negative, from the first
// byte of buf[origin].
func PartAt[T Elem](buf []T, origin, count int, t *Datatype) Part {
	b, err := view(buf)
	if err != nil {
		return Part{err: err}
	}
	if err := t.usable(); err != nil {
		return Part{err: err}
	}
	size, _ := elemSize[T]() // judged by view
	if origin < 0 || origin > len(buf) {
		return Part{err: fmt.Errorf("%w: origin %d of %d elements", ErrArg, origin, len(buf))}
	}
	return lay(b, int64(origin)*int64(size), int64(count), t)
}

// lay returns count elements of d over memory, from its byte origin on.
func lay(memory []byte, origin, count int64, d *Datatype) Part {
	t := d.t
	if !t.Committed() {
		return Part{err: fmt.Errorf("%w: %v; call its Commit before it is used in messages", ErrUncommitted, d)}
	}
	low, high, err := t.Span(count)
	if err != nil {
		return Part{err: caused{err, ErrArg}}
	}
	if low < high && (low < -origin || high > int64(len(memory))-origin) {
		return Part{err: fmt.Errorf("%w: %d elements of %v need bytes %d to %d around the origin, and there are %d to %d",
			ErrArg, count, d, low, high, -origin, int64(len(memory))-origin)}
	}
	size, err := t.PackedSize(count)
	if err != nil {
		return Part{err: caused{err, ErrArg}}
	}
	p := Part{memory: memory, origin: origin, count: count, layout: t, size: int(size)}
	if at, dense := t.Contiguous(); dense && size > 0 {
		p.message = memory[origin+at:][:size:size]
	} else {
		p.pieces = size > 0
	}
	return p
}

// packed returns the message's bytes, in place where they lie in one piece.
func (p *Part) packed() []byte {
	if !p.pieces {
		return p.message
	}
	out := make([]byte, p.size)
	p.gather(out, 0)
	return out
}

// gather copies the message's bytes from pos on into out.
func (p *Part) gather(out []byte, pos int) {
	if !p.pieces {
		copy(out, p.message[pos:])
		return
	}
	// Committed, in range and within memory: lay has made sure.
	if _, err := p.layout.PackSlice(out, p.memory, p.origin, p.count, int64(pos)); err != nil {
		panic(err)
	}
}

// scatter is the inverse of gather.
func (p *Part) scatter(in []byte, pos int) {
	if !p.pieces {
		copy(p.message[pos:], in)
		return
	}
	if _, err := p.layout.UnpackSlice(p.memory, p.origin, p.count, in, int64(pos)); err != nil {
		panic(err)
	}
}

// landing returns where a message for p may arrive: p's own memory, or other,
// which land then copies from.
func (p *Part) landing() []byte {
	if !p.pieces {
		return p.message
	}
	return make([]byte, p.size)
}

// land copies what arrived at p's landing to where it belongs.
func (p *Part) land(b []byte) {
	if p.pieces {
		p.scatter(b, 0)
	}
}

// counted returns how many of p's elements n bytes are, or Undefined. It is an
// error where a slice's would end within an element.
func (p *Part) counted(n int) (int, error) {
	if p.layout != nil {
		return wholeElements(p.layout, n), nil
	}
	if p.elem == nil { // it has no room for anything
		return 0, nil
	}
	return n / int(p.elem.Size()), wholeError(n, int(p.elem.Size()))
}

// wholeError says that n bytes are not whole elements of size bytes.
func wholeError(n, size int) error {
	if n%size != 0 {
		return fmt.Errorf("%w: the message has %d bytes, an element %d", ErrCount, n, size)
	}
	return nil
}

// wholeElements returns how many elements of t n bytes are, or Undefined if they
// end within one.
func wholeElements(t *datatype.Type, n int) int {
	switch size := int(t.Size()); {
	case n == 0:
		return 0
	case size == 0 || n%size != 0:
		return Undefined
	default:
		return n / size
	}
}

// GetCount returns how many elements of t the message of st has, or Undefined if
// it ends within one (MPI_Get_count; MPI-4.1, section 3.2.5).
func (st Status) GetCount(t *Datatype) int { return wholeElements(t.t, st.Bytes) }

// GetElements returns how many elements of named types the message of st has when
// it is received as elements of t, or Undefined if it ends within one of them
// (MPI_Get_elements; MPI-4.1, section 5.1.11).
func (st Status) GetElements(t *Datatype) int {
	n, ok := t.t.Elements(int64(st.Bytes))
	if !ok {
		return Undefined
	}
	return int(n)
}

// Pack appends the bytes of p, as a message of it has them, to out (MPI_Pack;
// MPI-4.1, section 5.2). They may be sent as elements of Packed.
func Pack(out []byte, p Part) ([]byte, error) {
	if p.err != nil {
		return out, typeError("Pack", p.err)
	}
	n := len(out)
	out = append(out, make([]byte, p.size)...)
	p.gather(out[n:], 0)
	return out, nil
}

// Unpack fills p from the front of in and returns the rest of in (MPI_Unpack;
// MPI-4.1, section 5.2).
func Unpack(in []byte, p Part) (rest []byte, err error) {
	if p.err != nil {
		return in, typeError("Unpack", p.err)
	}
	if len(in) < p.size {
		return in, typeError("Unpack", fmt.Errorf("%w: %d bytes are left of %d", ErrTruncate, len(in), p.size))
	}
	p.scatter(in[:p.size], 0)
	return in[p.size:], nil
}

// PackSize returns how many bytes Pack appends for count elements (MPI_Pack_size;
// MPI-4.1, section 5.2): those of the data.
func (d *Datatype) PackSize(count int) (int, error) {
	n, err := d.t.PackedSize(int64(count))
	if err != nil {
		return 0, typeError("PackSize", err)
	}
	return int(n), nil
}

// PackExternal is Pack into external32, the standard's form for all machines,
// which other implementations of MPI read too (MPI_Pack_external; MPI-4.1,
// section 5.3). A number that has no such form is ErrConversion.
func PackExternal(out []byte, p Part) ([]byte, error) {
	t, size, err := p.external()
	if err != nil {
		return out, typeError("PackExternal", err)
	}
	n := len(out)
	out = append(out, make([]byte, size)...)
	if _, err := t.PackExternalSlice(out[n:], p.memory, p.origin, p.count); err != nil {
		return out[:n], typeError("PackExternal", err)
	}
	return out, nil
}

// UnpackExternal fills p from the external32 at the front of in and returns the
// rest of in (MPI_Unpack_external; MPI-4.1, section 5.3).
func UnpackExternal(in []byte, p Part) (rest []byte, err error) {
	t, size, err := p.external()
	if err == nil && len(in) < size {
		err = fmt.Errorf("%w: %d bytes are left of %d", ErrTruncate, len(in), size)
	}
	if err == nil {
		_, err = t.UnpackExternalSlice(p.memory, p.origin, p.count, in[:size])
	}
	if err != nil {
		return in, typeError("UnpackExternal", err)
	}
	return in[size:], nil
}

// external returns p's type and how many bytes it has in external32.
func (p *Part) external() (*datatype.Type, int, error) {
	t := p.layout
	if p.err == nil && t == nil && p.elem != nil {
		t, p.err = datatype.Of(p.elem)
	}
	if p.err != nil || t == nil {
		return datatype.Byte, 0, p.err
	}
	size, err := t.ExternalSize(p.count)
	return t, int(size), err
}

// PackExternalSize returns how many bytes PackExternal appends for count elements
// (MPI_Pack_external_size; MPI-4.1, section 5.3).
func (d *Datatype) PackExternalSize(count int) (int, error) {
	n, err := d.t.ExternalSize(int64(count))
	if err != nil {
		return 0, typeError("PackExternalSize", err)
	}
	return int(n), nil
}
