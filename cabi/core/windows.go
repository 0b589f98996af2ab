package core

import "github.com/isthmus-grid/isthmus/cabi/core/attributes"

// WinCreateKeyval makes a key for attributes of windows (MPI-5.0, section 7.7.3). There are no windows yet; programs make
// keys and error handlers before those. The callers are the front-end's functions that call the program's.
func WinCreateKeyval(copyFunction, copier, deleteFunction, called, number, extra uintptr) int32 {
	return createKeyval(attributes.OfWins, copyFunction, copier, deleteFunction, called, number, extra)
}

// WinFreeKeyval makes the number of a key invalid.
func WinFreeKeyval(number uintptr) int32 {
	n := load[int32](number)
	k, ok := attributes.OfWins.Key(n)
	var err error
	if !ok {
		err = failure(errKeyval, "%d is no key of windows", n)
	}
	return freeKeyval("MPI_Win_free_keyval", k, err, number)
}

// WinCreateErrhandler makes an error handler of windows.
func WinCreateErrhandler(function, caller, errhandle uintptr) int32 {
	return createErrhandler("MPI_Win_create_errhandler", function, caller, winErrors, errhandle)
}
