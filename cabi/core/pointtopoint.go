package core

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// onPart is onComm for a call with one part of memory.
func onPart(call string, buf uintptr, count int64, datatype, comm uintptr, f func(c *communicator, p mpilib.Part) error) int32 {
	return onComm(call, comm, func(c *communicator) error {
		var b builder
		p := b.part(buf, count, datatype)
		if b.err != nil {
			return b.err
		}
		return f(c, p)
	})
}

// send makes a blocking send of one mode.
func send(call string, mode func(*mpilib.Comm, context.Context, mpilib.Part, int, int) error,
	buf uintptr, count int64, datatype uintptr, dest, tag int32, comm uintptr) int32 {
	return onPart(call, buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		return mode(c.Comm, background, p, rankOf(dest), tagOf(tag))
	})
}

// Send sends a message.
func Send(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm uintptr) int32 {
	return send("MPI_Send", (*mpilib.Comm).Send, buf, count, datatype, dest, tag, comm)
}

// Ssend is Send that waits for the receive.
func Ssend(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm uintptr) int32 {
	return send("MPI_Ssend", (*mpilib.Comm).Ssend, buf, count, datatype, dest, tag, comm)
}

// Rsend is Send for callers that know of the receive.
func Rsend(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm uintptr) int32 {
	return send("MPI_Rsend", (*mpilib.Comm).Rsend, buf, count, datatype, dest, tag, comm)
}

// Recv receives a message.
func Recv(buf uintptr, count int64, datatype uintptr, source, tag int32, comm, status uintptr) int32 {
	return onPart("MPI_Recv", buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		st, err := c.Recv(background, p, rankOf(source), tagOf(tag))
		storeStatus(status, st)
		return err
	})
}

// Sendrecv sends and receives.
func Sendrecv(sendbuf uintptr, sendcount int64, sendtype uintptr, dest, sendtag int32,
	recvbuf uintptr, recvcount int64, recvtype uintptr, source, recvtag int32, comm, status uintptr) int32 {
	return onComm("MPI_Sendrecv", comm, func(c *communicator) error {
		var b builder
		out, in := b.part(sendbuf, sendcount, sendtype), b.part(recvbuf, recvcount, recvtype)
		if b.err != nil {
			return b.err
		}
		st, err := c.Sendrecv(background, out, rankOf(dest), tagOf(sendtag), in, rankOf(source), tagOf(recvtag))
		storeStatus(status, st)
		return err
	})
}

// SendrecvReplace is Sendrecv with one buffer.
func SendrecvReplace(buf uintptr, count int64, datatype uintptr, dest, sendtag, source, recvtag int32, comm, status uintptr) int32 {
	return onPart("MPI_Sendrecv_replace", buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		st, err := c.SendrecvReplace(background, p, rankOf(dest), tagOf(sendtag), rankOf(source), tagOf(recvtag))
		storeStatus(status, st)
		return err
	})
}

// Probe waits for a message and describes it.
func Probe(source, tag int32, comm, status uintptr) int32 {
	return onComm("MPI_Probe", comm, func(c *communicator) error {
		st, err := c.Probe(background, rankOf(source), tagOf(tag))
		if err == nil {
			storeStatus(status, st)
		}
		return err
	})
}

// Iprobe describes a message, if there is one.
func Iprobe(source, tag int32, comm, flag, status uintptr) int32 {
	return onComm("MPI_Iprobe", comm, func(c *communicator) error {
		st, ok, err := c.Iprobe(rankOf(source), tagOf(tag))
		if err != nil {
			return err
		}
		store(flag, logicalOf(ok))
		if ok {
			storeStatus(status, st)
		}
		return nil
	})
}
