package core

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// operands are how elements of a datatype are reduced.
type operands struct {
	op   mpilib.Reduction
	part func(address uintptr, count int64) (mpilib.Part, error) // elements in the program's memory
	user bool                                                    // op calls a function of the program's
}

// kernelOperands are the operands of a predefined operation, which commutes, on elements of type T.
func kernelOperands[T any](apply kernel[T]) *operands {
	return &operands{part: partOf[T], op: mpilib.NewReduction("operation", true, func(inout, in []byte, _, count int) error {
		apply(elementsOf[T](inout, count), elementsOf[T](in, count))
		return nil
	})}
}

// elementsOf is memory with n elements.
func elementsOf[T any](memory []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), n)
}

// partOf is count elements of type T in the program's memory.
func partOf[T any](address uintptr, count int64) (mpilib.Part, error) {
	if count < 0 {
		return mpilib.Part{}, failure(errCount, "%d elements", count)
	}
	if count > 0 && address < firstPage {
		return mpilib.Part{}, failure(errBuffer, "%d elements at address %#x", count, address)
	}
	return mpilib.PartOf(elements[T](address, int(count))), nil
}

// reducer returns the operands of a predefined operation, nil if it is not for the type.
type reducer func(op uintptr) *operands

// predefined makes a reducer of kernels, which commute.
func predefined[T any](kernels func(op uintptr) kernel[T]) reducer {
	all := sync.OnceValue(func() map[uintptr]*operands {
		all := map[uintptr]*operands{}
		for op := opSum; op <= opMaxLoc; op++ {
			if k := kernels(op); k != nil {
				all[op] = kernelOperands(k)
			}
		}
		return all
	})
	return func(op uintptr) *operands { return all()[op] }
}

// reducers has what is reduced with predefined operations, by type (MPI-5.0, section 6.9.2). It has more than the standard, as MPICH and
// Open MPI do: characters are integers, and integers that are no C integers have logical operations, too.
var reducers = map[string]reducer{
	"MPI_CHAR": character, "MPI_CHARACTER": character,
	"MPI_SIGNED_CHAR": predefined(whole[int8]), "MPI_UNSIGNED_CHAR": predefined(whole[uint8]),
	"MPI_SHORT": predefined(whole[int16]), "MPI_UNSIGNED_SHORT": predefined(whole[uint16]),
	"MPI_INT": predefined(whole[int32]), "MPI_UNSIGNED": predefined(whole[uint32]),
	"MPI_LONG": predefined(whole[int64]), "MPI_UNSIGNED_LONG": predefined(whole[uint64]),
	"MPI_LONG_LONG": predefined(whole[int64]), "MPI_UNSIGNED_LONG_LONG": predefined(whole[uint64]),
	"MPI_INT8_T": predefined(whole[int8]), "MPI_INT16_T": predefined(whole[int16]), "MPI_INT32_T": predefined(whole[int32]), "MPI_INT64_T": predefined(whole[int64]),
	"MPI_UINT8_T": predefined(whole[uint8]), "MPI_UINT16_T": predefined(whole[uint16]), "MPI_UINT32_T": predefined(whole[uint32]), "MPI_UINT64_T": predefined(whole[uint64]),
	"MPI_AINT": predefined(whole[int64]), "MPI_COUNT": predefined(whole[int64]), "MPI_OFFSET": predefined(whole[int64]),
	"MPI_INTEGER": predefined(whole[int32]),
	"MPI_LOGICAL": predefined(fortranLogical[int32]), "MPI_LOGICAL1": predefined(fortranLogical[int8]), "MPI_LOGICAL2": predefined(fortranLogical[int16]),
	"MPI_LOGICAL4": predefined(fortranLogical[int32]), "MPI_LOGICAL8": predefined(fortranLogical[int64]),
	"MPI_C_BOOL": predefined(logical[uint8]), "MPI_CXX_BOOL": predefined(logical[uint8]), "MPI_BYTE": predefined(bits),
	"MPI_FLOAT": predefined(ordered[float32]), "MPI_DOUBLE": predefined(ordered[float64]),
	"MPI_REAL": predefined(ordered[float32]), "MPI_DOUBLE_PRECISION": predefined(ordered[float64]),
	"MPI_C_FLOAT_COMPLEX": predefined(arithmetic[complex64]), "MPI_C_DOUBLE_COMPLEX": predefined(arithmetic[complex128]),
	"MPI_CXX_FLOAT_COMPLEX": predefined(arithmetic[complex64]), "MPI_CXX_DOUBLE_COMPLEX": predefined(arithmetic[complex128]),
	"MPI_COMPLEX": predefined(arithmetic[complex64]), "MPI_DOUBLE_COMPLEX": predefined(arithmetic[complex128]),
	"MPI_FLOAT_INT": predefined(extremes[float32, int32]), "MPI_DOUBLE_INT": predefined(extremes[float64, int32]),
	"MPI_LONG_INT": predefined(extremes[int64, int32]), "MPI_2INT": predefined(extremes[int32, int32]), "MPI_SHORT_INT": predefined(extremes[int16, int32]),
	"MPI_2REAL": predefined(extremes[float32, float32]), "MPI_2DOUBLE_PRECISION": predefined(extremes[float64, float64]), "MPI_2INTEGER": predefined(extremes[int32, int32]),
	"MPI_LONG_DOUBLE":             wide[wideNumber](wideReal, sums, leasts),
	"MPI_C_LONG_DOUBLE_COMPLEX":   wide[widePaired](wideComplex, sums),
	"MPI_CXX_LONG_DOUBLE_COMPLEX": wide[widePaired](wideComplex, sums),
	"MPI_LONG_DOUBLE_INT":         wide[widePaired](widePair, searches),
	"MPI_REAL16":                  wide[wideNumber](quadReal, sums, leasts),
	"MPI_COMPLEX32":               wide[widePaired](quadComplex, sums),
	"MPI_INTEGER16":               wide[wideNumber](wideInteger, sums, leasts, bitwise, logicals),
	"MPI_LOGICAL16":               wide[wideNumber](wideLogical, logicals),
}

// character reduces C's char, whose sign depends on the machine.
var character = map[bool]reducer{true: predefined(whole[int8]), false: predefined(whole[uint8])}[runtime.GOARCH == "amd64"]

// operation is one of the program's.
type operation struct {
	function, caller uintptr
	commutative      bool
}

var operations objects[*operation]

// OpCreate makes a function of the program an operation (MPI-5.0, section 6.9.5). caller is the
// front-end's function that calls it.
func OpCreate(function, caller uintptr, commute int32, op uintptr) int32 {
	store(op, operations.add(&operation{function, caller, commute != 0}))
	return success
}

// OpFree makes the handle of an operation invalid.
func OpFree(op uintptr) int32 {
	handle := load[uintptr](op)
	if _, ok := operations.get(handle); !ok {
		return onWorld("MPI_Op_free", failure(errOp, "%#x is no operation that can be freed", handle))
	}
	operations.remove(handle)
	store(op, opNull)
	return success
}

// OpCommutative returns whether an operation commutes; predefined ones do.
func OpCommutative(op, commute uintptr) int32 {
	o, ok := operations.get(op)
	store(commute, logicalOf(!ok || o.commutative))
	return success
}

// operandsOf returns how elements of d are reduced with an operation.
func operandsOf(d *datatype, op uintptr) (*operands, error) {
	if o, ok := operations.get(op); ok {
		return o.on(d), nil
	}
	if d.reduce != nil {
		if o := d.reduce(op); o != nil {
			return o, nil
		}
	}
	return nil, failure(errOp, "operation %#x is not for elements of %v", op, d.t)
}

// on returns the operands of the program's operation on elements of d.
func (o *operation) on(d *datatype) *operands {
	return &operands{user: true, part: d.part, op: mpilib.NewReduction("operation", o.commutative, func(inout, in []byte, origin, count int) error {
		at := func(memory []byte) uintptr {
			return uintptr(unsafe.Pointer(unsafe.SliceData(memory))) + uintptr(origin)
		}
		if count > 0 {
			onProgram(func() { CallUser(o.caller, o.function, at(in), at(inout), int64(count), d.handle) })
		}
		runtime.KeepAlive(in)
		runtime.KeepAlive(inout)
		return nil
	})}
}
