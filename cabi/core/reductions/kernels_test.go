package reductions

import (
	"slices"
	"testing"
)

func TestKernels(t *testing.T) {
	for op, want := range map[uintptr][]int32{
		Sum: {8, -1}, Prod: {15, 0}, Min: {3, -1}, Max: {5, 0}, BAnd: {1, 0}, BOr: {7, -1}, BXor: {6, -1},
		LAnd: {1, 0}, LOr: {1, 1}, LXor: {0, 1},
	} {
		inout := []int32{3, 0}
		whole[int32](op)(inout, []int32{5, -1})
		if !slices.Equal(inout, want) {
			t.Errorf("operation %#x of 5, -1 and 3, 0 is %v, want %v", op, inout, want)
		}
	}
	if arithmetic[complex64](Max) != nil || ordered[float32](BAnd) != nil || bits(Sum) != nil || extremes[int16, int32](Sum) != nil {
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
		{MinLoc, pair{1, 5}, pair{2, 3}, pair{1, 5}},
		{MaxLoc, pair{1, 5}, pair{2, 3}, pair{2, 3}},
		{MinLoc, pair{2, 5}, pair{2, 3}, pair{2, 3}},
		{MaxLoc, pair{2, 3}, pair{2, 5}, pair{2, 3}},
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
	or := fortranLogical[int16](LOr)
	inout := []int16{0, 5, 0}
	if or(inout, []int16{0, 0, -1}); !slices.Equal(inout, []int16{0, 1, 1}) {
		t.Errorf("without values of the compiler's: %v", inout)
	}
	defer func() { fortran.yes, fortran.no = nil, nil }()
	if !SetLogicals([]byte{7, 7}, []byte{9, 9}) || SetLogicals([]byte{1}, []byte{0}) {
		t.Error("logical values are not set once")
	}
	if yes, no := Logicals(); string(yes) != "\x07\x07" || string(no) != "\x09\x09" {
		t.Errorf("logical values are %v and %v", yes, no)
	}
	inout = []int16{0x909, 0, 0x909}
	if or(inout, []int16{0x909, 0x909, 0x707}); !slices.Equal(inout, []int16{0x909, 0x707, 0x707}) {
		t.Errorf("with values of the compiler's: %#x", inout)
	}
	four := []int32{4}
	if fortranLogical[int32](LAnd)(four, []int32{2}); four[0] != 1 {
		t.Errorf("values of another size: %d", four[0])
	}
}
