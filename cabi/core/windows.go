package core

// winKeyvals are the keys of windows. There are no windows yet; programs make keys and error handlers before those.
var winKeyvals = keys{ofWins}

// WinCreateKeyval makes a key for attributes of windows (MPI-5.0, section 7.7.3). The callers are the front-end's
// functions that call the program's.
func WinCreateKeyval(copyFunction, copier, deleteFunction, called, number, extra uintptr) int32 {
	return createKeyval(&winKeyvals, &keyval{copy: copyFunction, copier: copier, remove: deleteFunction, called: called, extra: extra}, number)
}

// WinFreeKeyval makes the number of a key invalid.
func WinFreeKeyval(number uintptr) int32 {
	n := load[int32](number)
	if _, ok := winKeyvals.get(n); !ok {
		return onWorld("MPI_Win_free_keyval", failure(errKeyval, "%d is no key of windows", n))
	}
	keyvals.remove(uintptr(n))
	store(number, keyvalInvalid)
	return success
}

// WinCreateErrhandler makes an error handler of windows.
func WinCreateErrhandler(function, caller, errhandle uintptr) int32 {
	return createErrhandler("MPI_Win_create_errhandler", function, caller, winErrors, errhandle)
}
