package core

import "testing"

// The tools interface has no variables, and can be initialized more than once.
func TestTools(t *testing.T) {
	var provided, session uintptr
	n := int32(-1)
	check(t, "TCvarGetNum before TInitThread", TCvarGetNum(address(&n)), toolsNotInitialized)
	check(t, "TInitThread", TInitThread(0, address(&provided)), success)
	check(t, "TInitThread again", TInitThread(0, address(&provided)), success)
	check(t, "TFinalize", TFinalize(), success)
	if n != -1 || int32(provided) != threadMultiple {
		t.Errorf("%d variables before, level %d", n, provided)
	}
	for name, number := range map[string]func(uintptr) int32{
		"TCvarGetNum": TCvarGetNum, "TPvarGetNum": TPvarGetNum, "TCategoryGetNum": TCategoryGetNum, "TEventGetNum": TEventGetNum, "TSourceGetNum": TSourceGetNum,
	} {
		n = -1
		if check(t, name, number(address(&n)), success); n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
	check(t, "TCvarGetIndex", TCvarGetIndex(cText("x"), address(&n)), toolsInvalidName)
	check(t, "TCategoryGetCvars", TCategoryGetCvars(0, 1, address(&n)), toolsInvalidIndex)
	check(t, "TPvarSessionCreate", TPvarSessionCreate(address(&session)), success)
	check(t, "TPvarSessionFree", TPvarSessionFree(address(&session)), success)
	check(t, "TPvarSessionFree again", TPvarSessionFree(address(&session)), toolsInvalidSession)
	check(t, "the last TFinalize", TFinalize(), success)
	check(t, "one more", TFinalize(), toolsNotInitialized)
	check(t, "TPvarSessionCreate after it", TPvarSessionCreate(address(&session)), toolsNotInitialized)
}
