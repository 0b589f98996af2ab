package core

import (
	"sync"

	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// CallGrequest calls a function of a generalized request by the front-end's function caller, with its extra state and, for a
// query, the address of a status, or 0, or, for a cancellation, whether the request is complete. It returns the function's error
// code. The library around this package sets it.
var CallGrequest = func(caller, function, extra, argument uintptr) int32 {
	panic("cabi/core: no C to call")
}

// generalized is a request whose work the program does (MPI-5.0, section 13.2): the program says when it is complete, and
// gives the functions that MPI calls.
type generalized struct {
	query, free, cancel callback
	extra               uintptr
	finish              func(mpilib.Status, error) // completes the request

	mu                     sync.Mutex
	isComplete, isReleased bool // by GrequestComplete, and by RequestFree: whichever comes last frees it
}

// callback is a function of a generalized request's.
type callback struct{ function, caller uintptr }

// call calls a function of g's, which a program may leave out.
func (g *generalized) call(f callback, name string, argument uintptr) error {
	if f.function == 0 {
		return nil
	}
	var code int32
	callbacks.Run(func() { code = CallGrequest(f.caller, f.function, g.extra, argument) })
	if code == success {
		return nil
	}
	return failure(code, "the %s function of a generalized request returned error %d", name, code)
}

// describe has the program set the status of g, which is complete; the address may be 0.
func (g *generalized) describe(status uintptr) error {
	storeStatus(status, empty)
	return g.call(g.query, "query", status)
}

// end is describe, after which g is freed. The error is that of the last function (MPI-5.0, section 13.2).
func (g *generalized) end(status uintptr) error {
	g.describe(status)
	return g.call(g.free, "free", 0)
}

// release notes that the program has freed g, or, if it was completed before, frees it now; over tells which.
func (g *generalized) release() (over bool, err error) {
	g.mu.Lock()
	g.isReleased, over = true, g.isComplete
	g.mu.Unlock()
	if over {
		err = g.call(g.free, "free", 0)
	}
	return over, err
}

// complete is release for the program's word that g is complete.
func (g *generalized) complete() (over bool, err error) {
	g.mu.Lock()
	again := g.isComplete
	g.isComplete, over = true, g.isReleased
	g.mu.Unlock()
	if again {
		return false, failure(errRequest, "the generalized request was completed before")
	}
	g.finish(empty, nil)
	if over {
		err = g.call(g.free, "free", 0)
	}
	return over, err
}

// stop has the program cancel g.
func (g *generalized) stop() error {
	g.mu.Lock()
	complete := g.isComplete
	g.mu.Unlock()
	return g.call(g.cancel, "cancel", uintptr(logicalOf(complete)))
}

// GrequestStart makes a generalized request. Each function is followed by the front-end's that calls it.
func GrequestStart(query, queryCaller, free, freeCaller, cancel, cancelCaller, extra, out uintptr) int32 {
	return onComm("MPI_Grequest_start", commWorld, func(*communicator) error {
		once, finish := world.GrequestStart("Grequest")
		store(out, requests.Add(&request{once: once, generalized: &generalized{
			query: callback{query, queryCaller}, free: callback{free, freeCaller}, cancel: callback{cancel, cancelCaller},
			extra: extra, finish: finish,
		}}))
		return nil
	})
}

// GrequestComplete completes one; any thread may do so, in functions that MPI calls too. The program may have freed it.
func GrequestComplete(handle uintptr) int32 {
	q, err := requestOf(handle)
	if err == nil && (q == nil || q.generalized == nil) {
		err = failure(errRequest, "%#x is no generalized request", handle)
	}
	if err == nil {
		var over bool
		if over, err = q.generalized.complete(); over {
			requests.Remove(handle)
		}
	}
	return onWorld("MPI_Grequest_complete", err)
}
