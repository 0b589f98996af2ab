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
