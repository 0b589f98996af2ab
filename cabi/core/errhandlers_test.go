package core

import (
	"slices"
	"testing"
)

// A program's error handler is called with the communicator's handle and the error's class, which the call then returns;
// communicators made from it inherit the handler, which lives as long as it is used.
func TestUserErrhandler(t *testing.T) {
	joined()
	defer func(f func(uintptr, uintptr, uintptr, int32)) { CallErrhandler = f }(CallErrhandler)
	type calledWith struct {
		caller, function, comm uintptr
		code                   int32
	}
	var calls []calledWith
	CallErrhandler = func(caller, function, comm uintptr, code int32) {
		calls = append(calls, calledWith{caller, function, comm, code})
	}
	var comm, child, handler, got, again uintptr
	var x int32
	check(t, "CommDup", CommDup(commWorld, address(&comm)), success)
	check(t, "CommCreateErrhandler", CommCreateErrhandler(7, 8, address(&handler)), success)
	check(t, "CommSetErrhandler", CommSetErrhandler(comm, handler), success)
	first := handler
	check(t, "CommGetErrhandler", CommGetErrhandler(comm, address(&got)), success)
	check(t, "ErrhandlerFree", ErrhandlerFree(address(&handler)), success)
	if got != first || handler != errhandlerNull {
		t.Errorf("the handler is %#x, want %#x; then %#x", got, first, handler)
	}
	check(t, "ErrhandlerFree", ErrhandlerFree(address(&got)), success)
	check(t, "CommSetErrhandler of a freed one", CommSetErrhandler(commWorld, first), errHandler)
	check(t, "CommDup", CommDup(comm, address(&child)), success)
	check(t, "Send", Send(address(&x), 1, typeInt, 0, -5, child), errTag)
	check(t, "CommCallErrhandler", CommCallErrhandler(comm, errRank), success)
	want := []calledWith{{8, 7, child, errTag}, {8, 7, comm, errRank}}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	check(t, "CommGetErrhandler", CommGetErrhandler(child, address(&again)), success)
	check(t, "CommSetErrhandler", CommSetErrhandler(comm, again), success)
	check(t, "ErrhandlerFree", ErrhandlerFree(address(&again)), success)
	check(t, "CommSetErrhandler", CommSetErrhandler(comm, errorsReturn), success)
	check(t, "Send", Send(address(&x), 1, typeInt, 0, -5, comm), errTag)
	if len(calls) != 2 {
		t.Errorf("the handler was called %d times, want 2", len(calls))
	}
	check(t, "CommFree", CommFree(address(&child)), success)
	check(t, "CommFree", CommFree(address(&comm)), success)
	check(t, "a handler at address 0", CommCreateErrhandler(0, 8, address(&handler)), errArg)
}
