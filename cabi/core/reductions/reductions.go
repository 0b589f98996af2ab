// Package reductions applies the operations of MPI's reductions to elements of the types that C and Fortran have (MPI-5.0,
// section 6.9): the standard's, and the program's, which it has called. It knows no addresses but those that it hands to C,
// no handles but operations', and neither communicators nor how elements come to a process. What it remembers is what
// Fortran's logical values are, and the operands of each type and operation.
package reductions

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// The handles of the standard's operations.
const (
	Sum    = uintptr(0x21)
	Min    = uintptr(0x22)
	Max    = uintptr(0x23)
	Prod   = uintptr(0x24)
	BAnd   = uintptr(0x28)
	BOr    = uintptr(0x29)
	BXor   = uintptr(0x2a)
	LAnd   = uintptr(0x30)
	LOr    = uintptr(0x31)
	LXor   = uintptr(0x32)
	MinLoc = uintptr(0x38)
	MaxLoc = uintptr(0x39)
)

// Operands are how elements of a predefined type are reduced with an operation of the standard's.
type Operands struct {
	Op   mpilib.Reduction
	Size int                                        // bytes of an element
	Part func(memory []byte, count int) mpilib.Part // as many elements in their memory
}

// operandsOf are the operands of an operation, which commutes, on elements of type T.
func operandsOf[T any](apply kernel[T]) *Operands {
	var element T
	return &Operands{
		Op: mpilib.NewReduction("operation", true, func(inout, in []byte, _, count int) error {
			if n := min(len(inout), len(in)); n < count*int(unsafe.Sizeof(element)) { // the last element ends before its gap
				a, b := make([]T, count), make([]T, count)
				copy(memoryOf(a), inout)
				copy(memoryOf(b), in)
				apply(a, b)
				copy(inout, memoryOf(a))
				return nil
			}
			apply(elementsOf[T](inout, count), elementsOf[T](in, count))
			return nil
		}),
		Size: int(unsafe.Sizeof(element)),
		Part: func(memory []byte, count int) mpilib.Part { return mpilib.PartOf(elementsOf[T](memory, count)) },
	}
}

// memoryOf is the memory of elements.
func memoryOf[T any](of []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(of))), len(of)*int(unsafe.Sizeof(*new(T))))
}

// elementsOf is memory with n elements.
func elementsOf[T any](memory []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), n)
}

// Reducer returns the operands of an operation of the standard's, nil if it is not for the type.
type Reducer func(op uintptr) *Operands

// ForType returns the reducer of a predefined type by its name, nil if no operation is for it.
func ForType(name string) Reducer { return byType[name] }

// predefined makes a reducer of kernels, which commute.
func predefined[T any](kernels func(op uintptr) kernel[T]) Reducer {
	all := sync.OnceValue(func() map[uintptr]*Operands {
		all := map[uintptr]*Operands{}
		for op := Sum; op <= MaxLoc; op++ {
			if k := kernels(op); k != nil {
				all[op] = operandsOf(k)
			}
		}
		return all
	})
	return func(op uintptr) *Operands { return all()[op] }
}

// byType has what is reduced with predefined operations, by type (MPI-5.0, section 6.9.2). It has more than the standard, as MPICH and
// Open MPI do: characters are integers, and integers that are no C integers have logical operations, too.
var byType = map[string]Reducer{
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
var character = map[bool]Reducer{true: predefined(whole[int8]), false: predefined(whole[uint8])}[runtime.GOARCH == "amd64"]
