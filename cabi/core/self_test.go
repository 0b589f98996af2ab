package core

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
)

// The world of these tests has one process, which sends to itself. Its errors are returned.
var joined = sync.OnceFunc(func() {
	Init(0, 0)
	CommSetErrhandler(commWorld, errorsReturn)
})

const (
	typeInt    = uintptr(0x209)
	typeDouble = uintptr(0x214)
	typeByte   = uintptr(0x247)
)

// kept are the variables of the tests, which must not lie on a stack: it moves.
var kept []any

// address is where a variable is.
func address[T any](p *T) uintptr {
	kept = append(kept, p)
	return uintptr(unsafe.Pointer(p))
}

func check(t *testing.T, what string, got, want int32) {
	t.Helper()
	if got != want {
		t.Errorf("%s returns %d, want %d", what, got, want)
	}
}

func TestMessages(t *testing.T) {
	joined()
	out, in := [3]int32{1, 2, 3}, [5]int32{}
	var request uintptr
	var st status
	var count int64
	var flag int32
	check(t, "Irecv", Irecv(address(&in), 5, typeInt, anySource, anyTag, commWorld, address(&request)), success)
	check(t, "Test", Test(address(&request), address(&flag), address(&st)), success)
	if flag != 0 || request < handles.First {
		t.Errorf("flag %d, request %#x before the message", flag, request)
	}
	check(t, "Send", Send(address(&out), 3, typeInt, 0, 7, commWorld), success)
	check(t, "Wait", Wait(address(&request), address(&st)), success)
	check(t, "GetCount", GetCount(address(&st), typeInt, address(&count)), success)
	if in != [5]int32{1, 2, 3} || st.source != 0 || st.tag != 7 || count != 3 || request != requestNull {
		t.Errorf("got %v, %+v, %d elements, request %#x", in, st, count, request)
	}
	if GetCount(address(&st), typeDouble, address(&count)); count != int64(undefined) {
		t.Errorf("%d doubles in three ints", count)
	}
}

// Errors have the classes that the standard gives them.
func TestErrors(t *testing.T) {
	joined()
	var x int32
	check(t, "a send to a rank that is not there", Send(address(&x), 1, typeInt, 1, 0, commWorld), errRank)
	check(t, "a send to rank -9", Send(address(&x), 1, typeInt, -9, 0, commWorld), errRank)
	check(t, "a send with tag -1", Send(address(&x), 1, typeInt, 0, -1, commWorld), errTag)
	check(t, "a send of -1 elements", Send(address(&x), -1, typeInt, 0, 0, commWorld), errCount)
	check(t, "a send from address 0", Send(0, 1, typeInt, 0, 0, commWorld), errBuffer)
	check(t, "a send of no type", Send(address(&x), 1, datatypeNull, 0, 0, commWorld), errType)
	check(t, "a send on no communicator", Send(address(&x), 1, typeInt, 0, 0, commNull), errComm)
	check(t, "the sum of bytes", Allreduce(inPlace, address(&x), 1, typeByte, reductions.Sum, commWorld), errOp)
	request := uintptr(77)
	check(t, "waiting for no request", Wait(address(&request), 0), errRequest)
}

// A program's operation is called with its own function, the type's handle, and memory that it may
// use; its result is used.
func TestUserOperation(t *testing.T) {
	joined()
	defer func(f func(uintptr, uintptr, uintptr, uintptr, int64, uintptr)) { reductions.CallUser = f }(reductions.CallUser)
	var calls [][4]uintptr
	reductions.CallUser = func(caller, function, in, inout uintptr, n int64, datatype uintptr) {
		calls = append(calls, [4]uintptr{caller, function, uintptr(n), datatype})
		a, b := elements[float64](in, int(n)), elements[float64](inout, int(n))
		for i := range a {
			b[i] = 10*a[i] + b[i]
		}
	}
	var op uintptr
	var commutes int32
	check(t, "OpCreate", OpCreate(5, 6, 0, address(&op)), success)
	check(t, "OpCommutative", OpCommutative(op, address(&commutes)), success)
	in, inout := [2]float64{1, 2}, [2]float64{3, 4}
	check(t, "ReduceLocal", ReduceLocal(address(&in), address(&inout), 2, typeDouble, op), success)
	if len(calls) != 1 || calls[0] != [4]uintptr{6, 5, 2, typeDouble} || inout != [2]float64{13, 24} || commutes != 0 {
		t.Errorf("calls %v, result %v, commutes %d", calls, inout, commutes)
	}
	check(t, "OpFree", OpFree(address(&op)), success)
	if op != opNull {
		t.Errorf("op is %#x", op)
	}
}

// Text is cut to the room that there is, and ends with a zero.
func TestStoreText(t *testing.T) {
	buf := [8]byte{1, 1, 1, 1, 1, 1, 1, 1}
	var length int32
	storeText(address(&buf[0]), "abcdef", 5, address(&length))
	if string(buf[:6]) != "abcd\x00\x01" || length != 4 {
		t.Errorf("%q, %d", buf, length)
	}
}

// The exit status after MPI_Abort is that of a failure, whatever the program's code: the launcher ends the job for it.
func TestAbort(t *testing.T) {
	joined()
	defer func(f func(int)) { Exit = f }(Exit)
	var got int
	Exit = func(status int) { got = status }
	for code, want := range map[int32]int{3: 3, 0: 1, 256: 1, 257: 1, 255: 255, -1: 255} {
		if Abort(commWorld, code); got != want {
			t.Errorf("code %d: exit status %d, want %d", code, got, want)
		}
	}
}
