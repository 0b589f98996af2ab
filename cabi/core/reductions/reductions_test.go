package reductions

import (
	"strconv"
	"testing"
	"unsafe"

	"github.com/isthmus-grid/isthmus/cabi/api"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Operations and types are the standard's.
func TestConstants(t *testing.T) {
	ops, types := map[string]int64{}, map[string]bool{}
	for _, c := range api.Constants() {
		types[c.Name] = c.Type == "MPI_Datatype"
		if v, err := strconv.ParseInt(c.Value, 0, 64); err == nil {
			ops[c.Name] = v
		}
	}
	for name, ours := range map[string]uintptr{
		"MPI_SUM": Sum, "MPI_MIN": Min, "MPI_MAX": Max, "MPI_PROD": Prod, "MPI_BAND": BAnd, "MPI_BOR": BOr, "MPI_BXOR": BXor,
		"MPI_LAND": LAnd, "MPI_LOR": LOr, "MPI_LXOR": LXor, "MPI_MINLOC": MinLoc, "MPI_MAXLOC": MaxLoc,
	} {
		if want, ok := ops[name]; !ok || int64(ours) != want {
			t.Errorf("%s is %#x, the standard has %#x (%v)", name, ours, want, ok)
		}
	}
	for name := range byType {
		if !types[name] {
			t.Errorf("%s is no type", name)
		}
	}
}

// reduceLocal reduces elements of a type in memory, and reports whether the operation is for the type.
func reduceLocal(t *testing.T, name string, op uintptr, in, inout []byte) bool {
	t.Helper()
	o := ForType(name)(op)
	if o == nil {
		return false
	}
	if err := mpilib.ReduceLocal(o.Part(in, len(in)/o.Size), o.Part(inout, len(inout)/o.Size), o.Op); err != nil {
		t.Error(err)
	}
	return true
}

// A type's operands take memory as so many elements of its size.
func TestOperands(t *testing.T) {
	inout := []byte{1, 0, 3, 0xff}
	if !reduceLocal(t, "MPI_INT16_T", Max, []byte{2, 0, 4, 0}, inout) || string(inout) != "\x02\x00\x04\x00" {
		t.Errorf("the greater of two are %v", inout)
	}
	if reduceLocal(t, "MPI_FLOAT", BAnd, nil, nil) || ForType("MPI_PACKED") != nil {
		t.Error("operands of what cannot be reduced")
	}
}

// What Go has no arithmetic for is handed on, with addresses, for the operations that the type has.
func TestWide(t *testing.T) {
	defer func(f func(int32, uintptr, uintptr, uintptr, int64)) { Wide = f }(Wide)
	in, inout := make([]byte, 64), make([]byte, 64)
	in[63] = 5
	var calls int
	Wide = func(kind int32, op, to, from uintptr, n int64) {
		calls++
		if kind != widePair || op != MaxLoc || n != 2 || to != uintptr(unsafe.Pointer(&inout[0])) || from != uintptr(unsafe.Pointer(&in[0])) {
			t.Errorf("kind %d, operation %#x, %d elements at %#x and %#x", kind, op, n, to, from)
		}
		copy(inout, in)
	}
	const pair = "MPI_LONG_DOUBLE_INT"
	if !reduceLocal(t, pair, MaxLoc, in, inout) || calls != 1 || inout[63] != 5 {
		t.Errorf("%d calls, result %v", calls, inout)
	}
	if reduceLocal(t, pair, Sum, in, inout) {
		t.Error("pairs have a sum")
	}
	if !reduceLocal(t, pair, MaxLoc, nil, nil) {
		t.Error("no pairs")
	}
}

// A function of the program's gets its elements' addresses and their type, and is not called where there are none.
func TestUser(t *testing.T) {
	defer func(f func(uintptr, uintptr, uintptr, uintptr, int64, uintptr)) { CallUser = f }(CallUser)
	in, inout := []int32{1, 2}, []int32{3, 4}
	var calls int
	CallUser = func(caller, function, from, to uintptr, n int64, datatype uintptr) {
		calls++
		if caller != 6 || function != 5 || n != 2 || datatype != 7 || from != uintptr(unsafe.Pointer(&in[0])) || to != uintptr(unsafe.Pointer(&inout[0])) {
			t.Errorf("called with %d, %d, %d elements of %d at %#x and %#x", caller, function, n, datatype, from, to)
		}
	}
	op := (&User{Function: 5, Caller: 6}).On(7)
	for _, n := range []int{2, 0} {
		if err := mpilib.ReduceLocal(mpilib.PartOf(in[:n]), mpilib.PartOf(inout[:n]), op); err != nil {
			t.Error(err)
		}
	}
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}
