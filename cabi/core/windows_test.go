package core

import (
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/attributes"
)

// Keys and error handlers of windows are none of other objects.
func TestWindows(t *testing.T) {
	joined()
	var number int32
	var handler uintptr
	check(t, "WinCreateKeyval", WinCreateKeyval(attributes.CopyValue, 0, 0, 0, address(&number), 0), success)
	check(t, "CommSetAttr", CommSetAttr(commWorld, number, 5), errKeyval)
	old := number
	if check(t, "WinFreeKeyval", WinFreeKeyval(address(&number)), success); number != attributes.Invalid {
		t.Errorf("the key is %d", number)
	}
	check(t, "WinFreeKeyval again", WinFreeKeyval(address(&old)), errKeyval)
	check(t, "WinCreateErrhandler", WinCreateErrhandler(7, 8, address(&handler)), success)
	check(t, "CommSetErrhandler", CommSetErrhandler(commWorld, handler), errHandler)
	check(t, "ErrhandlerFree", ErrhandlerFree(address(&handler)), success)
	check(t, "WinCreateErrhandler at address 0", WinCreateErrhandler(0, 8, address(&handler)), errArg)
}
