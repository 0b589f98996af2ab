package mpilib

import (
	"context"
	"sync"
)

// GrequestStart returns a Request for work of the caller's, so that it can be waited for among others, and the function that
// completes it with what Wait returns (MPI_Grequest_start, MPI_Grequest_complete; MPI-5.0, section 13.2). Any goroutine calls
// that, once. The name is that of the work in errors. A Wait that is given up, and Finalize, fail the Request, but do not end the
// work.
func (w *World) GrequestStart(name string) (r *Request, complete func(Status, error)) {
	r, finish := grequest(w.Comm(), name)
	stop := context.AfterFunc(w.calls.Life, func() { finish(emptyStatus, ErrFinalized) })
	return r, func(st Status, err error) {
		stop()
		finish(st, err)
	}
}

// grequest is GrequestStart for work on c.
func grequest(c *Comm, name string) (*Request, func(Status, error)) {
	r := newRequest(transfer{comm: c, call: name})
	var once sync.Once
	complete := func(st Status, err error) {
		once.Do(func() {
			r.given = &st
			r.core.Finish(err)
		})
	}
	r.ownExtra()
	c.world.engine.BeginTask(&r.core, func(why error) { go complete(emptyStatus, why) }) // the engine's lock is held
	return r, complete
}
