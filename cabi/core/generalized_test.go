package core

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
)

// The functions of the generalized requests of these tests, which they call by numbers.
const (
	queryFunction = uintptr(iota + 1)
	freeFunction
	cancelFunction
)

// watched has the functions of generalized requests recorded, and answered by a function that is given what was called, until
// the test ends.
func watched(t *testing.T, answer func(function, extra, argument uintptr) int32) *[]string {
	t.Helper()
	before := CallGrequest
	t.Cleanup(func() { CallGrequest = before })
	calls := new([]string)
	CallGrequest = func(caller, function, extra, argument uintptr) int32 {
		if caller != 10*function {
			t.Errorf("function %d is called by %d", function, caller)
		}
		name := []string{"query", "free", "cancel"}[function-queryFunction]
		if function == cancelFunction {
			name += fmt.Sprint(argument)
		}
		*calls = append(*calls, fmt.Sprint(name, " ", extra))
		return answer(function, extra, argument)
	}
	return calls
}

// described answers queries with a tag of the extra state and eight bytes.
func described(function, extra, argument uintptr) int32 {
	if function == queryFunction && argument != 0 {
		StatusSetSource(argument, 0)
		StatusSetTag(argument, int32(extra))
		StatusSetElements(argument, typeInt, 2)
	}
	return success
}

// grequest starts a generalized request.
func grequest(t *testing.T, extra uintptr) (request uintptr) {
	t.Helper()
	var handle uintptr
	check(t, "GrequestStart", GrequestStart(queryFunction, 10*queryFunction, freeFunction, 10*freeFunction, cancelFunction, 10*cancelFunction, extra, address(&handle)), success)
	return handle
}

// expectCalls compares what was called since the last time.
func expectCalls(t *testing.T, calls *[]string, want ...string) {
	t.Helper()
	if !slices.Equal(*calls, want) {
		t.Errorf("called %q, want %q", *calls, want)
	}
	*calls = nil
}

// A generalized request is complete when the program says so; then its status is asked for, and it is freed.
func TestGrequest(t *testing.T) {
	joined()
	calls := watched(t, described)
	request := new(uintptr)
	*request = grequest(t, 71)
	handle := *request
	st := new(status)
	var flag int32
	check(t, "Test", Test(address(request), address(&flag), address(st)), success)
	if flag != 0 {
		t.Error("it is complete")
	}
	check(t, "RequestGetStatus", RequestGetStatus(handle, address(&flag), address(st)), success)
	expectCalls(t, calls)
	check(t, "Cancel", Cancel(address(request)), success)
	expectCalls(t, calls, "cancel0 71")
	go GrequestComplete(handle)
	for flag == 0 {
		check(t, "RequestGetStatus", RequestGetStatus(handle, address(&flag), address(st)), success)
	}
	if *st != (status{tag: 71, low: 8}) {
		t.Errorf("status %+v", *st)
	}
	expectCalls(t, calls, "query 71")
	check(t, "RequestGetStatus without a status", RequestGetStatus(handle, address(&flag), 0), success)
	check(t, "Cancel", Cancel(address(request)), success)
	expectCalls(t, calls, "query 71", "cancel1 71")
	*st = status{}
	check(t, "Wait", Wait(address(request), address(st)), success)
	if *st != (status{tag: 71, low: 8}) || *request != requestNull {
		t.Errorf("status %+v, request %#x", *st, *request)
	}
	expectCalls(t, calls, "query 71", "free 71")
	check(t, "completing what is freed", GrequestComplete(handle), errRequest)
	check(t, "completing no request", GrequestComplete(requestNull), errRequest)
	check(t, "Irecv", Irecv(0, 0, typeInt, procNull, 0, commWorld, address(request)), success)
	check(t, "completing a receive", GrequestComplete(*request), errRequest)
	check(t, "Wait", Wait(address(request), 0), success)
	expectCalls(t, calls)
}

// Generalized requests are waited for and tested among others, and complete also in the functions that MPI calls.
func TestGrequestAmongOthers(t *testing.T) {
	joined()
	var handles [3]uintptr
	calls := watched(t, func(function, extra, argument uintptr) int32 {
		if function == cancelFunction {
			check(t, "GrequestComplete", GrequestComplete(handles[extra]), success)
		}
		return described(function, extra, argument)
	})
	for i := range handles {
		handles[i] = grequest(t, uintptr(i))
	}
	x, sent := new(int32), new(int32)
	all := &[5]uintptr{handles[0], requestNull, handles[1], handles[2]}
	statuses, indices := &[5]status{}, &[5]int32{}
	var index, flag, n int32
	check(t, "Irecv", Irecv(address(x), 1, typeInt, 0, 72, commWorld, address(&all[4])), success)
	check(t, "Testany", Testany(5, address(all), address(&index), address(&flag), 0), success)
	if flag != 0 {
		t.Errorf("request %d is complete", index)
	}
	check(t, "Send", Send(address(sent), 1, typeInt, 0, 72, commWorld), success)
	check(t, "Waitany", Waitany(5, address(all), address(&index), 0), success)
	if index != 4 {
		t.Errorf("request %d is complete", index)
	}
	go GrequestComplete(handles[1])
	check(t, "Waitany", Waitany(5, address(all), address(&index), address(&statuses[0])), success)
	if index != 2 || statuses[0].tag != 1 || all[2] != requestNull {
		t.Errorf("request %d is complete with %+v", index, statuses[0])
	}
	expectCalls(t, calls, "query 1", "free 1")
	check(t, "GrequestComplete", GrequestComplete(handles[0]), success)
	check(t, "RequestGetStatusAny", RequestGetStatusAny(5, address(all), address(&index), address(&flag), address(&statuses[0])), success)
	if flag != 1 || index != 0 || statuses[0].tag != 0 || statuses[0].low != 8 {
		t.Errorf("request %d is complete (%d) with %+v", index, flag, statuses[0])
	}
	check(t, "RequestGetStatusSome", RequestGetStatusSome(5, address(all), address(&n), address(indices), address(statuses)), success)
	check(t, "Testsome", Testsome(5, address(all), address(&n), address(indices), address(statuses)), success)
	if n != 1 || indices[0] != 0 || statuses[0].low != 8 {
		t.Errorf("%d are complete: %v with %+v", n, *indices, statuses[0])
	}
	expectCalls(t, calls, "query 0", "query 0", "query 0", "free 0")
	check(t, "Testall", Testall(5, address(all), address(&flag), 0), success)
	if flag != 0 {
		t.Error("all are complete")
	}
	check(t, "Cancel", Cancel(address(&all[3])), success)
	check(t, "Waitall", Waitall(5, address(all), address(statuses)), success)
	if *all != [5]uintptr{requestNull, requestNull, requestNull, requestNull, requestNull} || statuses[3].tag != 2 || statuses[4].source != anySource {
		t.Errorf("requests %#x, statuses %+v", *all, *statuses)
	}
	expectCalls(t, calls, "cancel0 2", "query 2", "free 2")
}

// A generalized request is freed when the program has freed it and it is complete, in this order or the other.
func TestGrequestFree(t *testing.T) {
	joined()
	calls := watched(t, described)
	request := new(uintptr)
	*request = grequest(t, 1)
	handle := *request
	check(t, "RequestFree", RequestFree(address(request)), success)
	expectCalls(t, calls)
	if other := grequest(t, 2); other == handle {
		t.Error("the handle of a request that is not complete is given again")
	} else {
		check(t, "GrequestComplete", GrequestComplete(other), success)
		*request = other
	}
	check(t, "GrequestComplete", GrequestComplete(handle), success)
	expectCalls(t, calls, "free 1")
	check(t, "GrequestComplete again", GrequestComplete(handle), errRequest)
	check(t, "GrequestComplete again", GrequestComplete(*request), errRequest)
	check(t, "RequestFree", RequestFree(address(request)), success)
	expectCalls(t, calls, "free 2")
	if *request != requestNull {
		t.Errorf("the request is %#x", *request)
	}
}

// The errors of a request's functions are those of the calls that call them.
func TestGrequestErrors(t *testing.T) {
	joined()
	failing := map[uintptr]int32{}
	watched(t, func(function, _, _ uintptr) int32 { return failing[function] })
	var class, code, flag int32
	AddErrorClass(address(&class))
	AddErrorCode(class, address(&code))
	request := new(uintptr)
	*request = grequest(t, 1)
	failing[queryFunction], failing[freeFunction], failing[cancelFunction] = errArg, code, errOther
	check(t, "Cancel", Cancel(address(request)), errOther)
	check(t, "GrequestComplete", GrequestComplete(*request), success)
	check(t, "RequestGetStatus", RequestGetStatus(*request, address(&flag), 0), errArg)
	check(t, "Wait", Wait(address(request), 0), code)
	if *request != requestNull || flag != 1 {
		t.Errorf("the request is %#x, complete: %d", *request, flag)
	}
	*request = grequest(t, 1)
	check(t, "GrequestComplete", GrequestComplete(*request), success)
	check(t, "RequestFree", RequestFree(address(request)), code)

	all, statuses := &[2]uintptr{grequest(t, 1), requestNull}, &[2]status{}
	check(t, "Irecv", Irecv(0, 0, typeInt, procNull, 0, commWorld, address(&all[1])), success)
	check(t, "GrequestComplete", GrequestComplete(all[0]), success)
	check(t, "Waitall", Waitall(2, address(all), address(statuses)), errInStatus)
	if statuses[0].err != code || statuses[1].err != success {
		t.Errorf("statuses %+v", *statuses)
	}
}

// The functions of a request may be left out.
func TestGrequestWithoutFunctions(t *testing.T) {
	joined()
	request, st := new(uintptr), new(status)
	check(t, "GrequestStart", GrequestStart(0, 1, 0, 1, 0, 1, 0, address(request)), success)
	check(t, "Cancel", Cancel(address(request)), success)
	check(t, "GrequestComplete", GrequestComplete(*request), success)
	check(t, "Wait", Wait(address(request), address(st)), success)
	if st.source != anySource || st.tag != anyTag {
		t.Errorf("status %+v", *st)
	}
}

// The functions run on a thread of the program's, also where calls are served.
func TestGrequestThread(t *testing.T) {
	joined()
	defer func(f func() bool) { callbacks.InProgram = f }(callbacks.InProgram)
	callbacks.InProgram = func() bool { return false }
	var threads []bool
	watched(t, func(uintptr, uintptr, uintptr) int32 {
		threads = append(threads, strings.Contains(string(debug.Stack()), "callbacks.Serve("))
		return success
	})
	request := new(uintptr)
	*request = grequest(t, 1)
	check(t, "GrequestComplete", GrequestComplete(*request), success)
	check(t, "Wait", callbacks.Serve(func() int32 { return Wait(address(request), 0) }), success)
	if !slices.Equal(threads, []bool{true, true}) {
		t.Errorf("on the thread that called: %v", threads)
	}
}
