// Package core carries out MPI's functions for C programs: CommRank is MPI_Comm_rank, and so on
// for each exported function with such a name. Others are what the library around it sets.
//
// Numbers are int32 or int64; handles, and addresses of the program's memory, are uintptr, never
// pointers: a sentinel such as MPI_IN_PLACE is no address, and the memory is C's, which the
// collector must not look at. Handles, constants and statuses are those of the standard's C ABI
// (MPI-5.0, chapter 20). Functions return an error class, MPI_SUCCESS is 0.
//
// It knows neither C nor other ABIs, and is tested without a C compiler. Its state is that of the
// process: MPI has one world, and its objects are named by handles. All functions are safe for
// concurrent use.
package core

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Exit ends the process with a status. The library around this package sets it to flush the
// program's output first.
var Exit = os.Exit

// Joined notes that the process is a rank of a world, and Left that it left. The library around this
// package sets them, to say what a program lacks that ends in between.
var (
	Joined = func(int) {}
	Left   = func() {}
)

// Thread returns a number of the calling thread, which differs from that of any other. The library
// around this package sets it.
var Thread = func() uintptr { return 0 }

// CallUser calls a reduction of the program's by the front-end's function caller: on n elements of
// datatype at in and inout. The library around this package sets it.
var CallUser = func(caller, function, in, inout uintptr, n int64, datatype uintptr) {
	panic("cabi/core: no C to call")
}

// background bounds nothing: a call of MPI ends when it is complete.
var background = context.Background()

// The life of MPI in this process.
const (
	before int32 = iota
	running
	finalized
)

// life is one of the above; the others are set by Init.
var (
	life       atomic.Int32
	world      *mpilib.World
	mainThread uintptr
)

// Init joins the world (MPI-5.0, section 11.2.1). The program's arguments stay as they are.
func Init(_, _ uintptr) int32 {
	if !life.CompareAndSwap(before, running) {
		return fatal("MPI_Init", failure(errOther, "MPI was initialized before"))
	}
	w, err := mpilib.Init(background)
	if err != nil {
		return fatal("MPI_Init", err)
	}
	world, mainThread = w, Thread()
	for handle, c := range map[uintptr]*mpilib.Comm{commWorld: w.Comm(), commSelf: w.Self()} {
		made, name := newCommunicator(c, handle, fatalErrors), commNames[handle]
		made.name.Store(&name)
		comms.put(handle, made)
	}
	Joined(w.Comm().Rank())
	return success
}

// InitThread is Init; any number of threads may call MPI at a time, whatever the program asks for.
func InitThread(argc, argv uintptr, _ int32, provided uintptr) int32 {
	result := Init(argc, argv)
	store(provided, threadMultiple)
	return result
}

// QueryThread returns what InitThread provided.
func QueryThread(provided uintptr) int32 {
	store(provided, threadMultiple)
	return success
}

// IsThreadMain returns whether the calling thread is the one that called Init.
func IsThreadMain(flag uintptr) int32 {
	store(flag, logicalOf(Thread() == mainThread))
	return success
}

// Finalize leaves the world (MPI-5.0, section 11.2.2), after it has deleted the attributes of MPI_COMM_SELF, whose keys'
// functions may call MPI.
func Finalize() int32 {
	if self, err := commOf(commSelf); err == nil {
		if err := self.attributes.removeAll(commSelf); err != nil {
			self.result("MPI_Finalize", err)
		}
	}
	if !life.CompareAndSwap(running, finalized) {
		return fatal("MPI_Finalize", failure(errOther, "MPI is not running"))
	}
	comms.each(func(c *communicator) { c.buffers.flush() })
	ofProcess.flush()
	if err := world.Finalize(background); err != nil {
		return fatal("MPI_Finalize", err)
	}
	released.Wait()
	Left()
	return success
}

// Abort ends this process with the code as its exit status, for which the launcher ends the others (MPI-5.0, section
// 9.8). A status has eight bits of the code, and is 1 where those would say that all is well.
func Abort(_ uintptr, code int32) int32 {
	fmt.Fprintf(os.Stderr, "isthmus: %sthe program called MPI_Abort with code %d\n", place(), code)
	status := int(code) & 0xff
	if status == 0 {
		status = 1
	}
	Exit(status)
	return success
}

// fatal ends the process with an error.
func fatal(call string, err error) int32 {
	fmt.Fprintf(os.Stderr, "isthmus: %s%s: %v\n", place(), call, err)
	Exit(1)
	return classOf(err)
}

// place says which rank this is, if there is a world.
func place() string {
	if life.Load() == before || world == nil {
		return ""
	}
	return fmt.Sprintf("rank %d: ", world.Comm().Rank())
}

// logicalOf is a logical value of C.
func logicalOf(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
