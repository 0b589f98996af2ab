package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// Isendrecv starts a Sendrecv (MPI_Isendrecv). Its request is complete when both transfers are, and has the status of the receive.
func Isendrecv[T, U Elem](comm *Comm, sendbuf []T, dst, sendtag int, recvbuf []U, src, recvtag int) *Request {
	return IsendrecvParts(comm, PartOf(sendbuf), dst, sendtag, PartOf(recvbuf), src, recvtag)
}

// IsendrecvReplace starts a SendrecvReplace (MPI_Isendrecv_replace).
func IsendrecvReplace[T Elem](comm *Comm, buf []T, dst, sendtag, src, recvtag int) *Request {
	return IsendrecvReplacePart(comm, PartOf(buf), dst, sendtag, src, recvtag)
}

// IsendrecvParts is Isendrecv of Parts.
func IsendrecvParts(comm *Comm, send Part, dst, sendtag int, recv Part, src, recvtag int) *Request {
	in, out := comm.Irecv(recv, src, recvtag), comm.startPart(send, dst, sendtag, engine.Standard, false)
	cancelUnpaired(in, out)
	in.ownExtra().paired = out
	return in
}

// IsendrecvReplacePart is IsendrecvReplace of a Part.
func IsendrecvReplacePart(comm *Comm, p Part, dst, sendtag, src, recvtag int) *Request {
	return IsendrecvParts(comm, Part{p.p.Copied()}, dst, sendtag, p, src, recvtag)
}

// isDone reports whether the request, and the send that is paired with it, is complete.
func (r *Request) isDone() bool {
	return (r.unstarted || r.core.Done()) && (r.paired == nil || r.paired.isDone())
}

// open returns the transfer that is to be waited for: of an Isendrecv first the receive, then the send.
func (r *Request) open() *Request {
	if r.paired != nil && (r.unstarted || r.core.Done()) {
		return r.paired
	}
	return r
}

// waitAny returns the index of a request that is complete or held up.
func waitAny(ctx context.Context, requests []*Request) (int, error) {
	for {
		i, err := waitAnyOpen(ctx, requests)
		if err != nil || i == Undefined || len(complete(requests[i])) > 0 {
			return i, err
		}
	}
}
