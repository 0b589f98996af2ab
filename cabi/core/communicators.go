package core

import (
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/cabi/core/attributes"
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// communicator is what a handle of a communicator names.
type communicator struct {
	*mpilib.Comm // nil while it is being made
	handle       uintptr
	session      *session                   // that it was created from, directly or not; nil in the World Model
	name         atomic.Pointer[string]     // that the program sees; nil for none
	handler      atomic.Pointer[errhandler] // of its errors
	buffers      buffers
	attributes   attributes.Cache
}

// newCommunicator returns what a handle of c names. It has the attributes that c got as a duplicate.
func newCommunicator(c *mpilib.Comm, handle uintptr, handler *errhandler, s *session) *communicator {
	made, ok := duplicated.Get(c)
	if !ok {
		made = new(communicator)
		duplicated.Set(c, made) // fails only for what cannot be duplicated, either
	}
	made.Comm, made.handle, made.session = c, handle, s
	made.handler.Store(handler)
	return made
}

var comms handles.Table[*communicator]

// commOf returns the communicator of a handle.
func commOf(handle uintptr) (*communicator, error) {
	c, ok := comms.Get(handle)
	if !ok || c.Comm == nil {
		if !isRunning.Load() && (handle == commWorld || handle == commSelf || !isMember.Load()) {
			return nil, failure(errOther, "MPI is not running")
		}
		return nil, failure(errComm, "%#x is no communicator", handle)
	}
	return c, nil
}

// origin is where c is from.
func (c *communicator) origin() origin { return origin{c.World(), c.session} }

// result passes an error to the handler of c; that of the world, if the call had no communicator
// (MPI-5.0, section 9.3).
func (c *communicator) result(call string, err error) int32 {
	if err == nil {
		return success
	}
	if c == nil {
		c, _ = comms.Get(commWorld)
	}
	if c == nil {
		return fatal(call, err)
	}
	return c.handler.Load().result(call, c.handle, err)
}

// onWorld passes an error to the handler of MPI_COMM_WORLD.
func onWorld(call string, err error) int32 { return (*communicator)(nil).result(call, err) }

// onComm makes a call on a communicator.
func onComm(call string, comm uintptr, f func(c *communicator) error) int32 {
	c, err := commOf(comm)
	if err == nil {
		err = f(c)
	}
	return c.result(call, err)
}

// peers is how many processes a collective call of c sends to.
func (c *communicator) peers() int {
	if c.IsInter() {
		return c.RemoteSize()
	}
	return c.Size()
}

// isRoot reports whether this process is the root of a call on c.
func (c *communicator) isRoot(root int32) bool {
	if c.IsInter() {
		return root == rootHere
	}
	return int(root) == c.Rank()
}

// create stores the handle of a communicator made from c, which inherits its error handler and session;
// MPI_COMM_NULL if there is none.
func (c *communicator) create(made *mpilib.Comm, err error, out uintptr) error {
	if err == nil {
		giveComm(made, c.handler.Load(), c.session, out)
	}
	return err
}

// giveComm stores the handle of a communicator, MPI_COMM_NULL for none.
func giveComm(made *mpilib.Comm, handler *errhandler, s *session, out uintptr) {
	if made == nil {
		store(out, commNull)
		return
	}
	n := newCommunicator(made, commNull, handler, s)
	n.handle = comms.Add(n)
	store(out, n.handle)
}

// CommRank returns the caller's rank.
func CommRank(comm, rank uintptr) int32 {
	return onComm("MPI_Comm_rank", comm, func(c *communicator) error {
		store(rank, int32(c.Rank()))
		return nil
	})
}

// CommSize returns the number of processes.
func CommSize(comm, size uintptr) int32 {
	return onComm("MPI_Comm_size", comm, func(c *communicator) error {
		store(size, int32(c.Size()))
		return nil
	})
}

// CommRemoteSize returns the number of processes of the other group.
func CommRemoteSize(comm, size uintptr) int32 {
	return onComm("MPI_Comm_remote_size", comm, func(c *communicator) error {
		if !c.IsInter() {
			return failure(errComm, "%s is no intercommunicator", c.Name())
		}
		store(size, int32(c.RemoteSize()))
		return nil
	})
}

// CommTestInter returns whether a communicator has two groups.
func CommTestInter(comm, flag uintptr) int32 {
	return onComm("MPI_Comm_test_inter", comm, func(c *communicator) error {
		store(flag, logicalOf(c.IsInter()))
		return nil
	})
}

// CommCompare compares two communicators.
func CommCompare(comm1, comm2, result uintptr) int32 {
	return onComm("MPI_Comm_compare", comm1, func(a *communicator) error {
		b, err := commOf(comm2)
		if err != nil {
			return err
		}
		outcome := unequal
		if a.World() == b.World() {
			outcome = comparisons[mpilib.Compare(a.Comm, b.Comm)]
		}
		store(result, outcome)
		return nil
	})
}

// CommDup duplicates a communicator.
func CommDup(comm, newcomm uintptr) int32 {
	return onComm("MPI_Comm_dup", comm, func(c *communicator) error {
		made, err := c.Dup(background)
		return c.create(made, err, newcomm)
	})
}

// CommDupWithInfo duplicates a communicator; its hints are those of an info.
func CommDupWithInfo(comm, info, newcomm uintptr) int32 {
	return onComm("MPI_Comm_dup_with_info", comm, func(c *communicator) error {
		hints, err := infoOf(info)
		if err != nil {
			return err
		}
		made, err := c.DupWithInfo(background, hints)
		return c.create(made, err, newcomm)
	})
}

// CommSetInfo sets hints.
func CommSetInfo(comm, info uintptr) int32 {
	return onComm("MPI_Comm_set_info", comm, func(c *communicator) error {
		hints, err := infoOf(info)
		if err != nil {
			return err
		}
		return c.SetInfo(hints)
	})
}

// CommGetInfo returns the hints in a new info.
func CommGetInfo(comm, info uintptr) int32 {
	return onComm("MPI_Comm_get_info", comm, func(c *communicator) error {
		store(info, infos.Add(c.GetInfo()))
		return nil
	})
}

// CommSplit splits a communicator by colours.
func CommSplit(comm uintptr, color, key int32, newcomm uintptr) int32 {
	return onComm("MPI_Comm_split", comm, func(c *communicator) error {
		colour := int(color)
		if color == undefined {
			colour = mpilib.Undefined
		}
		made, err := c.Split(background, colour, int(key))
		return c.create(made, err, newcomm)
	})
}

// CommFree frees a communicator.
func CommFree(comm uintptr) int32 { return freeComm("MPI_Comm_free", comm, (*mpilib.Comm).Free) }

// CommDisconnect is CommFree that waits until the other processes have read what was sent to them, if it is the last communicator
// with processes of an MPI_Comm_accept or MPI_Comm_connect (MPI-5.0, section 11.10.4).
func CommDisconnect(comm uintptr) int32 {
	return freeComm("MPI_Comm_disconnect", comm, func(c *mpilib.Comm) error { return c.Disconnect(background) })
}

// freeComm frees a communicator, unless the function of a key fails to delete its attribute.
func freeComm(call string, comm uintptr, free func(*mpilib.Comm) error) int32 {
	handle := load[uintptr](comm)
	return onComm(call, handle, func(c *communicator) error {
		if handle < handles.First {
			return failure(errComm, "%s lasts until MPI_Finalize", c.nameOf())
		}
		if err := c.attributes.RemoveAll(handle); err != nil {
			return err
		}
		c.buffers.flush()
		err := free(c.Comm) // also of one that fails nothing is left
		comms.Remove(handle)
		store(comm, commNull)
		return err
	})
}
