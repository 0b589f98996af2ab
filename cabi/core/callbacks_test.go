package core

import (
	"runtime/debug"
	"strings"
	"testing"
)

// A call of the program's takes the callbacks of others on its own thread, those that waited before it and those that it
// waits for itself.
func TestServe(t *testing.T) {
	defer func(f func() bool) { InProgram = f }(InProgram)
	InProgram = func() bool { return false }
	var stack string
	if got := Serve(func() int32 {
		onProgram(func() { stack = string(debug.Stack()) })
		return 7
	}); got != 7 {
		t.Errorf("the call returns %d", got)
	}
	if !strings.Contains(stack, "core.Serve(") {
		t.Errorf("the callback ran elsewhere:\n%s", stack)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		onProgram(func() {})
	}()
	for waits := true; waits; {
		Serve(func() int32 { return success })
		select {
		case <-over:
			waits = false
		default:
		}
	}
}

// Calls are served as long as one with an operation of the program's is active.
func TestHasCallbacks(t *testing.T) {
	joined()
	var op, once, repeated uintptr
	in, out := &[2]int32{1, 2}, &[2]int32{}
	expect := func(after string, want bool) {
		t.Helper()
		if HasCallbacks() != want {
			t.Errorf("after %s: %v", after, !want)
		}
	}
	check(t, "OpCreate", OpCreate(5, 6, 1, address(&op)), success)
	check(t, "Iallreduce", Iallreduce(address(in), address(out), 2, typeInt, opSum, commWorld, address(&once)), success)
	expect("a predefined operation", false)
	check(t, "Wait", Wait(address(&once), 0), success)
	check(t, "AllreduceInit", AllreduceInit(address(in), address(out), 2, typeInt, op, commWorld, infoNull, address(&repeated)), success)
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
	if *out != *in {
		t.Errorf("reduced to %v", *out)
	}
}
