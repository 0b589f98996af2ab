package core

import (
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// matched is what a handle of a message names: one that a matching probe took, on its communicator (MPI-5.0, section 3.8.2).
type matched struct {
	comm *communicator
	mpilib.Message
}

var messages handles.Table[*matched]

// matchedOf returns the message of a handle. MPI_MESSAGE_NO_PROC, which stays, is one from MPI_PROC_NULL.
func matchedOf(handle uintptr) (*matched, error) {
	if handle == messageNoProc {
		c, err := commOf(commWorld)
		if err != nil {
			return nil, err
		}
		m, _, err := c.Improbe(mpilib.ProcNull, mpilib.AnyTag)
		return &matched{c, m}, err
	}
	m, ok := messages.Get(handle)
	if !ok {
		return nil, failure(errRequest, "%#x is no message that a probe returned, or it was received", handle)
	}
	return m, nil
}

// give stores the handle and the status of a message.
func (c *communicator) give(m mpilib.Message, out, status uintptr) {
	handle := messageNoProc
	if m.Status.Source != mpilib.ProcNull {
		handle = messages.Add(&matched{c, m})
	}
	store(out, handle)
	storeStatus(status, m.Status)
}

// Mprobe is Probe that takes the message, so that only Mrecv and Imrecv receive it.
func Mprobe(source, tag int32, comm, message, status uintptr) int32 {
	return onComm("MPI_Mprobe", comm, func(c *communicator) error {
		m, err := c.Mprobe(background, rankOf(source), tagOf(tag))
		if err == nil {
			c.give(m, message, status)
		}
		return err
	})
}

// Improbe is Mprobe if there is a message.
func Improbe(source, tag int32, comm, flag, message, status uintptr) int32 {
	return onComm("MPI_Improbe", comm, func(c *communicator) error {
		m, ok, err := c.Improbe(rankOf(source), tagOf(tag))
		if err != nil {
			return err
		}
		store(flag, logicalOf(ok))
		if ok {
			c.give(m, message, status)
		} else {
			store(message, messageNull)
		}
		return nil
	})
}

// onMatched starts the receive of the message whose handle is at an address, which then is none, and hands it to f. Before
// an error in the arguments is gone, the message can still be received.
func onMatched(call string, buf uintptr, count int64, datatype, message uintptr, f func(c *communicator, r *mpilib.Request) error) int32 {
	handle := load[uintptr](message)
	m, err := matchedOf(handle)
	if err != nil {
		return onWorld(call, err)
	}
	var b builder
	p := b.part(buf, count, datatype)
	if b.err != nil {
		return m.comm.result(call, b.err)
	}
	messages.Remove(handle)
	store(message, messageNull)
	return m.comm.result(call, f(m.comm, m.Irecv(p)))
}

// Mrecv receives the message of a matching probe.
func Mrecv(buf uintptr, count int64, datatype, message, status uintptr) int32 {
	return onMatched("MPI_Mrecv", buf, count, datatype, message, func(_ *communicator, r *mpilib.Request) error {
		st, err := r.Wait(background)
		storeStatus(status, st)
		return err
	})
}

// Imrecv starts an Mrecv.
func Imrecv(buf uintptr, count int64, datatype, message, started uintptr) int32 {
	return onMatched("MPI_Imrecv", buf, count, datatype, message, func(c *communicator, r *mpilib.Request) error {
		store(started, requests.Add(&request{comm: c, once: r}))
		return nil
	})
}
