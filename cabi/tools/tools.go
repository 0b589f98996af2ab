// Package tools carries out MPI's tools interface for C programs, as package core does the rest: CvarGetNum is
// MPI_T_cvar_get_num. There are no variables, categories, events and sources, as the standard allows (MPI-5.0, section 15.3).
//
// It knows nothing of MPI's other objects, nor whether MPI runs. Its state is how often it was initialized. All functions are safe
// for concurrent use.
package tools

import (
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/cabi/memory"
)

// Error codes (MPI-5.0, section 15.3.10). The functions return them; no error handler is called.
const (
	success        = int32(0)
	notInitialized = int32(1003)
	invalidIndex   = int32(1007)
	invalidSession = int32(1009)
	invalidHandle  = int32(1010)
	invalidName    = int32(1011)
)

// threadMultiple is MPI_THREAD_MULTIPLE.
const threadMultiple = int32(4096)

// initialized is how often the tools interface was initialized, less how often it was finalized.
var initialized atomic.Int32

// checked returns a result while the tools interface is initialized.
func checked(result int32) int32 {
	if initialized.Load() == 0 {
		return notInitialized
	}
	return result
}

// storeNone stores that there are none of something.
func storeNone(number uintptr) int32 {
	if result := checked(success); result != success {
		return result
	}
	*memory.At[int32](number) = 0
	return success
}

// InitThread initializes the tools interface, before or after Init.
func InitThread(_ int32, provided uintptr) int32 {
	initialized.Add(1)
	*memory.At[int32](provided) = threadMultiple
	return success
}

// Finalize is called as often as InitThread.
func Finalize() int32 {
	for {
		n := initialized.Load()
		if n == 0 {
			return notInitialized
		}
		if initialized.CompareAndSwap(n, n-1) {
			return success
		}
	}
}

// CvarGetNum returns the number of control variables.
func CvarGetNum(number uintptr) int32 { return storeNone(number) }

// PvarGetNum returns the number of performance variables.
func PvarGetNum(number uintptr) int32 { return storeNone(number) }

// CategoryGetNum returns the number of categories.
func CategoryGetNum(number uintptr) int32 { return storeNone(number) }

// EventGetNum returns the number of events.
func EventGetNum(number uintptr) int32 { return storeNone(number) }

// SourceGetNum returns the number of sources of events.
func SourceGetNum(number uintptr) int32 { return storeNone(number) }

// CategoryChanged returns how often categories have changed.
func CategoryChanged(updates uintptr) int32 { return storeNone(updates) }

// CvarGetIndex fails, as there is no control variable of that name.
func CvarGetIndex(_, _ uintptr) int32 { return checked(invalidName) }

// PvarGetIndex fails, as there is no performance variable of that name.
func PvarGetIndex(_ uintptr, _ int32, _ uintptr) int32 { return checked(invalidName) }

// CategoryGetIndex fails, as there is no category of that name.
func CategoryGetIndex(_, _ uintptr) int32 { return checked(invalidName) }

// EventGetIndex fails, as there is no event of that name.
func EventGetIndex(_, _ uintptr) int32 { return checked(invalidName) }

// CategoryGetNumEvents fails, as there is no category.
func CategoryGetNumEvents(int32, uintptr) int32 { return checked(invalidIndex) }

// CategoryGetCvars fails, as there is no category.
func CategoryGetCvars(_, _ int32, _ uintptr) int32 { return checked(invalidIndex) }

// CategoryGetPvars fails, as there is no category.
func CategoryGetPvars(_, _ int32, _ uintptr) int32 { return checked(invalidIndex) }

// CategoryGetEvents fails, as there is no category.
func CategoryGetEvents(_, _ int32, _ uintptr) int32 { return checked(invalidIndex) }

// CategoryGetCategories fails, as there is no category.
func CategoryGetCategories(_, _ int32, _ uintptr) int32 { return checked(invalidIndex) }

// theSession is the value of all sessions of performance variables: they have no state.
const theSession = uintptr(0x1000)

// pvarAllHandles is MPI_T_PVAR_ALL_HANDLES.
const pvarAllHandles = uintptr(1)

// PvarSessionCreate makes a session, which performance variables would be read in.
func PvarSessionCreate(session uintptr) int32 {
	if result := checked(success); result != success {
		return result
	}
	*memory.At[uintptr](session) = theSession
	return success
}

// PvarSessionFree makes it invalid.
func PvarSessionFree(session uintptr) int32 {
	if *memory.At[uintptr](session) != theSession {
		return checked(invalidSession)
	}
	*memory.At[uintptr](session) = 0
	return checked(success)
}

// noHandle is the result of a call with a handle of something that there is none of.
func noHandle() int32 { return checked(invalidHandle) }

// onSession is a call with a session of performance variables.
func onSession(session uintptr, result int32) int32 {
	if session != theSession {
		result = invalidSession
	}
	return checked(result)
}

// onPvar is a call with a handle of a performance variable, which may stand for all that a session has.
func onPvar(session, handle uintptr) int32 {
	if handle == pvarAllHandles {
		return onSession(session, success)
	}
	return onSession(session, invalidHandle)
}

// CategoryGetInfo fails, as there is no category.
func CategoryGetInfo(_ int32, _, _, _, _, _, _, _ uintptr) int32 {
	return checked(invalidIndex)
}

// CvarGetInfo fails, as there is no control variable.
func CvarGetInfo(_ int32, _, _, _, _, _, _, _, _, _ uintptr) int32 {
	return checked(invalidIndex)
}

// CvarHandleAlloc fails, as there is no control variable.
func CvarHandleAlloc(_ int32, _, _, _ uintptr) int32 { return checked(invalidIndex) }

// CvarHandleFree fails, as there is no handle.
func CvarHandleFree(uintptr) int32 { return noHandle() }

// CvarRead fails, as there is no handle.
func CvarRead(_, _ uintptr) int32 { return noHandle() }

// CvarWrite fails, as there is no handle.
func CvarWrite(_, _ uintptr) int32 { return noHandle() }

// EnumGetInfo fails, as no variable has values with names.
func EnumGetInfo(_, _, _, _ uintptr) int32 { return noHandle() }

// EnumGetItem fails, as no variable has values with names.
func EnumGetItem(_ uintptr, _ int32, _, _, _ uintptr) int32 { return noHandle() }

// PvarGetInfo fails, as there is no performance variable.
func PvarGetInfo(_ int32, _, _, _, _, _, _, _, _, _, _, _, _ uintptr) int32 {
	return checked(invalidIndex)
}

// PvarHandleAlloc fails, as there is no performance variable.
func PvarHandleAlloc(session uintptr, _ int32, _, _, _ uintptr) int32 {
	return onSession(session, invalidIndex)
}

// PvarHandleFree fails, as there is no handle.
func PvarHandleFree(session, _ uintptr) int32 { return onSession(session, invalidHandle) }

// PvarRead fails, as there is no handle.
func PvarRead(session, _, _ uintptr) int32 { return onSession(session, invalidHandle) }

// PvarReadreset fails, as there is no handle.
func PvarReadreset(session, _, _ uintptr) int32 { return onSession(session, invalidHandle) }

// PvarWrite fails, as there is no handle.
func PvarWrite(session, _, _ uintptr) int32 { return onSession(session, invalidHandle) }

// PvarStart starts all variables of a session, of which there are none; it fails for a single one.
func PvarStart(session, handle uintptr) int32 { return onPvar(session, handle) }

// PvarStop stops them.
func PvarStop(session, handle uintptr) int32 { return onPvar(session, handle) }

// PvarReset resets them.
func PvarReset(session, handle uintptr) int32 { return onPvar(session, handle) }

// SourceGetInfo fails, as there is no source of events.
func SourceGetInfo(_ int32, _, _, _, _, _, _, _, _ uintptr) int32 {
	return checked(invalidIndex)
}

// SourceGetTimestamp fails, as there is no source of events.
func SourceGetTimestamp(int32, uintptr) int32 { return checked(invalidIndex) }

// EventGetInfo fails, as there is no type of events.
func EventGetInfo(_ int32, _, _, _, _, _, _, _, _, _, _, _ uintptr) int32 {
	return checked(invalidIndex)
}

// EventHandleAlloc fails, as there is no type of events.
func EventHandleAlloc(_ int32, _, _, _ uintptr) int32 { return checked(invalidIndex) }

// EventHandleFree fails, as there is no registration.
func EventHandleFree(_, _, _ uintptr) int32 { return noHandle() }

// EventHandleSetInfo fails, as there is no registration.
func EventHandleSetInfo(_, _ uintptr) int32 { return noHandle() }

// EventHandleGetInfo fails, as there is no registration.
func EventHandleGetInfo(_, _ uintptr) int32 { return noHandle() }

// EventRegisterCallback fails, as there is no registration.
func EventRegisterCallback(_ uintptr, _ int32, _, _, _ uintptr) int32 { return noHandle() }

// EventCallbackSetInfo fails, as there is no registration.
func EventCallbackSetInfo(_ uintptr, _ int32, _ uintptr) int32 { return noHandle() }

// EventCallbackGetInfo fails, as there is no registration.
func EventCallbackGetInfo(_ uintptr, _ int32, _ uintptr) int32 { return noHandle() }

// EventSetDroppedHandler fails, as there is no registration.
func EventSetDroppedHandler(_, _ uintptr) int32 { return noHandle() }

// EventRead fails, as there is no event.
func EventRead(_ uintptr, _ int32, _ uintptr) int32 { return noHandle() }

// EventCopy fails, as there is no event.
func EventCopy(_, _ uintptr) int32 { return noHandle() }

// EventGetTimestamp fails, as there is no event.
func EventGetTimestamp(_, _ uintptr) int32 { return noHandle() }

// EventGetSource fails, as there is no event.
func EventGetSource(_, _ uintptr) int32 { return noHandle() }
