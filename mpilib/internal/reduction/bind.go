package reduction

import (
	"fmt"
	"unsafe"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// On returns op on the elements of p's type as they are in messages, without gaps. The error is
// p's, or ErrOp if op is not defined for the type.
func (op Op) On(p *buffer.Part) (collectives.Op, error) {
	switch {
	case p.Err != nil:
		return collectives.Op{}, p.Err
	case op.id == none && op.combine == nil:
		return collectives.Op{}, fmt.Errorf("%w: there is no operator", mpi.ErrOp)
	case p.Layout == nil && p.Elem == nil || p.Layout != nil && p.Layout.Size() == 0:
		return collectives.Op{Name: op.name, Elem: 1, Commutative: op.commutative, Apply: nothing}, nil
	case op.id != none:
		return op.predefined(p)
	case p.Layout == nil:
		return op.dense(int(p.Elem.Size()), uintptr(p.Elem.Align())), nil
	}
	t := p.Layout
	if _, extent := t.Extent(); isDense(t) && extent == t.Size() {
		return op.dense(int(t.Size()), uintptr(t.Align())), nil
	}
	return op.laidOut(t), nil
}

// Local sets inout[i] = in[i] op inout[i] for every element.
func (op Op) Local(in, inout *buffer.Part) error {
	o, err := op.On(in)
	if err = mpi.FirstOf(err, inout.Err); err != nil || in.Size == 0 && inout.Size == 0 {
		return err
	}
	if in.Size != inout.Size {
		return fmt.Errorf("%w: %d bytes and %d", mpi.ErrCount, in.Size, inout.Size)
	}
	b := inout.Packed()
	if err := o.Apply(b, in.Packed()); err != nil {
		return err
	}
	inout.Land(b)
	return nil
}

// nothing combines elements without data.
func nothing(inout, in []byte) error { return nil }

// isDense reports whether elements of t are laid out as they are in messages.
func isDense(t *datatype.Type) bool {
	at, one := t.Contiguous()
	return one && at == 0
}

// predefined is On for a predefined operator.
func (op Op) predefined(p *buffer.Part) (collectives.Op, error) {
	t := p.Layout
	if t == nil {
		var err error
		if t, err = datatype.Of(p.Elem); err != nil {
			return collectives.Op{}, mpi.CausedBy(err, mpi.ErrType)
		}
	}
	if r := rows()[t]; r != nil && r[op.id].Apply != nil {
		return r[op.id], nil
	}
	if t == datatype.LongDouble || t == datatype.CLongDoubleComplex || t == datatype.CxxLongDoubleComplex || t == datatype.LongDoubleInt {
		return collectives.Op{}, fmt.Errorf("%w: %s of %v: Go has no such arithmetic; create an operator that has", mpi.ErrOp, op.name, t)
	}
	return collectives.Op{}, fmt.Errorf("%w: %s is not defined for %v", mpi.ErrOp, op.name, t)
}

// dense is op on elements of size bytes that lie in memory as they are in messages.
func (op Op) dense(size int, align uintptr) collectives.Op {
	combine := op.combine
	return collectives.Op{Name: op.name, Elem: size, Commutative: op.commutative, Apply: func(inout, in []byte) error {
		a, copied := alignedTo(align, inout)
		b, _ := alignedTo(align, in)
		err := combine(a, b, 0, len(in)/size)
		if copied {
			copy(inout, a)
		}
		return err
	}}
}

// laidOut is op on elements of t, which it lays out in memory of its own.
func (op Op) laidOut(t *datatype.Type) collectives.Op {
	combine, size := op.combine, int(t.Size())
	return collectives.Op{Name: op.name, Elem: size, Commutative: op.commutative, Apply: func(inout, in []byte) error {
		count := int64(len(in) / size)
		low, high, err := t.Span(count)
		if err != nil {
			return err
		}
		origin := (max(0, -low) + maxAlign - 1) / maxAlign * maxAlign
		a, b := aligned(int(origin+max(0, high))), aligned(int(origin+max(0, high)))
		if _, err := t.UnpackSlice(a, origin, count, inout, 0); err != nil {
			return err
		}
		if _, err := t.UnpackSlice(b, origin, count, in, 0); err != nil {
			return err
		}
		if err := combine(a, b, int(origin), int(count)); err != nil {
			return err
		}
		_, err = t.PackSlice(inout, a, origin, count, 0)
		return err
	}}
}

// maxAlign is the strictest alignment of a basic element.
const maxAlign = 16

// aligned returns n bytes at a multiple of maxAlign.
func aligned(n int) []byte {
	b := make([]byte, n+maxAlign-1)
	return b[-address(b)%maxAlign:][:n:n]
}

// alignedTo returns b, or a copy if it is not at a multiple of align.
func alignedTo(align uintptr, b []byte) (at []byte, copied bool) {
	if address(b)%align == 0 {
		return b, false
	}
	at = aligned(len(b))
	copy(at, b)
	return at, true
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
