// Package core carries out MPI's functions for C programs: CommRank is MPI_Comm_rank, and so on
// for each exported function with such a name. Others are what the library around it sets.
//
// Numbers are int32 or int64; handles, and addresses of the program's memory, are uintptr, never
// pointers: a sentinel such as MPI_IN_PLACE is no address, and the memory is C's, which the
// collector must not look at. Handles, constants and statuses are those of the standard's C ABI
// (MPI-5.0, chapter 20). Functions return an error class, MPI_SUCCESS is 0.
//
// What needs neither communicators nor requests is in the packages below. It knows neither C nor
// other ABIs, and is tested without a C compiler. Its state is that of the process: MPI has one
// world, and its objects are named by handles. All functions are safe for concurrent use.
package core

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Exit ends the process with a status, and Flush writes the program's output before. The library around this package sets
// them.
var (
	Exit  = os.Exit
	Flush = func() {}
)

// OpenPMIx opens PMIx's client library. The library around this package sets it.
var OpenPMIx func(context.Context) (mpilib.ProcessManager, error)

// Thread returns a number of the calling thread, which differs from that of any other. The library
// around this package sets it.
var Thread = func() uintptr { return 0 }

// background bounds nothing: a call of MPI ends when it is complete.
var background = context.Background()

// mainThread is the thread that called Init.
var mainThread uintptr

// Init joins the world (MPI-5.0, section 11.2.1), unless a session has. The program's arguments stay as they are.
func Init(_, _ uintptr) int32 {
	process.Lock()
	defer process.Unlock()
	err := process.Begin()
	if err == nil {
		err = join()
	}
	if err != nil {
		return fatal("MPI_Init", err)
	}
	mainThread = Thread()
	for handle, c := range map[uintptr]*mpilib.Comm{commWorld: world.Comm(), commSelf: world.Self()} {
		made, name := newCommunicator(c, handle, fatalErrors, nil), commNames[handle]
		made.name.Store(&name)
		comms.Put(handle, made)
	}
	changed()
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

// Finalize ends the World Model (MPI-5.0, section 11.2.2), after it has deleted the attributes of MPI_COMM_SELF, whose keys'
// functions may call MPI. It leaves the world, unless a session is open.
func Finalize() int32 {
	if self, err := commOf(commSelf); err == nil {
		if err := self.attributes.RemoveAll(commSelf); err != nil {
			self.result("MPI_Finalize", err)
		}
	}
	process.Lock()
	defer process.Unlock()
	if err := process.End(); err != nil {
		return fatal("MPI_Finalize", err)
	}
	comms.Each(func(c *communicator) {
		if c.session == nil {
			c.buffers.flush()
		}
	})
	ofProcess.flush()
	comms.Drop(commWorld)
	comms.Drop(commSelf)
	if process.IsOver() {
		if err := leave(); err != nil {
			return fatal("MPI_Finalize", err)
		}
	}
	changed()
	return success
}

// Abort ends this process with the code as its exit status, for which the launcher ends the others, or which it is told (MPI-5.0,
// section 9.8). A status has eight bits of the code, and is 1 where those would say that all is well.
func Abort(_ uintptr, code int32) int32 {
	fmt.Fprintf(os.Stderr, "isthmus: %sthe program called MPI_Abort with code %d\n", place(), code)
	status := int(code) & 0xff
	if status == 0 {
		status = 1
	}
	endJob(status)
	return success
}

// endJob ends the job with a status, by way of this process. A launcher that is asked to ends this process, too: if this one exited at once, the others
// would see it fail, and the launcher might see first what they exit with for that.
func endJob(status int) {
	Flush() // before the launcher kills this process
	if world != nil {
		asked, err := world.Abort(status)
		switch {
		case err != nil:
			fmt.Fprintf(os.Stderr, "isthmus: %sthe launcher was not asked to end the job: %v\n", place(), err)
		case asked:
			time.Sleep(maxEnd)
		}
	}
	Exit(status)
}

// maxEnd bounds the wait for a launcher that is to end this process.
const maxEnd = 5 * time.Second

// fatal ends the process with an error.
func fatal(call string, err error) int32 {
	fmt.Fprintf(os.Stderr, "isthmus: %s%s: %v\n", place(), call, err)
	endJob(1)
	return classOf(err)
}

// place says which rank this is, if there is a world.
func place() string {
	if world == nil {
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
