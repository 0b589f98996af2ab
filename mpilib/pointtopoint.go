package mpilib

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/points"
)

// Send sends buf to rank dst of comm and returns when buf may be reused (MPI_Send). The message may
// then still be in transit; for a large message, or with many in transit, Send may also wait for
// the receiver.
func Send[T Elem](ctx context.Context, comm *Comm, buf []T, dst, tag int) error {
	return sent(ctx, comm, buf, dst, tag, engine.Standard)
}

// Ssend is Send that returns when a receive has matched the message
// (MPI_Ssend).
func Ssend[T Elem](ctx context.Context, comm *Comm, buf []T, dst, tag int) error {
	return sent(ctx, comm, buf, dst, tag, engine.Synchronous)
}

// Bsend is Send that copies buf and never blocks (MPI_Bsend). Only the process's memory bounds the
// copies.
func Bsend[T Elem](ctx context.Context, comm *Comm, buf []T, dst, tag int) error {
	return sent(ctx, comm, buf, dst, tag, engine.Buffered)
}

// Rsend is Send for callers that know that the receive is posted (MPI_Rsend). This library does not
// need that guarantee: it is the same as Send.
func Rsend[T Elem](ctx context.Context, comm *Comm, buf []T, dst, tag int) error {
	return sent(ctx, comm, buf, dst, tag, engine.Standard)
}

func sent[T Elem](ctx context.Context, comm *Comm, buf []T, dst, tag int, mode engine.Mode) error {
	if comm.signs() {
		return comm.sentPart(ctx, PartOf(buf), dst, tag, mode)
	}
	b, err := buffer.View(buf)
	return comm.send(ctx, b, err, dst, tag, mode)
}

// send is a blocking send, of b or of the error found in its arguments.
func (c *Comm) send(ctx context.Context, b []byte, err error, dst, tag int, mode engine.Mode) error {
	if err == nil {
		err = c.core.CheckSend(dst, tag)
	}
	what := transfer{comm: c, send: true, peer: dst, tag: tag, elem: 1}
	switch {
	case err != nil:
	case dst == ProcNull:
		return nil
	case c.world.watch != nil:
		_, err := c.isend(what, c.core.Context, b, mode, true).Wait(ctx)
		return err
	default:
		err = c.world.engine.Send(ctx, c.core.Senders(), c.core.Context, c.core.Global(dst), tag, b, mode)
	}
	if err != nil {
		_, err = failedRequest(what, err).result()
	}
	return err
}

// Recv receives a message from rank src of comm, or AnySource, with tag, or AnyTag, into buf
// (MPI_Recv). A shorter message fills the front of buf; Status.Count is its number of elements. A
// longer one causes ErrTruncate, is consumed, and leaves buf unchanged.
func Recv[T Elem](ctx context.Context, comm *Comm, buf []T, src, tag int) (Status, error) {
	if comm.world.watch != nil || comm.signs() || src == ProcNull {
		return Irecv(comm, buf, src, tag).waitOver(ctx)
	}
	b, err := buffer.View(buf)
	if err == nil {
		err = comm.core.CheckRecv(src, tag)
	}
	if err != nil {
		return failedRequest(transfer{comm: comm, peer: src, tag: tag, elem: 1}, err).result()
	}
	size, _ := buffer.Size[T]() // checked by view
	return comm.recv(ctx, b, size, src, tag)
}

// recv is a blocking receive.
func (c *Comm) recv(ctx context.Context, b []byte, elem, src, tag int) (Status, error) {
	got, err := c.world.engine.Recv(ctx, c.core.Senders(), c.core.Context, c.core.Global(src), tag, b)
	what := transfer{comm: c, peer: src, tag: tag, elem: elem}
	if err != nil {
		return failedRequest(what, err).result()
	}
	st := c.status(got, elem, 0)
	if err := buffer.WholeError(st.Bytes, elem); err != nil {
		return st, what.failed("", err)
	}
	return st, nil
}

// Isend starts a Send. buf must not change until the request is complete. An error in the arguments
// is returned by the request's Wait.
func Isend[T Elem](comm *Comm, buf []T, dst, tag int) *Request {
	return start(comm, buf, dst, tag, engine.Standard, false)
}

// Issend starts an Ssend.
func Issend[T Elem](comm *Comm, buf []T, dst, tag int) *Request {
	return start(comm, buf, dst, tag, engine.Synchronous, false)
}

// Ibsend starts a Bsend, which completes at once.
func Ibsend[T Elem](comm *Comm, buf []T, dst, tag int) *Request {
	return start(comm, buf, dst, tag, engine.Buffered, false)
}

// Irsend starts an Rsend.
func Irsend[T Elem](comm *Comm, buf []T, dst, tag int) *Request {
	return start(comm, buf, dst, tag, engine.Standard, false)
}

// start starts a send; hold means that its caller waits at once.
func start[T Elem](comm *Comm, buf []T, dst, tag int, mode engine.Mode, hold bool) *Request {
	if comm.signs() {
		return comm.startPart(PartOf(buf), dst, tag, mode, hold)
	}
	b, err := buffer.View(buf)
	if err == nil {
		err = comm.core.CheckSend(dst, tag)
	}
	if w := comm.world; err == nil && dst != ProcNull && w.watch == nil && w.engine.SendNow(comm.core.Senders(), comm.core.Context, comm.core.Global(dst), tag, b, mode) {
		return comm.completed(&comm.sent, 1, engine.Result{Source: w.engine.Rank(), Tag: tag, Bytes: uint64(len(b))})
	}
	what := transfer{comm: comm, send: true, peer: dst, tag: tag, elem: 1}
	if err != nil {
		return failedRequest(what, err)
	}
	if dst == ProcNull {
		return nullRequest(what)
	}
	return comm.isend(what, comm.core.Context, b, mode, hold)
}

func (c *Comm) isend(what transfer, context uint32, b []byte, mode engine.Mode, hold bool) *Request {
	r := newRequest(what)
	if w := c.world.watch; w != nil {
		w.Started((*watchedRequest)(r), context, len(b))
	}
	c.world.engine.StartSend(&r.core, what.comm.core.Senders(), context, c.core.Global(what.peer), what.tag, b, mode, hold)
	return r
}

// Irecv starts a Recv. The request owns buf until it is complete. An error in the arguments is
// returned by the request's Wait.
func Irecv[T Elem](comm *Comm, buf []T, src, tag int) *Request {
	if comm.signs() {
		return comm.Irecv(PartOf(buf), src, tag)
	}
	b, err := buffer.View(buf)
	if err == nil {
		err = comm.core.CheckRecv(src, tag)
	}
	size, _ := buffer.Size[T]() // checked by view
	if w := comm.world; err == nil && src != ProcNull && w.watch == nil {
		if got, ok := w.engine.RecvNow(comm.core.Senders(), comm.core.Context, comm.core.Global(src), tag, b); ok {
			return comm.completed(&comm.got, size, got)
		}
	}
	what := transfer{comm: comm, peer: src, tag: tag, elem: 1}
	if err != nil {
		return failedRequest(what, err)
	}
	if src == ProcNull {
		return nullRequest(what)
	}
	what.elem = size
	return comm.irecv(what, comm.core.Context, b)
}

func (c *Comm) irecv(what transfer, context uint32, b []byte) *Request {
	r := newRequest(what)
	if w := c.world.watch; w != nil {
		w.Started((*watchedRequest)(r), context, len(b))
	}
	c.world.engine.StartRecv(&r.core, what.comm.core.Senders(), context, c.core.Global(what.peer), what.tag, b)
	return r
}

// Sendrecv sends and receives at once (MPI_Sendrecv), so that ranks that do the same towards each
// other cannot deadlock. The buffers must not overlap. The status is the receive's.
func Sendrecv[T, U Elem](ctx context.Context, comm *Comm, sendbuf []T, dst, sendtag int, recvbuf []U, src, recvtag int) (Status, error) {
	return both(ctx, Irecv(comm, recvbuf, src, recvtag), Isend(comm, sendbuf, dst, sendtag))
}

// both waits for a receive and a send, and returns the status of the receive.
func both(ctx context.Context, in, out *Request) (Status, error) {
	cancelUnpaired(in, out)
	st, inErr := in.waitOver(ctx)
	_, outErr := out.Wait(ctx)
	return st, errors.Join(inErr, outErr)
}

// cancelUnpaired cancels a receive or a send if the other one was not started: it might wait forever.
func cancelUnpaired(in, out *Request) {
	if in.err == nil && out.err == nil {
		return
	}
	for _, r := range []*Request{in, out} {
		if !r.unstarted {
			r.core.Cancel()
		}
	}
}

// SendrecvReplace is Sendrecv with one buffer, whose contents the received message replaces
// (MPI_Sendrecv_replace).
func SendrecvReplace[T Elem](ctx context.Context, comm *Comm, buf []T, dst, sendtag, src, recvtag int) (Status, error) {
	return Sendrecv(ctx, comm, append([]T(nil), buf...), dst, sendtag, buf, src, recvtag)
}

// Probe waits until there is a message that Recv with the same arguments would receive, and
// describes it (MPI_Probe). It receives nothing.
func (c *Comm) Probe(ctx context.Context, src, tag int) (Status, error) {
	m, err := c.probe(ctx, "Probe", src, tag, false)
	return m.Status, err
}

// Iprobe is a nonblocking Probe; ok reports whether there is such a message.
func (c *Comm) Iprobe(src, tag int) (st Status, ok bool, err error) {
	m, ok, err := c.iprobe("Iprobe", src, tag, false)
	return m.Status, ok, err
}

// A Message is one that Mprobe or Improbe removed from matching (MPI_Message): only MRecv and
// MIrecv can receive it, and one of them must, once.
type Message struct {
	Status  Status
	comm    *Comm
	matched engine.Matched
}

// Mprobe is Probe that removes the message from matching (MPI_Mprobe), so that no other goroutine's
// receive gets it.
func (c *Comm) Mprobe(ctx context.Context, src, tag int) (Message, error) {
	return c.probe(ctx, "Mprobe", src, tag, true)
}

// Improbe is a nonblocking Mprobe; ok reports whether there is such a message.
func (c *Comm) Improbe(src, tag int) (m Message, ok bool, err error) {
	return c.iprobe("Improbe", src, tag, true)
}

func (c *Comm) probe(ctx context.Context, call string, src, tag int, take bool) (Message, error) {
	if err := c.core.CheckRecv(src, tag); err != nil {
		return Message{}, c.called(call, err)
	}
	if src == ProcNull {
		return Message{Status: nullStatus, comm: c}, nil
	}
	over := func() {}
	if w := c.world.watch; w != nil {
		over = w.Probing(transfer{comm: c, peer: src, tag: tag}.watched())
	}
	var m engine.Matched
	var err error
	if c.world.replicated() {
		m, _, err = points.Search{Comm: &c.core.Core, Src: c.core.Global(src), Tag: tag, Take: take, Waits: true}.Message(ctx, c.world.engine)
	} else {
		m, err = c.world.engine.Probe(ctx, c.core.Senders(), c.core.Context, c.core.Global(src), tag, take)
	}
	over()
	if err != nil {
		return Message{}, c.raise(fmt.Errorf("mpilib: rank %d: %s: %v: %w", c.core.Rank, call, transfer{comm: c, peer: src, tag: tag}, err))
	}
	return Message{c.status(m.Result(), 1, c.head()), c, m}, nil
}

func (c *Comm) iprobe(call string, src, tag int, take bool) (Message, bool, error) {
	if err := c.core.CheckRecv(src, tag); err != nil {
		return Message{}, false, c.called(call, err)
	}
	if src == ProcNull {
		return Message{Status: nullStatus, comm: c}, true, nil
	}
	var m engine.Matched
	var ok bool
	var err error
	if c.world.replicated() {
		m, ok, err = points.Search{Comm: &c.core.Core, Src: c.core.Global(src), Tag: tag, Take: take}.Message(context.Background(), c.world.engine)
	} else {
		m, ok, err = c.world.engine.Iprobe(c.core.Senders(), c.core.Context, c.core.Global(src), tag, take)
	}
	if err != nil {
		return Message{}, false, c.raise(fmt.Errorf("mpilib: rank %d: %s: %v: %w", c.core.Rank, call, transfer{comm: c, peer: src, tag: tag}, err))
	}
	if !ok {
		return Message{}, false, nil
	}
	return Message{c.status(m.Result(), 1, c.head()), c, m}, true, nil
}

// MRecv receives the message of a matching probe, as Recv does (MPI_Mrecv).
func MRecv[T Elem](ctx context.Context, m Message, buf []T) (Status, error) {
	return MIrecv(m, buf).Wait(ctx)
}

// MIrecv starts an MRecv (MPI_Imrecv).
func MIrecv[T Elem](m Message, buf []T) *Request {
	if m.comm.signs() {
		return m.Irecv(PartOf(buf))
	}
	what := transfer{comm: m.comm, peer: m.Status.Source, tag: m.Status.Tag, elem: 1}
	b, err := buffer.View(buf)
	if err != nil {
		return failedRequest(what, err)
	}
	if m.Status.Source == ProcNull {
		return nullRequest(what)
	}
	what.elem, _ = buffer.Size[T]()
	r := newRequest(what)
	if w := m.comm.world.watch; w != nil {
		w.Started((*watchedRequest)(r), m.comm.core.Context, len(b))
	}
	m.matched.StartRecv(&r.core, what.comm.core.Senders(), b)
	return r
}
