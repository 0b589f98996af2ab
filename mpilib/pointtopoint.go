package mpilib

import (
	"context"
	"fmt"
)

// Send sends buf to rank dst of comm and returns when buf may be used again
// (MPI_Send). The message may then still be on its way; it may also wait for
// the receiver when much is on its way already.
func Send[T Elem](ctx context.Context, comm *Comm, buf []T, dst, tag int) error {
	_, err := Isend(comm, buf, dst, tag).Wait(ctx)
	return err
}

// Recv receives a message from rank src of comm, or AnySource, with tag, or
// AnyTag, into buf (MPI_Recv). A shorter message fills the front of buf;
// Status.Count says how many elements it had. A longer one is an error,
// ErrTruncate, is consumed, and leaves buf as it was.
func Recv[T Elem](ctx context.Context, comm *Comm, buf []T, src, tag int) (Status, error) {
	return Irecv(comm, buf, src, tag).Wait(ctx)
}

// Isend starts a Send. buf must not change until the request is complete. What
// is wrong with the arguments is told by the request's Wait.
func Isend[T Elem](comm *Comm, buf []T, dst, tag int) *Request {
	b, err := view(buf)
	if err == nil {
		err = comm.checkSend(dst, tag)
	}
	what := transfer{comm: comm, send: true, peer: dst, tag: tag, elem: 1}
	if err != nil {
		return failedRequest(what, err)
	}
	if dst == ProcNull {
		return nullRequest(what)
	}
	return comm.world.engine.isend(what, comm.context, b)
}

// Irecv starts a Recv. buf belongs to the request until it is complete. What
// is wrong with the arguments is told by the request's Wait.
func Irecv[T Elem](comm *Comm, buf []T, src, tag int) *Request {
	b, err := view(buf)
	if err == nil {
		err = comm.checkRecv(src, tag)
	}
	what := transfer{comm: comm, peer: src, tag: tag, elem: 1}
	if err != nil {
		return failedRequest(what, err)
	}
	if src == ProcNull {
		return nullRequest(what)
	}
	what.elem, _ = elemSize[T]() // judged by view
	return comm.world.engine.irecv(what, comm.context, b)
}

// Sendrecv sends and receives at once (MPI_Sendrecv), so that ranks that do
// the same towards each other cannot wait for each other. The buffers must not
// overlap. The status is the receive's.
func Sendrecv[T, U Elem](ctx context.Context, comm *Comm, sendbuf []T, dst, sendtag int, recvbuf []U, src, recvtag int) (Status, error) {
	in := Irecv(comm, recvbuf, src, recvtag)
	out := Isend(comm, sendbuf, dst, sendtag)
	statuses, err := Waitall(ctx, in, out)
	return statuses[0], err
}

// Probe waits until a message that Recv with the same arguments would receive
// is here, and describes it (MPI_Probe). It receives nothing.
func (c *Comm) Probe(ctx context.Context, src, tag int) (Status, error) {
	if err := c.checkRecv(src, tag); err != nil {
		return Status{}, c.called("Probe", err)
	}
	if src == ProcNull {
		return nullStatus, nil
	}
	st, err := c.world.engine.probe(ctx, c, src, tag)
	if err != nil {
		return Status{}, c.raise(fmt.Errorf("mpilib: Probe: %v: %w", transfer{comm: c, peer: src, tag: tag}, err))
	}
	return st, nil
}

// Iprobe is Probe without waiting; ok says whether there is such a message.
func (c *Comm) Iprobe(src, tag int) (st Status, ok bool, err error) {
	if err := c.checkRecv(src, tag); err != nil {
		return Status{}, false, c.called("Iprobe", err)
	}
	if src == ProcNull {
		return nullStatus, true, nil
	}
	st, ok, err = c.world.engine.iprobe(c, src, tag)
	return st, ok, c.raise(err)
}
