package core

import (
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/datatypes"
	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
)

// Elements of predefined types are reduced where they are; what is none has its class of error.
func TestReduceLocal(t *testing.T) {
	joined()
	in, inout := &[2]int32{1, 7}, &[2]int32{5, 3}
	check(t, "ReduceLocal", ReduceLocal(address(in), address(inout), 2, typeInt, reductions.Max), success)
	if *inout != [2]int32{5, 7} {
		t.Errorf("the greatest are %v", *inout)
	}
	pair := datatypes.Named("MPI_LONG_DOUBLE_INT")
	check(t, "no elements", ReduceLocal(0, 0, 0, pair, reductions.MaxLoc), success)
	check(t, "the sum of pairs", ReduceLocal(address(in), address(inout), 0, pair, reductions.Sum), errOp)
	check(t, "-1 elements", ReduceLocal(address(in), address(inout), -1, typeInt, reductions.Sum), errCount)
	check(t, "elements at address 0", ReduceLocal(address(in), 0, 2, typeInt, reductions.Sum), errBuffer)
	check(t, "elements of no type", ReduceLocal(address(in), address(inout), 2, datatypeNull, reductions.Sum), errType)
}

// A program's operation gets the address of an element, which may have data before it.
func TestUserOperationBefore(t *testing.T) {
	joined()
	defer func(f func(uintptr, uintptr, uintptr, uintptr, int64, uintptr)) { reductions.CallUser = f }(reductions.CallUser)
	reductions.CallUser = func(_, _, in, inout uintptr, n int64, _ uintptr) {
		a, b := elements[int32](in-4, 2), elements[int32](inout-4, 2)
		b[0], b[1] = b[0]+10*a[0], b[1]+100*a[1]
	}
	var op, back uintptr
	check(t, "OpCreate", OpCreate(5, 6, 1, address(&op)), success)
	check(t, "TypeVector", TypeVector(2, 1, -1, typeInt, address(&back)), success)
	check(t, "TypeCommit", TypeCommit(address(&back)), success)
	in, inout := &[2]int32{1, 2}, &[2]int32{3, 4}
	check(t, "ReduceLocal", ReduceLocal(address(&in[1]), address(&inout[1]), 1, back, op), success)
	if *inout != [2]int32{13, 204} {
		t.Errorf("reduced to %v", *inout)
	}
	check(t, "TypeFree", TypeFree(address(&back)), success)
	check(t, "OpFree", OpFree(address(&op)), success)
}

// Messages of pairs with gaps are as those of ranks in Go, without the gaps; others are reduced where they are.
func TestPairsWithGaps(t *testing.T) {
	for name, gaps := range map[string]bool{"MPI_DOUBLE_INT": true, "MPI_2INT": false} {
		d, err := typeOf(datatypes.Named(name))
		if err != nil {
			t.Fatal(err)
		}
		o, err := operandsOf(d, reductions.MaxLoc)
		if err != nil || o.isUser || (o.standard == nil) != gaps || (o.d != nil) != gaps {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}
