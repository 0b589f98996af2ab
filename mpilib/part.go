package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
)

// Part is a piece of memory that a message is taken from or put into: the elements of a slice
// (PartOf), or what a datatype describes (PartAs). It refers to the memory and copies nothing; an
// error in its arguments is returned by the call that uses it. The zero Part has no bytes. The
// methods of Comm transfer Parts as the package's functions of the same names transfer slices.
type Part struct {
	p buffer.Part
}

// PartOf returns buf as a Part.
func PartOf[T Elem](buf []T) Part { return Part{buffer.PartOf(buf)} }

// PartAs returns count elements of t, which is committed, laid over buf: their
// displacements are from buf's first byte (the address, count and datatype of
// MPI's calls). All of them must lie within buf. buf's own type does not matter.
func PartAs[T Elem](buf []T, count int, t *Datatype) Part { return PartAt(buf, 0, count, t) }

// PartAt is PartAs with displacements from the first byte of buf[origin], which may lie outside of
// buf: they may be negative, or addresses (MPI_BOTTOM; MPI-5.0, section 5.1.12).
func PartAt[T Elem](buf []T, origin, count int, t *Datatype) Part {
	b, err := buffer.View(buf)
	if err != nil {
		return Part{buffer.Part{Err: err}}
	}
	if err := t.usable(); err != nil {
		return Part{buffer.Part{Err: err}}
	}
	size, _ := buffer.Size[T]() // checked by view
	if most := 1 << 62 / max(size, 1); origin < -most || origin > most {
		return Part{buffer.Part{Err: fmt.Errorf("%w: origin %d of %d elements", ErrArg, origin, len(buf))}}
	}
	return Part{buffer.Lay(b, int64(origin)*int64(size), int64(count), t.t, t)}
}

// GetCount returns how many elements of t the message of st has, or Undefined if
// it ends within one (MPI_Get_count; MPI-4.1, section 3.2.5).
func (st Status) GetCount(t *Datatype) int { return buffer.WholeElements(t.t, st.Bytes) }

// GetElements returns how many elements of named types the message of st has when it is received as
// elements of t, or Undefined if it ends within one of them (MPI_Get_elements; MPI-4.1, section
// 5.1.11).
func (st Status) GetElements(t *Datatype) int {
	n, ok := t.t.Elements(int64(st.Bytes))
	if !ok {
		return Undefined
	}
	return int(n)
}

// Pack appends the bytes of p, as in a message, to out (MPI_Pack; MPI-4.1, section 5.2). They may
// be sent as elements of Packed.
func Pack(out []byte, p Part) ([]byte, error) {
	if p.p.Err != nil {
		return out, typeError("Pack", p.p.Err)
	}
	n := len(out)
	out = append(out, make([]byte, p.p.Size)...)
	p.p.Gather(out[n:], 0)
	return out, nil
}

// Unpack fills p from the front of in and returns the rest of in (MPI_Unpack;
// MPI-4.1, section 5.2).
func Unpack(in []byte, p Part) (rest []byte, err error) {
	if p.p.Err != nil {
		return in, typeError("Unpack", p.p.Err)
	}
	if len(in) < p.p.Size {
		return in, typeError("Unpack", fmt.Errorf("%w: %d bytes are left of %d", ErrTruncate, len(in), p.p.Size))
	}
	p.p.Scatter(in[:p.p.Size], 0)
	return in[p.p.Size:], nil
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

// PackExternal is Pack in external32, the standard's portable representation, which other
// implementations of MPI also read (MPI_Pack_external; MPI-4.1, section 5.3). A number that cannot
// be represented causes ErrConversion.
func PackExternal(out []byte, p Part) ([]byte, error) {
	t, size, err := p.p.External()
	if err != nil {
		return out, typeError("PackExternal", err)
	}
	n := len(out)
	out = append(out, make([]byte, size)...)
	if _, err := t.PackExternalSlice(out[n:], p.p.Memory, p.p.Origin, p.p.Count); err != nil {
		return out[:n], typeError("PackExternal", err)
	}
	return out, nil
}

// UnpackExternal fills p from the external32 at the front of in and returns the
// rest of in (MPI_Unpack_external; MPI-4.1, section 5.3).
func UnpackExternal(in []byte, p Part) (rest []byte, err error) {
	t, size, err := p.p.External()
	if err == nil && len(in) < size {
		err = fmt.Errorf("%w: %d bytes are left of %d", ErrTruncate, len(in), size)
	}
	if err == nil {
		_, err = t.UnpackExternalSlice(p.p.Memory, p.p.Origin, p.p.Count, in[:size])
	}
	if err != nil {
		return in, typeError("UnpackExternal", err)
	}
	return in[size:], nil
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

// PackedSize returns the number of bytes of p's message.
func (p Part) PackedSize() int { return p.p.Size }

// CopiedTo returns p with its message at the front of memory, which has PackedSize bytes or more: a send of the result needs that
// memory, and p's own no more.
func (p Part) CopiedTo(memory []byte) Part { return Part{p.p.CopiedTo(memory)} }

// inner converts the parts to the type of the internal packages.
func inner(parts []Part) []buffer.Part {
	out := make([]buffer.Part, len(parts))
	for i, p := range parts {
		out[i] = p.p
	}
	return out
}
