package core

import "sync/atomic"

// InProgram reports whether the caller runs on a thread of the program's. The library around this package sets it.
var InProgram = func() bool { return true }

// callbacks are calls of the program's functions that wait for a thread of the program's: such a function may rely on what
// its thread has, as signals and variables of its own. Collective calls that run in the background make them.
var callbacks = make(chan func())

// reducing is how many calls that make callbacks were started and are not completed.
var reducing atomic.Int32

// onProgram runs f, which calls a function of the program's, on a thread of the program's.
func onProgram(f func()) {
	if InProgram() {
		f()
		return
	}
	over := make(chan struct{})
	callbacks <- func() {
		defer close(over)
		f()
	}
	<-over
}

// HasCallbacks reports whether a call of the program's has to be made by Serve: one that waits, for whatever it is, may wait
// for a process that needs the result of a callback first, and one that tests may be all that a program does.
func HasCallbacks() bool { return reducing.Load() > 0 }

// Serve makes a call of the program's, and meanwhile takes callbacks on the calling thread, which is the program's.
func Serve(call func() int32) int32 {
	serveWaiting()
	over := make(chan int32, 1)
	go func() { over <- call() }()
	for {
		select {
		case result := <-over:
			return result
		case f := <-callbacks:
			f()
		}
	}
}

// serveWaiting takes the callbacks that wait now.
func serveWaiting() {
	for {
		select {
		case f := <-callbacks:
			f()
		default:
			return
		}
	}
}
