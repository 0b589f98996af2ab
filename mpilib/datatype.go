package mpilib

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Datatype describes the bytes of a program's memory that form a message, and their order (MPI-4.1,
// chapter 5). It is built from others by the functions that begin with Type, is committed, and is
// used in messages with PartAs. Otherwise it is immutable. Safe for concurrent use.
//
// Numbers of elements are those of the type in question; displacements, extents and sizes are in
// bytes unless stated otherwise. A wrong argument causes ErrArg, and the error names it.
type Datatype struct {
	t     *datatype.Type
	label atomic.Pointer[string] // nil: the type's own name
	freed atomic.Bool
}

// Errors for use with errors.Is.
var (
	ErrUncommitted = datatype.ErrUncommitted               // Commit was not called
	ErrConversion  = datatype.ErrConversion                // a value has no such form in external32
	ErrTypeFreed   = errors.New("datatype has been freed") // MPI_ERR_TYPE
)

// Byte is uninterpreted memory; Packed is what Pack made, and matches every
// type (MPI-4.1, sections 3.3.1 and 5.2).
var (
	Byte   = permanent(datatype.Byte)
	Packed = permanent(datatype.Packed)
)

// permanentTypes caches the Datatype of every permanent type: named ones and those of Go types. So equal
// ones are one pointer.
var permanentTypes sync.Map // *datatype.Type -> *Datatype

// permanent returns the one Datatype of a type that is never freed.
func permanent(t *datatype.Type) *Datatype {
	if d, ok := permanentTypes.Load(t); ok {
		return d.(*Datatype)
	}
	d, _ := permanentTypes.LoadOrStore(t, &Datatype{t: t})
	return d.(*Datatype)
}

// TypeOf returns the committed datatype of a Go type that is plain data: a bool, a number, a
// complex number, or an array or struct of such; for others it fails with ErrType. A struct's
// padding and its blank fields are not part of messages; so messages of such a struct are shorter
// than those of []T, which is transferred as it lies in memory, and the two do not match. Every
// call looks T up; store the result where speed matters.
func TypeOf[T Elem]() (*Datatype, error) {
	t, err := datatype.For[T]()
	if err != nil {
		return nil, typeError("TypeOf", err)
	}
	return permanent(t), nil
}

// TypeNamed returns the named type with the standard's name, such as "MPI_DOUBLE" or
// "MPI_DOUBLE_INT" (MPI-4.1, sections 3.2.2 and 6.9.4).
func TypeNamed(name string) (*Datatype, error) {
	t := datatype.Named(name)
	if t == nil {
		return nil, fmt.Errorf("mpilib: TypeNamed: %w: %q names no type of the standard", ErrType, name)
	}
	return permanent(t), nil
}

// usable returns why d cannot be used to build a type, or nil.
func (d *Datatype) usable() error {
	switch {
	case d == nil:
		return fmt.Errorf("%w: the datatype is nil", ErrType)
	case d.freed.Load():
		return fmt.Errorf("%w: %v", ErrTypeFreed, d)
	}
	return nil
}

// Commit prepares d for messages (MPI_Type_commit; MPI-4.1, section 5.1.9). A repeated call does
// nothing.
func (d *Datatype) Commit() error {
	if err := d.usable(); err != nil {
		return typeError("Commit", err)
	}
	d.t.Commit()
	return nil
}

// Free releases d (MPI_Type_free; MPI-4.1, section 5.1.9). Types built from d, and pending
// messages, are not affected. Named types and those of TypeOf cannot be freed.
func (d *Datatype) Free() error {
	if err := d.usable(); err != nil {
		return typeError("Free", err)
	}
	if one, ok := permanentTypes.Load(d.t); ok && one == d {
		return typeError("Free", fmt.Errorf("%w: %v is not the program's own", ErrArg, d))
	}
	d.freed.Store(true)
	return nil
}

// Dup returns a copy of d, committed if d is (MPI_Type_dup; MPI-4.1, section 5.1.10).
func (d *Datatype) Dup() (*Datatype, error) {
	if err := d.usable(); err != nil {
		return nil, typeError("Dup", err)
	}
	return &Datatype{t: d.t.Dup()}, nil
}

// Size returns the bytes of data in one element (MPI_Type_size; MPI-4.1,
// section 5.1.5).
func (d *Datatype) Size() int { return int(d.t.Size()) }

// Extent returns the lower bound, and the distance from one element to the next
// (MPI_Type_get_extent; MPI-4.1, section 5.1.7).
func (d *Datatype) Extent() (lb, extent int) {
	l, e := d.t.Extent()
	return int(l), int(e)
}

// TrueExtent returns where the first byte of data lies, and how many bytes there
// are from it to the end of the last (MPI_Type_get_true_extent; MPI-4.1, section
// 5.1.8). Both are 0 for a type without data.
func (d *Datatype) TrueExtent() (lb, extent int) {
	l, e := d.t.TrueExtent()
	return int(l), int(e)
}

// SetName sets the name of d, which errors then use (MPI_Type_set_name; MPI-4.1, section 7.8).
func (d *Datatype) SetName(name string) { d.label.Store(&name) }

// String returns the name set with SetName, or the standard's name of a named type, or the
// constructor and the size of another.
func (d *Datatype) String() string {
	if name := d.label.Load(); name != nil {
		return *name
	}
	return d.t.String()
}

// typeError adds the name of the call to err, and converts it to an error of this package:
// internal/datatype has its own.
func typeError(call string, err error) error {
	var cause error
	switch {
	case errors.Is(err, datatype.ErrArgument), errors.Is(err, datatype.ErrRange):
		cause = ErrArg
	case errors.Is(err, datatype.ErrGoType):
		cause = ErrType
	default:
		return fmt.Errorf("mpilib: %s: %w", call, err)
	}
	return fmt.Errorf("mpilib: %s: %w", call, mpi.CausedBy(err, cause))
}
