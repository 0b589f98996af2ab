package core

import (
	"sync"

	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
)

// CallErrhandler calls an error handler of the program's by the front-end's function caller: with a handle and an error
// code. The library around this package sets it.
var CallErrhandler = func(caller, function, handle uintptr, code int32) {
	panic("cabi/core: no C to call")
}

// errhandler is what the handle of an error handler names. One of the program's lives as long as it has a handle or an
// object uses it.
type errhandler struct {
	function, caller uintptr // of the program's; otherwise 0
	of               string  // which objects it is for, one of those below; of the program's

	mu     sync.Mutex
	handle uintptr
	given  int // how often the program got the handle and did not free it; of the program's
}

var errhandlers handles.Table[*errhandler]

// What a function of the program's is an error handler of: its first argument is the handle of such an object.
const (
	anyErrors     = ""
	commErrors    = "communicators"
	sessionErrors = "sessions"
	winErrors     = "windows"
)

// The standard's handlers.
var (
	fatalErrors    = &errhandler{handle: errorsAreFatal}
	abortingErrors = &errhandler{handle: errorsAbort}
	returnedErrors = &errhandler{handle: errorsReturn}
)

func init() {
	for _, h := range []*errhandler{fatalErrors, abortingErrors, returnedErrors} {
		errhandlers.Put(h.handle, h)
	}
}

// errhandlerOf returns the error handler of a handle, which is for some objects.
func errhandlerOf(handle uintptr, of string) (*errhandler, error) {
	h, ok := errhandlers.Get(handle)
	if !ok {
		return nil, failure(errHandler, "%#x is no error handler", handle)
	}
	if h.function != 0 && of != anyErrors && h.of != of {
		return nil, failure(errHandler, "the error handler %#x is for %s, not for %s", handle, h.of, of)
	}
	return h, nil
}

// result passes an error to h, for the object of a handle.
func (h *errhandler) result(call string, object uintptr, err error) int32 {
	switch {
	case h.function != 0:
		callbacks.Run(func() { CallErrhandler(h.caller, h.function, object, classOf(err)) })
		return classOf(err)
	case h == returnedErrors:
		return classOf(err)
	}
	return fatal(call, err)
}

// give returns the handle of h, which the program frees.
func (h *errhandler) give() uintptr {
	if h.function == 0 {
		return h.handle
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.given == 0 {
		h.handle = errhandlers.Add(h)
	}
	h.given++
	return h.handle
}

// take takes a handle back.
func (h *errhandler) take() {
	if h.function == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.given--; h.given == 0 {
		errhandlers.Remove(h.handle)
	}
}

// createErrhandler makes a function of the program an error handler (MPI-5.0, section 9.3). caller is the
// front-end's function that calls it.
func createErrhandler(call string, function, caller uintptr, of string, errhandle uintptr) int32 {
	if function == 0 {
		return onWorld(call, failure(errArg, "the function is at address 0"))
	}
	store(errhandle, (&errhandler{function: function, caller: caller, of: of}).give())
	return success
}

// CommCreateErrhandler makes an error handler of communicators.
func CommCreateErrhandler(function, caller, errhandle uintptr) int32 {
	return createErrhandler("MPI_Comm_create_errhandler", function, caller, commErrors, errhandle)
}

// CommSetErrhandler sets what happens with errors of a communicator.
func CommSetErrhandler(comm, errhandle uintptr) int32 {
	return onComm("MPI_Comm_set_errhandler", comm, func(c *communicator) error {
		h, err := errhandlerOf(errhandle, commErrors)
		if err == nil {
			c.handler.Store(h)
		}
		return err
	})
}

// CommGetErrhandler returns it.
func CommGetErrhandler(comm, errhandle uintptr) int32 {
	return onComm("MPI_Comm_get_errhandler", comm, func(c *communicator) error {
		store(errhandle, c.handler.Load().give())
		return nil
	})
}

// ErrhandlerFree makes a handle invalid; the standard's handlers stay, as does one that an object uses.
func ErrhandlerFree(errhandle uintptr) int32 {
	h, err := errhandlerOf(load[uintptr](errhandle), anyErrors)
	if err != nil {
		return onWorld("MPI_Errhandler_free", err)
	}
	h.take()
	store(errhandle, errhandlerNull)
	return success
}
