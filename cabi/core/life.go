package core

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/cabi/membership"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Life is what the library around this package has to know of MPI in this process.
type Life struct {
	Rank                   int
	Member                 bool // it is a process of the world
	Idle                   bool // it calls Leave before it ends
	Initialized, Finalized bool // what MPI_Initialized and MPI_Finalized say
}

// Changed is called when MPI's life has changed. The library around this package sets it.
var Changed = func(Life) {}

// process is this process's membership, and guards what it has by it.
var process struct {
	sync.Mutex
	membership.Membership
}

// isMember is whether the process is in the world now, and isRunning whether the World Model is; both change with the process only.
var isMember, isRunning atomic.Bool

// world is this process's; set by the first that joins it.
var world *mpilib.World

// changed publishes what has changed. The process is locked.
func changed() {
	m := &process.Membership
	isRunning.Store(m.Model == membership.Running)
	isMember.Store(m.IsMember())
	l := Life{Member: m.IsMember(), Idle: m.IsIdle(), Initialized: m.Model != membership.Before, Finalized: m.Model == membership.Finalized}
	if world != nil {
		l.Rank = world.Comm().Rank()
	}
	Changed(l)
}

// join joins the world, if that has not happened. The process is locked.
func join() error {
	if process.Joined {
		return nil
	}
	w, err := mpilib.Init(background, mpilib.WithPMIx(OpenPMIx))
	if err != nil {
		return err
	}
	world, process.Joined = w, true
	if said := ignoredSettings(os.Environ()); said != "" && w.Comm().Rank() == 0 {
		fmt.Fprintln(os.Stderr, "isthmus: "+said)
	}
	return nil
}

// leave leaves the world. The process is locked.
func leave() error {
	err := world.Finalize(background)
	released.Wait()
	process.Left = true
	return err
}

// Leave leaves the world at the end of a process that is idle: one whose sessions are closed, and which never called MPI_Init.
func Leave() {
	process.Lock()
	defer process.Unlock()
	if process.IsIdle() {
		leave() // there is nobody to whom an error could be said
		changed()
	}
}
