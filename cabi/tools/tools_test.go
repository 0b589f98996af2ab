package tools

import (
	"strconv"
	"testing"
	"unsafe"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// The constants are the standard's.
func TestConstants(t *testing.T) {
	ours := map[string]int64{
		"MPI_T_ERR_NOT_INITIALIZED": int64(notInitialized), "MPI_T_ERR_INVALID_INDEX": int64(invalidIndex), "MPI_T_ERR_INVALID_SESSION": int64(invalidSession),
		"MPI_T_ERR_INVALID_HANDLE": int64(invalidHandle), "MPI_T_ERR_INVALID_NAME": int64(invalidName),
		"MPI_T_PVAR_ALL_HANDLES": int64(pvarAllHandles), "MPI_THREAD_MULTIPLE": int64(threadMultiple),
	}
	for _, c := range api.Constants() {
		if value, ok := ours[c.Name]; ok {
			if want, err := strconv.ParseInt(c.Value, 0, 64); err != nil || value != want {
				t.Errorf("%s is %d, the standard has %s", c.Name, value, c.Value)
			}
			delete(ours, c.Name)
		}
	}
	if len(ours) > 0 {
		t.Errorf("the standard has no %v", ours)
	}
}

// kept are the variables of the tests, which must not lie on a stack: it moves.
var kept []any

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

// The tools interface has no variables, and can be initialized more than once.
func TestTools(t *testing.T) {
	var provided, session uintptr
	n := int32(-1)
	check(t, "CvarGetNum before InitThread", CvarGetNum(address(&n)), notInitialized)
	check(t, "InitThread", InitThread(0, address(&provided)), success)
	check(t, "InitThread again", InitThread(0, address(&provided)), success)
	check(t, "Finalize", Finalize(), success)
	if n != -1 || int32(provided) != threadMultiple {
		t.Errorf("%d variables before, level %d", n, provided)
	}
	for name, number := range map[string]func(uintptr) int32{
		"CvarGetNum": CvarGetNum, "PvarGetNum": PvarGetNum, "CategoryGetNum": CategoryGetNum, "EventGetNum": EventGetNum, "SourceGetNum": SourceGetNum,
	} {
		n = -1
		if check(t, name, number(address(&n)), success); n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
	check(t, "CvarGetIndex", CvarGetIndex(0, address(&n)), invalidName)
	check(t, "CategoryGetCvars", CategoryGetCvars(0, 1, address(&n)), invalidIndex)
	check(t, "PvarSessionCreate", PvarSessionCreate(address(&session)), success)
	check(t, "PvarSessionFree", PvarSessionFree(address(&session)), success)
	check(t, "PvarSessionFree again", PvarSessionFree(address(&session)), invalidSession)
	check(t, "the last Finalize", Finalize(), success)
	check(t, "one more", Finalize(), notInitialized)
	check(t, "PvarSessionCreate after it", PvarSessionCreate(address(&session)), notInitialized)
}

// Calls about what there is not say so: by its number, by its handle, or by its session.
func TestToolsWithoutVariables(t *testing.T) {
	var session, out uintptr
	byNumber := map[string]func() int32{
		"CategoryGetInfo":    func() int32 { return CategoryGetInfo(0, 0, 0, 0, 0, 0, 0, 0) },
		"CvarGetInfo":        func() int32 { return CvarGetInfo(0, 0, 0, 0, 0, 0, 0, 0, 0, 0) },
		"CvarHandleAlloc":    func() int32 { return CvarHandleAlloc(0, 0, address(&out), 0) },
		"PvarGetInfo":        func() int32 { return PvarGetInfo(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) },
		"PvarHandleAlloc":    func() int32 { return PvarHandleAlloc(theSession, 0, 0, address(&out), 0) },
		"SourceGetInfo":      func() int32 { return SourceGetInfo(0, 0, 0, 0, 0, 0, 0, 0, 0) },
		"SourceGetTimestamp": func() int32 { return SourceGetTimestamp(0, address(&out)) },
		"EventGetInfo":       func() int32 { return EventGetInfo(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) },
		"EventHandleAlloc":   func() int32 { return EventHandleAlloc(0, 0, 0, address(&out)) },
	}
	byHandle := map[string]func() int32{
		"CvarHandleFree":         func() int32 { return CvarHandleFree(address(&out)) },
		"CvarRead":               func() int32 { return CvarRead(5, address(&out)) },
		"CvarWrite":              func() int32 { return CvarWrite(5, address(&out)) },
		"EnumGetInfo":            func() int32 { return EnumGetInfo(0, 0, 0, 0) },
		"EnumGetItem":            func() int32 { return EnumGetItem(0, 0, 0, 0, 0) },
		"PvarHandleFree":         func() int32 { return PvarHandleFree(theSession, address(&out)) },
		"PvarRead":               func() int32 { return PvarRead(theSession, 5, address(&out)) },
		"PvarReadreset":          func() int32 { return PvarReadreset(theSession, 5, address(&out)) },
		"PvarWrite":              func() int32 { return PvarWrite(theSession, 5, address(&out)) },
		"PvarStart":              func() int32 { return PvarStart(theSession, 5) },
		"PvarStop":               func() int32 { return PvarStop(theSession, 5) },
		"PvarReset":              func() int32 { return PvarReset(theSession, 5) },
		"EventHandleFree":        func() int32 { return EventHandleFree(5, 0, 0) },
		"EventHandleSetInfo":     func() int32 { return EventHandleSetInfo(5, 0) },
		"EventHandleGetInfo":     func() int32 { return EventHandleGetInfo(5, address(&out)) },
		"EventRegisterCallback":  func() int32 { return EventRegisterCallback(5, 0, 0, 0, 0) },
		"EventCallbackSetInfo":   func() int32 { return EventCallbackSetInfo(5, 0, 0) },
		"EventCallbackGetInfo":   func() int32 { return EventCallbackGetInfo(5, 0, address(&out)) },
		"EventSetDroppedHandler": func() int32 { return EventSetDroppedHandler(5, 0) },
		"EventRead":              func() int32 { return EventRead(5, 0, address(&out)) },
		"EventCopy":              func() int32 { return EventCopy(5, address(&out)) },
		"EventGetTimestamp":      func() int32 { return EventGetTimestamp(5, address(&out)) },
		"EventGetSource":         func() int32 { return EventGetSource(5, address(&out)) },
	}
	all := func(want func(int32) int32) {
		t.Helper()
		for name, call := range byNumber {
			check(t, name, call(), want(invalidIndex))
		}
		for name, call := range byHandle {
			check(t, name, call(), want(invalidHandle))
		}
		check(t, "PvarStart of all", PvarStart(theSession, pvarAllHandles), want(success))
		check(t, "PvarStart of all without a session", PvarStart(0, pvarAllHandles), want(invalidSession))
		check(t, "PvarRead without a session", PvarRead(0, 5, address(&out)), want(invalidSession))
		check(t, "PvarHandleAlloc without a session", PvarHandleAlloc(0, 0, 0, address(&out), 0), want(invalidSession))
	}
	all(func(int32) int32 { return notInitialized })
	check(t, "InitThread", InitThread(0, address(&out)), success)
	check(t, "PvarSessionCreate", PvarSessionCreate(address(&session)), success)
	out = 0
	if all(func(class int32) int32 { return class }); session != theSession || out != 0 {
		t.Errorf("session %#x, stored %#x", session, out)
	}
	check(t, "Finalize", Finalize(), success)
}
