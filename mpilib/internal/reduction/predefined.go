package reduction

import (
	"cmp"
	"runtime"
	"sync"
	"unsafe"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
)

// The elements of the predefined operators.
type (
	integer interface {
		~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
	}
	number interface {
		integer | ~float32 | ~float64 | ~complex64 | ~complex128
	}
)

// Sum adds.
func Sum[T number](inout, in []T) {
	for i, v := range in {
		inout[i] = v + inout[i]
	}
}

// Prod multiplies.
func Prod[T number](inout, in []T) {
	for i, v := range in {
		inout[i] = v * inout[i]
	}
}

// Min takes the least element, or NaN.
func Min[T cmp.Ordered](inout, in []T) {
	for i, v := range in {
		inout[i] = min(v, inout[i])
	}
}

// Max takes the greatest element, or NaN.
func Max[T cmp.Ordered](inout, in []T) {
	for i, v := range in {
		inout[i] = max(v, inout[i])
	}
}

// LAnd is true where both elements are.
func LAnd[T ~bool](inout, in []T) {
	for i, v := range in {
		inout[i] = v && inout[i]
	}
}

// LOr is true where one of the elements is.
func LOr[T ~bool](inout, in []T) {
	for i, v := range in {
		inout[i] = v || inout[i]
	}
}

// LXor is true where the elements differ.
func LXor[T ~bool](inout, in []T) {
	for i, v := range in {
		inout[i] = v != inout[i]
	}
}

// BAnd is the bitwise and.
func BAnd[T integer](inout, in []T) {
	for i, v := range in {
		inout[i] &= v
	}
}

// BOr is the bitwise or.
func BOr[T integer](inout, in []T) {
	for i, v := range in {
		inout[i] |= v
	}
}

// BXor is the bitwise exclusive or.
func BXor[T integer](inout, in []T) {
	for i, v := range in {
		inout[i] ^= v
	}
}

// land and the other logical operators take each number but 0 for true, as C does, and give 1 or 0.
func land[T integer](inout, in []T) {
	for i, v := range in {
		inout[i] = oneIf[T](v != 0 && inout[i] != 0)
	}
}

func lor[T integer](inout, in []T) {
	for i, v := range in {
		inout[i] = oneIf[T](v != 0 || inout[i] != 0)
	}
}

func lxor[T integer](inout, in []T) {
	for i, v := range in {
		inout[i] = oneIf[T]((v != 0) != (inout[i] != 0))
	}
}

func oneIf[T integer](is bool) T {
	if is {
		return 1
	}
	return 0
}

// A row is the operators of a datatype; those without Apply are not defined for it.
type row [operators]collectives.Op

// set defines an operator on Ts.
func set[T any](r *row, id operator, name string, apply func(inout, in []T)) {
	op, err := coll.Op(name, true, apply)
	if err != nil {
		panic(err) // T is a number
	}
	r[id] = op
}

func bits[T integer]() *row {
	r := new(row)
	set(r, opBand, "band", BAnd[T])
	set(r, opBor, "bor", BOr[T])
	set(r, opBxor, "bxor", BXor[T])
	return r
}

func logical[T integer](r *row) *row {
	set(r, opLand, "land", land[T])
	set(r, opLor, "lor", lor[T])
	set(r, opLxor, "lxor", lxor[T])
	return r
}

func sums[T number](r *row) *row {
	set(r, opSum, "sum", Sum[T])
	set(r, opProd, "prod", Prod[T])
	return r
}

func extremes[T cmp.Ordered](r *row) *row {
	set(r, opMin, "min", Min[T])
	set(r, opMax, "max", Max[T])
	return r
}

func integers[T integer]() *row { return extremes[T](sums[T](logical[T](bits[T]()))) }

func floats[T ~float32 | ~float64]() *row { return extremes[T](sums[T](new(row))) }

func complexes[T ~complex64 | ~complex128]() *row { return sums[T](new(row)) }

// pairs is the row of pairs of a value and an index, between which messages have no gap.
func pairs[V, I cmp.Ordered]() *row {
	r := new(row)
	size := int(unsafe.Sizeof(*new(V)) + unsafe.Sizeof(*new(I)))
	r[opMinloc] = collectives.Op{Name: "minloc", Elem: size, Commutative: true, Apply: locate[V, I](-1)}
	r[opMaxloc] = collectives.Op{Name: "maxloc", Elem: size, Commutative: true, Apply: locate[V, I](1)}
	return r
}

// locate keeps the least value (sign -1), or the greatest (1), and of equal ones the lowest index
// (MPI-5.0, section 6.9.4).
func locate[V, I cmp.Ordered](sign int) func(inout, in []byte) error {
	indexAt := int(unsafe.Sizeof(*new(V)))
	size := indexAt + int(unsafe.Sizeof(*new(I)))
	return func(inout, in []byte) error {
		for ; len(in) >= size; inout, in = inout[size:], in[size:] {
			switch order := cmp.Compare(load[V](in), load[V](inout)); {
			case order == sign, order == 0 && load[I](in[indexAt:]) < load[I](inout[indexAt:]):
				copy(inout[:size], in)
			}
		}
		return nil
	}
}

// load returns the T that b begins with, aligned or not.
func load[T any](b []byte) T {
	_ = b[unsafe.Sizeof(*new(T))-1]
	return *(*T)(unsafe.Pointer(unsafe.SliceData(b)))
}

// charIsSigned reports whether a char of C is signed.
func charIsSigned(goos, goarch string) bool { return goarch == "amd64" || goos == "darwin" }

// rows returns the row of each named type (MPI-5.0, sections 6.9.2 and 6.9.4), without long
// doubles. The standard leaves out MPI_CHAR; as programs use it, it is an integer here. Fortran's
// logical values are 0 and others, which gives 1.
var rows = sync.OnceValue(func() map[*datatype.Type]*row {
	i8, i16, i32, i64 := integers[int8](), integers[int16](), integers[int32](), integers[int64]()
	u8, u16, u32, u64 := integers[uint8](), integers[uint16](), integers[uint32](), integers[uint64]()
	f32, f64, c64, c128 := floats[float32](), floats[float64](), complexes[complex64](), complexes[complex128]()
	char := u8
	if charIsSigned(runtime.GOOS, runtime.GOARCH) {
		char = i8
	}
	bool8, bool32 := logical[uint8](new(row)), logical[int32](new(row))
	twoInt := pairs[int32, int32]()
	return map[*datatype.Type]*row{
		datatype.Char: char, datatype.SignedChar: i8, datatype.UnsignedChar: u8,
		datatype.Short: i16, datatype.UnsignedShort: u16, datatype.Int: i32, datatype.Unsigned: u32,
		datatype.Long: i64, datatype.UnsignedLong: u64, datatype.LongLong: i64, datatype.UnsignedLongLong: u64,
		datatype.Int8: i8, datatype.Int16: i16, datatype.Int32: i32, datatype.Int64: i64,
		datatype.Uint8: u8, datatype.Uint16: u16, datatype.Uint32: u32, datatype.Uint64: u64,
		datatype.Aint: i64, datatype.Offset: i64, datatype.Count: i64, datatype.Integer: i32,
		datatype.Float: f32, datatype.Double: f64, datatype.Real: f32, datatype.DoublePrecision: f64,
		datatype.CFloatComplex: c64, datatype.CxxFloatComplex: c64, datatype.Complex: c64,
		datatype.CDoubleComplex: c128, datatype.CxxDoubleComplex: c128, datatype.DoubleComplex: c128,
		datatype.CBool: bool8, datatype.CxxBool: bool8, datatype.Logical: bool32, datatype.Byte: bits[uint8](),
		datatype.FloatInt: pairs[float32, int32](), datatype.DoubleInt: pairs[float64, int32](),
		datatype.LongInt: pairs[int64, int32](), datatype.ShortInt: pairs[int16, int32](), datatype.TwoInt: twoInt, datatype.TwoInteger: twoInt,
		datatype.TwoReal: pairs[float32, float32](), datatype.TwoDoublePrecision: pairs[float64, float64](),
	}
})
