// Package reduction has the operators of MPI's reductions on elements of datatypes, which they get
// as bytes (MPI-5.0, section 6.9): the predefined ones, by name, and those of programs. It is pure:
// it knows neither communicators nor messages, and keeps no state.
package reduction

import (
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Op is an operator on the elements of datatypes (MPI_Op; MPI-5.0, section 6.9.2). It is immutable;
// the zero Op is none (MPI_OP_NULL), with which calls fail with ErrOp.
type Op struct {
	name        string
	commutative bool
	id          operator // of a predefined one; otherwise none
	combine     Combine
}

// Combine is the function of a program's operator (MPI_User_function; MPI-5.0, section 6.9.5): it
// sets inout[i] = in[i] op inout[i] for each of count elements, in being the operand of the lower
// ranks. Both slices have the elements laid out as their datatype says, around byte origin, where
// the displacements of the first one start; bytes between the data have no meaning. That address is
// a multiple of the datatype's alignment. Combine must not change in, must keep neither slice, and
// may run in any goroutine. Its error fails the call on this rank.
type Combine func(inout, in []byte, origin, count int) error

// operator identifies a predefined operator.
type operator uint8

const (
	none operator = iota
	opMax
	opMin
	opSum
	opProd
	opLand
	opBand
	opLor
	opBor
	opLxor
	opBxor
	opMaxloc
	opMinloc
	operators // one more than the last
)

// names are the standard's names of the predefined operators.
var names = [operators]string{
	none: "MPI_OP_NULL", opMax: "MPI_MAX", opMin: "MPI_MIN", opSum: "MPI_SUM", opProd: "MPI_PROD", opLand: "MPI_LAND", opBand: "MPI_BAND",
	opLor: "MPI_LOR", opBor: "MPI_BOR", opLxor: "MPI_LXOR", opBxor: "MPI_BXOR", opMaxloc: "MPI_MAXLOC", opMinloc: "MPI_MINLOC",
}

// Named returns the predefined operator with the standard's name, "MPI_SUM" (MPI-5.0, sections 6.9.2
// and 6.9.4). It fails with ErrOp for other names, also of MPI_REPLACE and MPI_NO_OP, which no
// reduction takes.
func Named(name string) (Op, error) {
	i := slices.Index(names[:], name)
	if i <= int(none) {
		return Op{}, fmt.Errorf("%w: %q names no operator of the standard's reductions", mpi.ErrOp, name)
	}
	return Op{name: name, commutative: true, id: operator(i)}, nil
}

// New returns an operator of the program (MPI_Op_create; MPI-5.0, section 6.9.5), which must be
// associative, up to rounding. All ranks must use the same one. commutative allows operands to be
// exchanged. The name is for errors.
func New(name string, commutative bool, combine Combine) Op {
	return Op{name: name, commutative: commutative, combine: combine}
}

// String returns the operator's name, "MPI_SUM".
func (op Op) String() string {
	if op.id == none && op.combine == nil {
		return names[none]
	}
	return op.name
}
