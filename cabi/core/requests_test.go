package core

import "testing"

// A receive whose request was freed has its data in place once it is complete, in several places of memory too.
func TestFreedReceiveIsPlaced(t *testing.T) {
	joined()
	var d, request uintptr
	in, out := &[4]int32{1, 2, 3, 4}, &[2]int32{7, 8}
	check(t, "TypeVector", TypeVector(2, 1, 3, typeInt, address(&d)), success)
	check(t, "TypeCommit", TypeCommit(address(&d)), success)
	check(t, "Irecv", Irecv(address(in), 1, d, 0, 31, commWorld, address(&request)), success)
	check(t, "RequestFree", RequestFree(address(&request)), success)
	if request != requestNull {
		t.Errorf("the request is %#x", request)
	}
	check(t, "Send", Send(address(out), 2, typeInt, 0, 31, commWorld), success)
	released.Wait()
	if *in != [4]int32{7, 2, 3, 8} {
		t.Errorf("received %v", *in)
	}
	check(t, "TypeFree", TypeFree(address(&d)), success)
}

// The request of an Isendrecv is complete with both transfers, and its status is the receive's.
func TestIsendrecv(t *testing.T) {
	joined()
	out, in := &[2]int32{1, 2}, &[3]int32{}
	var request uintptr
	var st status
	check(t, "Isendrecv", Isendrecv(address(out), 2, typeInt, 0, 32, address(in), 3, typeInt, anySource, 32, commWorld, address(&request)), success)
	check(t, "Wait", Wait(address(&request), address(&st)), success)
	if *in != [3]int32{1, 2, 0} || st.source != 0 || st.tag != 32 || st.low != 8 || request != requestNull {
		t.Errorf("received %v, %+v", *in, st)
	}
	check(t, "IsendrecvReplace", IsendrecvReplace(address(in), 3, typeInt, 0, 33, 0, 33, commWorld, address(&request)), success)
	check(t, "Wait", Wait(address(&request), address(&st)), success)
	if *in != [3]int32{1, 2, 0} || st.tag != 33 || st.low != 12 {
		t.Errorf("replaced by %v, %+v", *in, st)
	}
	check(t, "to no rank", Isendrecv(address(out), 2, typeInt, 9, 32, address(in), 3, typeInt, 0, 32, commWorld, address(&request)), success)
	check(t, "Wait", Wait(address(&request), address(&st)), errRank)
	check(t, "of no type", IsendrecvReplace(address(in), 3, datatypeNull, 0, 33, 0, 33, commWorld, address(&request)), errType)
}
