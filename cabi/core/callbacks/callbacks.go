// Package callbacks has functions of the program's called on threads of the program's, and calls of MPI take them there
// meanwhile: such a function may rely on what its thread has, as signals and variables of its own. It does not know what it
// calls. Its state is the process's: which callbacks wait, and how many calls make some.
package callbacks

import "sync/atomic"

// InProgram reports whether the caller runs on a thread of the program's. The library around package core sets it.
var InProgram = func() bool { return true }

// waiting are callbacks that wait for a thread of the program's. Collective calls that run in the background make them.
var waiting = make(chan func())

// active is how many calls that make callbacks were started and are not completed.
var active atomic.Int32

// Run runs f, which calls a function of the program's, on a thread of the program's.
func Run(f func()) {
	if InProgram() {
		f()
		return
	}
	over := make(chan struct{})
	waiting <- func() {
		defer close(over)
		f()
	}
	<-over
}

// Started notes that a call that makes callbacks was started.
func Started() { active.Add(1) }

// Completed notes that such a call was completed.
func Completed() { active.Add(-1) }

// Expected reports whether a call of the program's has to be made by Serve: one that waits, for whatever it is, may wait
// for a process that needs the result of a callback first, and one that tests may be all that a program does.
func Expected() bool { return active.Load() > 0 }

// Serve makes a call of the program's, and meanwhile takes callbacks on the calling thread, which is the program's.
func Serve(call func() int32) int32 {
	serveWaiting()
	over := make(chan int32, 1)
	go func() { over <- call() }()
	for {
		select {
		case result := <-over:
			return result
		case f := <-waiting:
			f()
		}
	}
}

// serveWaiting takes the callbacks that wait now.
func serveWaiting() {
	for {
		select {
		case f := <-waiting:
			f()
		default:
			return
		}
	}
}
