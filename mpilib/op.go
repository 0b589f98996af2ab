package mpilib

import (
	"cmp"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/reduction"
)

// Op identifies a reduction for elements of type T. Pass one of this package's by name,
// Allreduce(ctx, comm, in, out, mpilib.Sum), or create one with NewOp.
type Op[T Elem] func() Operator[T]

// Operator is the implementation of an Op.
type Operator[T Elem] struct {
	name        string
	commutative bool
	apply       func(inout, in []T)
}

// NewOp creates a user-defined reduction (MPI_Op_create). apply sets inout[i] = in[i] op inout[i]
// for every i, in being the operand of the lower ranks; both have the same length. It must be
// associative, up to rounding, and must not retain the slices. All ranks must use the same one.
func NewOp[T Elem](name string, commutative bool, apply func(inout, in []T)) Op[T] {
	return func() Operator[T] { return Operator[T]{name, commutative, apply} }
}

// Integer, Real and Number constrain the elements of the predefined
// reductions.
type (
	Integer interface {
		~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
	}
	Real interface {
		Integer | ~float32 | ~float64
	}
	Number interface {
		Real | ~complex64 | ~complex128
	}
)

// Sum adds.
func Sum[T Number]() Operator[T] { return Operator[T]{"sum", true, reduction.Sum[T]} }

// Prod multiplies.
func Prod[T Number]() Operator[T] { return Operator[T]{"prod", true, reduction.Prod[T]} }

// Min takes the least element. A NaN on any rank gives NaN.
func Min[T cmp.Ordered]() Operator[T] { return Operator[T]{"min", true, reduction.Min[T]} }

// Max takes the greatest element. A NaN on any rank gives NaN.
func Max[T cmp.Ordered]() Operator[T] { return Operator[T]{"max", true, reduction.Max[T]} }

// LAnd is true where all ranks' elements are.
func LAnd[T ~bool]() Operator[T] { return Operator[T]{"land", true, reduction.LAnd[T]} }

// LOr is true where some rank's element is.
func LOr[T ~bool]() Operator[T] { return Operator[T]{"lor", true, reduction.LOr[T]} }

// LXor is true where an odd number of ranks' elements are.
func LXor[T ~bool]() Operator[T] { return Operator[T]{"lxor", true, reduction.LXor[T]} }

// BAnd is the bitwise and.
func BAnd[T Integer]() Operator[T] { return Operator[T]{"band", true, reduction.BAnd[T]} }

// BOr is the bitwise or.
func BOr[T Integer]() Operator[T] { return Operator[T]{"bor", true, reduction.BOr[T]} }

// BXor is the bitwise exclusive or.
func BXor[T Integer]() Operator[T] { return Operator[T]{"bxor", true, reduction.BXor[T]} }

// reduction is op over raw memory.
func (op Op[T]) reduction() calls.Reduction {
	if op == nil {
		return calls.Reduction{Name: "no operation", Err: fmt.Errorf("mpilib: %w: the operator is nil", ErrType)}
	}
	o := op()
	return calls.ReductionOf(o.name, o.commutative, o.apply)
}
