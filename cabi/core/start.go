package core

import (
	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// start starts a transfer and stores the handle of its request.
func start(call string, transfer func(*mpilib.Comm, mpilib.Part, int, int) *mpilib.Request,
	buf uintptr, count int64, datatype uintptr, peer, tag int32, comm, out uintptr) int32 {
	return onPart(call, buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		store(out, requests.Add(&request{comm: c, once: transfer(c.Comm, p, rankOf(peer), tagOf(tag))}))
		return nil
	})
}

// prepare prepares a transfer that is started repeatedly.
func prepare(call string, transfer func(*mpilib.Comm, mpilib.Part, int, int) *mpilib.Persistent,
	buf uintptr, count int64, datatype uintptr, peer, tag int32, comm, out uintptr) int32 {
	return onPart(call, buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		store(out, requests.Add(&request{comm: c, repeated: transfer(c.Comm, p, rankOf(peer), tagOf(tag)).KeepActive()}))
		return nil
	})
}

// Isend starts a Send.
func Isend(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm, request uintptr) int32 {
	return start("MPI_Isend", (*mpilib.Comm).Isend, buf, count, datatype, dest, tag, comm, request)
}

// Issend starts an Ssend.
func Issend(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm, request uintptr) int32 {
	return start("MPI_Issend", (*mpilib.Comm).Issend, buf, count, datatype, dest, tag, comm, request)
}

// Irsend starts an Rsend.
func Irsend(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm, request uintptr) int32 {
	return start("MPI_Irsend", (*mpilib.Comm).Irsend, buf, count, datatype, dest, tag, comm, request)
}

// Irecv starts a Recv.
func Irecv(buf uintptr, count int64, datatype uintptr, source, tag int32, comm, request uintptr) int32 {
	return start("MPI_Irecv", (*mpilib.Comm).Irecv, buf, count, datatype, source, tag, comm, request)
}

// Isendrecv starts a Sendrecv.
func Isendrecv(sendbuf uintptr, sendcount int64, sendtype uintptr, dest, sendtag int32,
	recvbuf uintptr, recvcount int64, recvtype uintptr, source, recvtag int32, comm, started uintptr) int32 {
	return onComm("MPI_Isendrecv", comm, func(c *communicator) error {
		var b builder
		out, in := b.part(sendbuf, sendcount, sendtype), b.part(recvbuf, recvcount, recvtype)
		if b.err != nil {
			return b.err
		}
		r := mpilib.IsendrecvParts(c.Comm, out, rankOf(dest), tagOf(sendtag), in, rankOf(source), tagOf(recvtag))
		store(started, requests.Add(&request{comm: c, once: r}))
		return nil
	})
}

// IsendrecvReplace starts a SendrecvReplace.
func IsendrecvReplace(buf uintptr, count int64, datatype uintptr, dest, sendtag, source, recvtag int32, comm, started uintptr) int32 {
	return onPart("MPI_Isendrecv_replace", buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		r := mpilib.IsendrecvReplacePart(c.Comm, p, rankOf(dest), tagOf(sendtag), rankOf(source), tagOf(recvtag))
		store(started, requests.Add(&request{comm: c, once: r}))
		return nil
	})
}

// SendInit prepares a Send.
func SendInit(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm, request uintptr) int32 {
	return prepare("MPI_Send_init", (*mpilib.Comm).SendInit, buf, count, datatype, dest, tag, comm, request)
}

// SsendInit prepares an Ssend.
func SsendInit(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm, request uintptr) int32 {
	return prepare("MPI_Ssend_init", (*mpilib.Comm).SsendInit, buf, count, datatype, dest, tag, comm, request)
}

// RsendInit prepares an Rsend.
func RsendInit(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm, request uintptr) int32 {
	return prepare("MPI_Rsend_init", (*mpilib.Comm).RsendInit, buf, count, datatype, dest, tag, comm, request)
}

// RecvInit prepares a Recv.
func RecvInit(buf uintptr, count int64, datatype uintptr, source, tag int32, comm, request uintptr) int32 {
	return prepare("MPI_Recv_init", (*mpilib.Comm).RecvInit, buf, count, datatype, source, tag, comm, request)
}

// Start starts a prepared transfer or collective call.
func Start(request uintptr) int32 { return startAll("MPI_Start", 1, request) }

// Startall starts some.
func Startall(count int32, requests uintptr) int32 { return startAll("MPI_Startall", count, requests) }

func startAll(call string, count int32, addresses uintptr) int32 {
	for _, handle := range elements[uintptr](addresses, int(count)) {
		q, err := requestOf(handle)
		if err == nil && (q == nil || q.repeated == nil) {
			err = failure(errRequest, "%#x is no request that can be started", handle)
		}
		if err != nil {
			return onWorld(call, err)
		}
		if err := q.start(); err != nil {
			return q.comm.result(call, err)
		}
	}
	return success
}

// start starts a prepared transfer or collective call.
func (q *request) start() error {
	if q.user {
		callbacks.Started()
	}
	err := q.repeated.Start()
	if err != nil && q.user {
		callbacks.Completed()
	}
	return err
}
