package core

import (
	"slices"
	"testing"
)

func TestKernels(t *testing.T) {
	for op, want := range map[uintptr][]int32{
		opSum: {8, -1}, opProd: {15, 0}, opMin: {3, -1}, opMax: {5, 0}, opBAnd: {1, 0}, opBOr: {7, -1}, opBXor: {6, -1},
		opLAnd: {1, 0}, opLOr: {1, 1}, opLXor: {0, 1},
	} {
		inout := []int32{3, 0}
		whole[int32](op)(inout, []int32{5, -1})
		if !slices.Equal(inout, want) {
			t.Errorf("operation %#x of 5, -1 and 3, 0 is %v, want %v", op, inout, want)
		}
	}
	if arithmetic[complex64](opMax) != nil || ordered[float32](opBAnd) != nil || bits(opSum) != nil || extremes[int16, int32](opSum) != nil {
		t.Error("an operation is defined for a type that it is not for")
	}
}

// Of equal values the least index counts, in whatever order they come.
func TestExtremes(t *testing.T) {
	type pair = located[float64, int32]
	for _, c := range []struct {
		op         uintptr
		a, b, want pair
	}{
		{opMinLoc, pair{1, 5}, pair{2, 3}, pair{1, 5}},
		{opMaxLoc, pair{1, 5}, pair{2, 3}, pair{2, 3}},
		{opMinLoc, pair{2, 5}, pair{2, 3}, pair{2, 3}},
		{opMaxLoc, pair{2, 3}, pair{2, 5}, pair{2, 3}},
	} {
		inout := []pair{c.b}
		extremes[float64, int32](c.op)(inout, []pair{c.a})
		if inout[0] != c.want {
			t.Errorf("%#x of %v and %v is %v", c.op, c.a, c.b, inout[0])
		}
	}
}

// What is not Fortran's .FALSE. is true, and results are .TRUE. and .FALSE. as they are set when the operation is applied.
func TestFortranLogical(t *testing.T) {
	or := fortranLogical[int16](opLOr)
	inout := []int16{0, 5, 0}
	if or(inout, []int16{0, 0, -1}); !slices.Equal(inout, []int16{0, 1, 1}) {
		t.Errorf("without values of the compiler's: %v", inout)
	}
	defer func(yes, no []byte) { fortran.logicalTrue, fortran.logicalFalse = yes, no }(fortran.logicalTrue, fortran.logicalFalse)
	fortran.logicalTrue, fortran.logicalFalse = []byte{7, 7}, []byte{9, 9}
	inout = []int16{0x909, 0, 0x909}
	if or(inout, []int16{0x909, 0x909, 0x707}); !slices.Equal(inout, []int16{0x909, 0x707, 0x707}) {
		t.Errorf("with values of the compiler's: %#x", inout)
	}
	four := []int32{4}
	if fortranLogical[int32](opLAnd)(four, []int32{2}); four[0] != 1 {
		t.Errorf("values of another size: %d", four[0])
	}
}

// What Go has no arithmetic for is handed on, with addresses, for the operations that the type has.
func TestWide(t *testing.T) {
	joined()
	defer func(f func(int32, uintptr, uintptr, uintptr, int64)) { Wide = f }(Wide)
	var calls int
	Wide = func(kind int32, op, inout, in uintptr, n int64) {
		calls++
		if kind != widePair || op != opMaxLoc || n != 2 {
			t.Errorf("kind %d, operation %#x, %d elements", kind, op, n)
		}
		for i, v := range elements[byte](in, int(n)*32) {
			elements[byte](inout, int(n)*32)[i] = v
		}
	}
	in, inout := [64]byte{63: 5}, [64]byte{}
	pair := typeNamed("MPI_LONG_DOUBLE_INT")
	check(t, "ReduceLocal", ReduceLocal(address(&in), address(&inout), 2, pair, opMaxLoc), success)
	if calls != 1 || inout != in {
		t.Errorf("%d calls, result %v", calls, inout)
	}
	check(t, "the sum of pairs", ReduceLocal(address(&in), address(&inout), 2, pair, opSum), errOp)
	check(t, "no pairs", ReduceLocal(address(&in), address(&inout), 0, pair, opMaxLoc), success)
}
