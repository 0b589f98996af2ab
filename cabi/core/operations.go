package core

import (
	"github.com/isthmus-grid/isthmus/cabi/core/datatypes"
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// operands are how elements of a datatype are reduced.
type operands struct {
	op       mpilib.Reduction
	standard *reductions.Operands // of one of the standard's operations on elements without gaps; otherwise nil
	d        *datatypes.Type      // otherwise, nil after an error
	isUser   bool                 // a function of the program's is called
}

// part is count elements in the program's memory; none after an error.
func (o operands) part(address uintptr, count int64) (mpilib.Part, error) {
	switch {
	case o.d != nil:
		return partOf(o.d, address, count)
	case o.standard == nil:
		return mpilib.Part{}, nil
	case count < 0:
		return mpilib.Part{}, failure(errCount, "%d elements", count)
	case count > 0 && address < firstPage:
		return mpilib.Part{}, failure(errBuffer, "%d elements at address %#x", count, address)
	}
	return o.standard.Part(elements[byte](address, int(count)*o.standard.Size), int(count)), nil
}

// operations are those of the program's.
var operations handles.Table[*reductions.User]

// OpCreate makes a function of the program an operation (MPI-5.0, section 6.9.5). caller is the
// front-end's function that calls it.
func OpCreate(function, caller uintptr, commute int32, op uintptr) int32 {
	store(op, operations.Add(&reductions.User{Function: function, Caller: caller, Commutative: commute != 0}))
	return success
}

// OpFree makes the handle of an operation invalid.
func OpFree(op uintptr) int32 {
	handle := load[uintptr](op)
	if _, ok := operations.Get(handle); !ok {
		return onWorld("MPI_Op_free", failure(errOp, "%#x is no operation that can be freed", handle))
	}
	operations.Remove(handle)
	store(op, opNull)
	return success
}

// OpCommutative returns whether an operation commutes; predefined ones do.
func OpCommutative(op, commute uintptr) int32 {
	o, ok := operations.Get(op)
	store(commute, logicalOf(!ok || o.Commutative))
	return success
}

// operandsOf returns how elements of d are reduced with an operation.
func operandsOf(d *datatypes.Type, op uintptr) (operands, error) {
	if o, ok := operations.Get(op); ok {
		return operands{op: o.On(d.Handle), d: d, isUser: true}, nil
	}
	if d.Reduce != nil {
		switch o := d.Reduce(op); {
		case o == nil:
		case d.Datatype.Size() != d.Extent: // messages are as those of a rank in Go, without the gaps of a pair
			return operands{op: o.Op, d: d}, nil
		default:
			return operands{op: o.Op, standard: o}, nil
		}
	}
	return operands{}, failure(errOp, "operation %#x is not for elements of %v", op, d.Datatype)
}
