package core

import "testing"

// opened returns a session whose errors are returned.
func opened(t *testing.T) *uintptr {
	t.Helper()
	joined()
	s := new(uintptr)
	check(t, "SessionInit", SessionInit(infoNull, errorsReturn, address(s)), success)
	return s
}

// created returns a communicator of a process set of a session.
func created(t *testing.T, session uintptr, pset string) *uintptr {
	t.Helper()
	g, c := new(uintptr), new(uintptr)
	check(t, "GroupFromSessionPset", GroupFromSessionPset(session, cText(pset), address(g)), success)
	check(t, "CommCreateFromGroup", CommCreateFromGroup(*g, cText("t"), infoNull, errorsReturn, address(c)), success)
	check(t, "GroupFree", GroupFree(address(g)), success)
	return c
}

// A session's sets are listed, without those that all processes have to help to find, but these are known too, in any case of letters.
func TestPsets(t *testing.T) {
	s := opened(t)
	var n, length int32
	check(t, "SessionGetNumPsets", SessionGetNumPsets(*s, infoNull, address(&n)), success)
	var names []string
	for i := range n {
		length = 0
		check(t, "SessionGetNthPset", SessionGetNthPset(*s, infoNull, i, address(&length), 0), success)
		name := make([]byte, length)
		check(t, "SessionGetNthPset", SessionGetNthPset(*s, infoNull, i, address(&length), address(&name[0])), success)
		names = append(names, string(name[:length-1]))
	}
	if n != 2 || names[0] != "mpi://WORLD" || names[1] != "mpi://SELF" {
		t.Errorf("%d sets: %q", n, names)
	}
	short := [6]byte{5: 7}
	length = 4
	check(t, "SessionGetNthPset that is cut", SessionGetNthPset(*s, infoNull, 0, address(&length), address(&short[0])), success)
	if string(short[:]) != "mpi\x00\x00\x07" || length != 12 {
		t.Errorf("%q, %d bytes", short, length)
	}
	check(t, "a set that there is not", SessionGetNthPset(*s, infoNull, 2, address(&length), address(&short[0])), errArg)
	check(t, "set -1", SessionGetNthPset(*s, infoNull, -1, address(&length), address(&short[0])), errArg)
	var info, g uintptr
	check(t, "SessionGetPsetInfo", SessionGetPsetInfo(*s, cText("MPI://self"), address(&info)), success)
	i, err := infoOf(info)
	if err != nil {
		t.Fatal(err)
	}
	if size, _ := i.Get("mpi_size"); size != "1" {
		t.Errorf("mpi://SELF has %q processes", size)
	}
	check(t, "SessionGetPsetInfo of none", SessionGetPsetInfo(*s, cText("mpi://MARS"), address(&info)), errArg)
	if check(t, "GroupFromSessionPset of none", GroupFromSessionPset(*s, cText("mpi://MARS"), address(&g)), success); g != groupNull {
		t.Errorf("the group of no set is %#x", g)
	}
	check(t, "GroupFromSessionPset of a node", GroupFromSessionPset(*s, cText("isthmus://node"), address(&g)), success)
	check(t, "SessionGetInfo", SessionGetInfo(*s, address(&info)), success)
	if i, err = infoOf(info); err != nil {
		t.Fatal(err)
	}
	if level, _ := i.Get("thread_level"); level != "MPI_THREAD_MULTIPLE" {
		t.Errorf("the thread level is %q", level)
	}
	old := *s
	if check(t, "SessionFinalize", SessionFinalize(address(s)), success); *s != sessionNull {
		t.Errorf("the session is %#x", *s)
	}
	check(t, "SessionGetNumPsets of none", SessionGetNumPsets(old, infoNull, address(&n)), errSession)
}

// What is made from a session belongs to it: it cannot be finalized before its communicators are freed, those of groups that were
// derived from one included.
func TestSessionFinalize(t *testing.T) {
	s := opened(t)
	first := created(t, *s, "mpi://WORLD")
	var g, part, dup, second uintptr
	check(t, "CommGroup", CommGroup(*first, address(&g)), success)
	rank := int32(0)
	check(t, "GroupIncl", GroupIncl(g, 1, address(&rank), address(&part)), success)
	check(t, "GroupUnion", GroupUnion(groupEmpty, part, address(&part)), success)
	check(t, "CommCreateFromGroup", CommCreateFromGroup(part, cText("u"), infoNull, errorsReturn, address(&second)), success)
	check(t, "CommDup", CommDup(second, address(&dup)), success)
	for _, c := range []*uintptr{first, &second, &dup} {
		check(t, "SessionFinalize too early", SessionFinalize(address(s)), errArg)
		check(t, "CommFree", CommFree(address(c)), success)
	}
	check(t, "SessionFinalize", SessionFinalize(address(s)), success)
	check(t, "CommCreateFromGroup of a session that is over", CommCreateFromGroup(part, cText("v"), infoNull, errorsReturn, address(&dup)), errOther)
	check(t, "Barrier", Barrier(commWorld), success)
}

// Errors of a session go to its handler, which must be one of sessions.
func TestSessionErrhandlers(t *testing.T) {
	joined()
	defer func(f func(uintptr, uintptr, uintptr, int32)) { CallErrhandler = f }(CallErrhandler)
	var calls [][2]uintptr
	CallErrhandler = func(caller, function, handle uintptr, code int32) {
		if caller != 8 || function != 7 {
			t.Errorf("caller %d, function %d", caller, function)
		}
		calls = append(calls, [2]uintptr{handle, uintptr(code)})
	}
	var handler, ofComm, got, s uintptr
	check(t, "SessionCreateErrhandler", SessionCreateErrhandler(7, 8, address(&handler)), success)
	check(t, "CommCreateErrhandler", CommCreateErrhandler(7, 8, address(&ofComm)), success)
	check(t, "SessionInit with a handler of communicators", SessionInit(infoNull, ofComm, address(&s)), errHandler)
	check(t, "SessionInit without a handler", SessionInit(infoNull, errhandlerNull, address(&s)), errHandler)
	check(t, "CommSetErrhandler with a handler of sessions", CommSetErrhandler(commWorld, handler), errHandler)
	check(t, "SessionInit with no info", SessionInit(0x139, handler, address(&s)), errInfo)
	check(t, "SessionInit", SessionInit(infoNull, handler, address(&s)), success)
	check(t, "SessionGetErrhandler", SessionGetErrhandler(s, address(&got)), success)
	if got != handler {
		t.Errorf("the handler is %#x, want %#x", got, handler)
	}
	check(t, "SessionCallErrhandler", SessionCallErrhandler(s, errTag), success)
	check(t, "SessionSetErrhandler with a handler of communicators", SessionSetErrhandler(s, ofComm), errHandler)
	if want := [][2]uintptr{{sessionNull, uintptr(errInfo)}, {s, uintptr(errTag)}, {s, uintptr(errHandler)}}; len(calls) != 3 || calls[0] != want[0] || calls[1] != want[1] || calls[2] != want[2] {
		t.Errorf("calls %v, want %v", calls, want)
	}
	check(t, "SessionSetErrhandler", SessionSetErrhandler(s, errorsReturn), success)
	var n int32
	check(t, "SessionGetNthPset", SessionGetNthPset(s, infoNull, 99, address(&n), 0), errArg)
	if len(calls) != 3 {
		t.Errorf("the handler was called %d times, want 3", len(calls))
	}
	for _, h := range []*uintptr{&handler, &got, &ofComm} {
		check(t, "ErrhandlerFree", ErrhandlerFree(address(h)), success)
	}
	check(t, "SessionFinalize", SessionFinalize(address(&s)), success)
}

// Buffered sends take a session's buffer if their communicator has none.
func TestSessionBuffer(t *testing.T) {
	s := opened(t)
	c := created(t, *s, "mpi://SELF")
	var at, dup uintptr
	var size int64
	var x int32
	memory, own := [8]byte{}, [8]byte{}
	check(t, "Bsend without a buffer", Bsend(address(&x), 1, typeInt, 0, 0, *c), errBuffer)
	check(t, "SessionAttachBuffer", SessionAttachBuffer(*s, address(&memory[0]), 8), success)
	check(t, "another", SessionAttachBuffer(*s, address(&memory[0]), 8), errBuffer)
	check(t, "Bsend", Bsend(address(&x), 1, typeInt, 0, 0, *c), success)
	check(t, "SessionFlushBuffer", SessionFlushBuffer(*s), success)
	var flushed uintptr
	check(t, "SessionIflushBuffer", SessionIflushBuffer(*s, address(&flushed)), success)
	if check(t, "Wait", Wait(address(&flushed), 0), success); flushed != requestNull {
		t.Errorf("the request of the flush is %#x", flushed)
	}
	check(t, "CommDup", CommDup(*c, address(&dup)), success)
	check(t, "Bsend of what was made from it", Bsend(address(&x), 1, typeInt, 0, 0, dup), success)
	check(t, "Recv", Recv(address(&x), 1, typeInt, 0, 0, dup, 0), success)
	check(t, "CommFree", CommFree(address(&dup)), success)
	check(t, "Bsend of the world", Bsend(address(&x), 1, typeInt, 0, 0, commWorld), errBuffer)
	check(t, "CommAttachBuffer", CommAttachBuffer(*c, address(&own[0]), 2), success)
	check(t, "Bsend with a smaller buffer of the communicator", Bsend(address(&x), 1, typeInt, 0, 0, *c), errBuffer)
	check(t, "Recv", Recv(address(&x), 1, typeInt, 0, 0, *c, 0), success)
	check(t, "SessionDetachBuffer", SessionDetachBuffer(*s, address(&at), address(&size)), success)
	if at != address(&memory[0]) || size != 8 {
		t.Errorf("detached %#x, %d bytes", at, size)
	}
	check(t, "CommFree", CommFree(address(c)), success)
	check(t, "SessionFinalize", SessionFinalize(address(s)), success)
}
