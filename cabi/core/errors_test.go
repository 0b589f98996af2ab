package core

import (
	"strings"
	"testing"
)

// Classes and codes that the program adds lie above the standard's, and have the texts that it sets.
func TestAddedErrors(t *testing.T) {
	joined()
	var class, code, of, length int32
	buf := make([]byte, maxErrorString)
	check(t, "AddErrorClass", AddErrorClass(address(&class)), success)
	check(t, "AddErrorCode", AddErrorCode(class, address(&code)), success)
	check(t, "AddErrorString", AddErrorString(code, cText("no luck")), success)
	check(t, "ErrorClass", ErrorClass(code, address(&of)), success)
	check(t, "ErrorString", ErrorString(code, address(&buf[0]), address(&length)), success)
	if of != class || class <= 16383 || code == class || goText(buf) != "no luck" || length != 7 {
		t.Errorf("code %d of class %d, which is %d: %q of %d", code, class, of, goText(buf), length)
	}
	check(t, "ErrorString of a class without text", ErrorString(class, address(&buf[0]), address(&length)), success)
	if goText(buf) != "" || length != 0 {
		t.Errorf("its text is %q of %d", goText(buf), length)
	}
	ErrorClass(errTruncate, address(&of))
	ErrorString(errTruncate, address(&buf[0]), address(&length))
	if of != errTruncate || goText(buf) != texts[errTruncate] {
		t.Errorf("the standard's class is %d, its text %q", of, goText(buf))
	}
	check(t, "a code of no class", AddErrorCode(class+99, address(&code)), errArg)
	check(t, "the text of the standard's class", AddErrorString(errTag, cText("x")), errArg)
	check(t, "long text", AddErrorString(class, cText(strings.Repeat("x", maxErrorString))), errArg)
	check(t, "the class of no code", ErrorClass(class+99, address(&of)), errArg)
	check(t, "the text of no code", ErrorString(class+99, address(&buf[0]), address(&length)), errArg)
	check(t, "an error that is returned", CommCallErrhandler(commWorld, class), success)
	check(t, "an unknown error", CommCallErrhandler(commWorld, class+99), errArg)
}

// An error handler that is called with an error ends the program if it is MPI_ERRORS_ARE_FATAL.
func TestCalledHandler(t *testing.T) {
	joined()
	defer func(f func(int)) { Exit = f }(Exit)
	ended := false
	Exit = func(int) { ended = true }
	CommCallErrhandler(commSelf, errTag)
	if !ended {
		t.Error("the program did not end")
	}
}
