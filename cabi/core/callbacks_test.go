package core

import (
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
)

// Calls are served as long as one with an operation of the program's is active.
func TestHasCallbacks(t *testing.T) {
	joined()
	var op, once, repeated uintptr
	in, out, again := &[2]int32{1, 2}, &[2]int32{}, &[2]int32{}
	expect := func(after string, want bool) {
		t.Helper()
		if callbacks.Expected() != want {
			t.Errorf("after %s: %v", after, !want)
		}
	}
	check(t, "OpCreate", OpCreate(5, 6, 1, address(&op)), success)
	check(t, "Iallreduce", Iallreduce(address(in), address(out), 2, typeInt, reductions.Sum, commWorld, address(&once)), success)
	expect("a predefined operation", false)
	check(t, "Wait", Wait(address(&once), 0), success)
	check(t, "AllreduceInit", AllreduceInit(address(in), address(again), 2, typeInt, op, commWorld, infoNull, address(&repeated)), success)
	expect("AllreduceInit", false)
	check(t, "Iallreduce", Iallreduce(address(in), address(out), 2, typeInt, op, commWorld, address(&once)), success)
	expect("Iallreduce", true)
	check(t, "Start", Start(address(&repeated)), success)
	check(t, "Wait", Wait(address(&once), 0), success)
	expect("Start", true)
	check(t, "Wait", Wait(address(&repeated), 0), success)
	expect("Wait", false)
	check(t, "Wait", Wait(address(&repeated), 0), success)
	expect("Wait for an inactive request", false)
	check(t, "RequestFree", RequestFree(address(&repeated)), success)
	check(t, "OpFree", OpFree(address(&op)), success)
	if *out != *in || *again != *in {
		t.Errorf("reduced to %v and %v", *out, *again)
	}
}
