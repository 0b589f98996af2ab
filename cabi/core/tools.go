package core

import "sync/atomic"

// Error codes of the tools interface (MPI-5.0, section 15.3.10). Its functions return them; no error
// handler is called.
const (
	toolsNotInitialized = int32(1003)
	toolsInvalidIndex   = int32(1007)
	toolsInvalidSession = int32(1009)
	toolsInvalidName    = int32(1011)
)

// tools is how often the tools interface was initialized, less how often it was finalized. It has
// no variables, categories, events and sources, as the standard allows (section 15.3).
var tools atomic.Int32

// toolsResult is a result while the tools interface is initialized.
func toolsResult(result int32) int32 {
	if tools.Load() == 0 {
		return toolsNotInitialized
	}
	return result
}

// storeNone stores that there are none of something.
func storeNone(number uintptr) int32 {
	if result := toolsResult(success); result != success {
		return result
	}
	store(number, int32(0))
	return success
}

// TInitThread initializes the tools interface, before or after Init.
func TInitThread(_ int32, provided uintptr) int32 {
	tools.Add(1)
	store(provided, threadMultiple)
	return success
}

// TFinalize is called as often as TInitThread.
func TFinalize() int32 {
	for {
		n := tools.Load()
		if n == 0 {
			return toolsNotInitialized
		}
		if tools.CompareAndSwap(n, n-1) {
			return success
		}
	}
}

// TCvarGetNum returns the number of control variables.
func TCvarGetNum(number uintptr) int32 { return storeNone(number) }

// TPvarGetNum returns the number of performance variables.
func TPvarGetNum(number uintptr) int32 { return storeNone(number) }

// TCategoryGetNum returns the number of categories.
func TCategoryGetNum(number uintptr) int32 { return storeNone(number) }

// TEventGetNum returns the number of events.
func TEventGetNum(number uintptr) int32 { return storeNone(number) }

// TSourceGetNum returns the number of sources of events.
func TSourceGetNum(number uintptr) int32 { return storeNone(number) }

// TCategoryChanged returns how often categories have changed.
func TCategoryChanged(updates uintptr) int32 { return storeNone(updates) }

// TCvarGetIndex fails, as there is no control variable of that name.
func TCvarGetIndex(_, _ uintptr) int32 { return toolsResult(toolsInvalidName) }

// TPvarGetIndex fails, as there is no performance variable of that name.
func TPvarGetIndex(_ uintptr, _ int32, _ uintptr) int32 { return toolsResult(toolsInvalidName) }

// TCategoryGetIndex fails, as there is no category of that name.
func TCategoryGetIndex(_, _ uintptr) int32 { return toolsResult(toolsInvalidName) }

// TEventGetIndex fails, as there is no event of that name.
func TEventGetIndex(_, _ uintptr) int32 { return toolsResult(toolsInvalidName) }

// TCategoryGetNumEvents fails, as there is no category.
func TCategoryGetNumEvents(int32, uintptr) int32 { return toolsResult(toolsInvalidIndex) }

// TCategoryGetCvars fails, as there is no category.
func TCategoryGetCvars(_, _ int32, _ uintptr) int32 { return toolsResult(toolsInvalidIndex) }

// TCategoryGetPvars fails, as there is no category.
func TCategoryGetPvars(_, _ int32, _ uintptr) int32 { return toolsResult(toolsInvalidIndex) }

// TCategoryGetEvents fails, as there is no category.
func TCategoryGetEvents(_, _ int32, _ uintptr) int32 { return toolsResult(toolsInvalidIndex) }

// TCategoryGetCategories fails, as there is no category.
func TCategoryGetCategories(_, _ int32, _ uintptr) int32 { return toolsResult(toolsInvalidIndex) }

// toolsSession is the value of all sessions of performance variables: they have no state.
const toolsSession = firstDynamic

// TPvarSessionCreate makes a session, which performance variables would be read in.
func TPvarSessionCreate(session uintptr) int32 {
	if result := toolsResult(success); result != success {
		return result
	}
	store(session, toolsSession)
	return success
}

// TPvarSessionFree makes it invalid.
func TPvarSessionFree(session uintptr) int32 {
	if load[uintptr](session) != toolsSession {
		return toolsResult(toolsInvalidSession)
	}
	store(session, uintptr(0))
	return toolsResult(success)
}
