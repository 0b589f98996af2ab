package core

import "testing"

// A message that a probe took is received once, by its handle.
func TestMatched(t *testing.T) {
	joined()
	out, in := &[2]int32{1, 2}, &[2]int32{}
	var m, request uintptr
	var flag int32
	var st status
	check(t, "Improbe", Improbe(0, 41, commWorld, address(&flag), address(&m), address(&st)), success)
	if flag != 0 || m != messageNull {
		t.Errorf("found %d, message %#x before there is one", flag, m)
	}
	check(t, "Send", Send(address(out), 2, typeInt, 0, 41, commWorld), success)
	check(t, "Mprobe", Mprobe(anySource, anyTag, commWorld, address(&m), address(&st)), success)
	if st.tag != 41 || st.low != 8 {
		t.Errorf("found %+v", st)
	}
	taken := m
	check(t, "Mrecv of a wrong type", Mrecv(address(in), 2, datatypeNull, address(&m), 0), errType)
	check(t, "Imrecv", Imrecv(address(in), 2, typeInt, address(&m), address(&request)), success)
	if m != messageNull {
		t.Errorf("the message is %#x", m)
	}
	check(t, "Mrecv of what was received", Mrecv(address(in), 2, typeInt, address(&taken), 0), errRequest)
	check(t, "Wait", Wait(address(&request), address(&st)), success)
	if *in != *out || st.low != 8 {
		t.Errorf("received %v, %+v", *in, st)
	}
	m = messageNoProc
	check(t, "Mrecv of none", Mrecv(address(in), 2, typeInt, address(&m), address(&st)), success)
	if m != messageNull || st.source != procNull || st.tag != anyTag || st.low != 0 {
		t.Errorf("message %#x, %+v", m, st)
	}
}

// A receive whose status was asked for is complete: its memory is the program's, and what is in it stays.
func TestRequestGetStatus(t *testing.T) {
	joined()
	var d, request uintptr
	var flag int32
	var st status
	in, out := &[4]int32{}, &[2]int32{7, 8}
	check(t, "TypeVector", TypeVector(2, 1, 3, typeInt, address(&d)), success)
	check(t, "TypeCommit", TypeCommit(address(&d)), success)
	check(t, "Irecv", Irecv(address(in), 1, d, 0, 42, commWorld, address(&request)), success)
	check(t, "RequestGetStatus", RequestGetStatus(request, address(&flag), address(&st)), success)
	if flag != 0 {
		t.Error("complete before the message")
	}
	check(t, "Send", Send(address(out), 2, typeInt, 0, 42, commWorld), success)
	check(t, "RequestGetStatus", RequestGetStatus(request, address(&flag), address(&st)), success)
	if flag != 1 || st.tag != 42 || *in != [4]int32{7, 0, 0, 8} {
		t.Errorf("flag %d, %+v, received %v", flag, st, *in)
	}
	*in = [4]int32{}
	check(t, "Wait", Wait(address(&request), address(&st)), success)
	if *in != [4]int32{} || st.tag != 42 || request != requestNull {
		t.Errorf("Wait: %v, %+v, request %#x", *in, st, request)
	}
	check(t, "TypeFree", TypeFree(address(&d)), success)
	check(t, "of no request", RequestGetStatus(77, address(&flag), 0), errRequest)
}
