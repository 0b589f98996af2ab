package buffer

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Part is a piece of memory that a message is taken from or put into. It refers to the memory and
// copies nothing. An error in its arguments is in Err, which every user checks first. The zero Part
// has no bytes.
type Part struct {
	Memory  []byte
	Origin  int64          // the byte of memory that displacements are relative to
	Count   int64          // of elements
	Layout  *datatype.Type // of one; nil: a Go type's, as they lie in memory
	Elem    reflect.Type   // that Go type; nil in the zero Part
	Size    int            // bytes of the message
	Pieces  bool           // the message is not one piece of memory
	Message []byte         // the message, unless it is in pieces
	Err     error          // what is wrong with the arguments
}

// PartOf returns buf as a Part.
func PartOf[T any](buf []T) Part {
	b, err := View(buf)
	return Part{Memory: b, Count: int64(len(buf)), Elem: reflect.TypeFor[T](), Size: len(b), Message: b, Err: err}
}

// Lay returns count elements of t, which errors call name, over memory, starting at byte origin.
func Lay(memory []byte, origin, count int64, t *datatype.Type, name fmt.Stringer) Part {
	if !t.Committed() {
		return Part{Err: fmt.Errorf("%w: %v; call its Commit before it is used in messages", datatype.ErrUncommitted, name)}
	}
	low, high, err := t.Span(count)
	if err != nil {
		return Part{Err: mpi.CausedBy(err, mpi.ErrArg)}
	}
	if low < high && (low < -origin || high > int64(len(memory))-origin) {
		return Part{Err: fmt.Errorf("%w: %d elements of %v need bytes %d to %d around the origin, and there are %d to %d",
			mpi.ErrArg, count, name, low, high, -origin, int64(len(memory))-origin)}
	}
	size, err := t.PackedSize(count)
	if err != nil {
		return Part{Err: mpi.CausedBy(err, mpi.ErrArg)}
	}
	p := Part{Memory: memory, Origin: origin, Count: count, Layout: t, Size: int(size)}
	if at, dense := t.Contiguous(); dense && size > 0 {
		p.Message = memory[origin+at:][:size:size]
	} else {
		p.Pieces = size > 0
	}
	return p
}

// Packed returns the message's bytes, without copying if they are contiguous.
func (p *Part) Packed() []byte {
	if !p.Pieces {
		return p.Message
	}
	out := make([]byte, p.Size)
	p.Gather(out, 0)
	return out
}

// Copied returns p with its message in memory of its own.
func (p Part) Copied() Part { return p.CopiedTo(make([]byte, p.Size)) }

// CopiedTo returns p with its message at the front of memory, which has space for it.
func (p Part) CopiedTo(memory []byte) Part {
	if p.Err == nil {
		memory = memory[:p.Size:p.Size]
		p.Gather(memory, 0)
		p.Message, p.Pieces = memory, false
	}
	return p
}

// Gather copies the message's bytes from pos on into out.
func (p *Part) Gather(out []byte, pos int) {
	if !p.Pieces {
		copy(out, p.Message[pos:])
		return
	}
	// Committed, in range and within memory: ensured by Lay.
	if _, err := p.Layout.PackSlice(out, p.Memory, p.Origin, p.Count, int64(pos)); err != nil {
		panic(err)
	}
}

// Scatter is the inverse of Gather.
func (p *Part) Scatter(in []byte, pos int) {
	if !p.Pieces {
		copy(p.Message[pos:], in)
		return
	}
	if _, err := p.Layout.UnpackSlice(p.Memory, p.Origin, p.Count, in, int64(pos)); err != nil {
		panic(err)
	}
}

// Landing returns the memory in which to receive a message for p: p's own memory, or a temporary
// buffer, from which Land then copies.
func (p *Part) Landing() []byte {
	if !p.Pieces {
		return p.Message
	}
	return make([]byte, p.Size)
}

// Land copies what was received at p's Landing to its place in p.
func (p *Part) Land(b []byte) {
	if p.Pieces {
		p.Scatter(b, 0)
	}
}

// Counted returns how many of p's elements n bytes are, or Undefined. For a slice, it is an error
// if the bytes end within an element.
func (p *Part) Counted(n int) (int, error) {
	if p.Layout != nil {
		return WholeElements(p.Layout, n), nil
	}
	if p.Elem == nil { // it has no space for anything
		return 0, nil
	}
	return n / int(p.Elem.Size()), WholeError(n, int(p.Elem.Size()))
}

// WholeError says that n bytes are not whole elements of size bytes.
func WholeError(n, size int) error {
	if n%size != 0 {
		return fmt.Errorf("%w: the message has %d bytes, an element %d", mpi.ErrCount, n, size)
	}
	return nil
}

// WholeElements returns how many elements of t n bytes are, or Undefined if they end within one.
func WholeElements(t *datatype.Type, n int) int {
	switch size := int(t.Size()); {
	case n == 0:
		return 0
	case size == 0 || n%size != 0:
		return mpi.Undefined
	default:
		return n / size
	}
}

// External returns p's type and its size in external32.
func (p *Part) External() (*datatype.Type, int, error) {
	t := p.Layout
	if p.Err == nil && t == nil && p.Elem != nil {
		t, p.Err = datatype.Of(p.Elem)
	}
	if p.Err != nil || t == nil {
		return datatype.Byte, 0, p.Err
	}
	size, err := t.ExternalSize(p.Count)
	return t, int(size), err
}

// Arrival is the reception of a message into a Part: the steps left once it has arrived.
type Arrival struct {
	Buf []byte // where it is received: the Part's own memory, or a temporary buffer

	part Part
	head int // bytes of the signature before the message

	once  sync.Once // guards the fields below
	count int
	err   error
}

// ArrivalAt returns the Arrival of a message that begins with head bytes of a signature, or none.
func ArrivalAt(p Part, head int) *Arrival {
	a := &Arrival{part: p, head: head}
	if a.head > 0 {
		a.Buf = make([]byte, a.head+p.Size)
	} else {
		a.Buf = p.Landing()
	}
	return a
}

// Room is the number of bytes of a message that fit the Part.
func (a *Arrival) Room() int { return a.part.Size }

// Land copies a received message of n bytes to its place, once, and counts its elements.
func (a *Arrival) Land(n int) (int, error) {
	a.once.Do(func() {
		if a.head > 0 {
			if a.err = a.part.Accepts(a.Buf[:a.head]); a.err != nil {
				return
			}
			a.part.Scatter(a.Buf[a.head:][:n], 0)
		} else {
			a.part.Land(a.Buf[:n])
		}
		a.count, a.err = a.part.Counted(n)
		a.Buf = nil
	})
	return a.count, a.err
}
