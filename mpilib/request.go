package mpilib

import (
	"context"
	"errors"
	"fmt"
)

// Request is a send or a receive under way (MPI_Request). It advances by
// itself. Safe for concurrent use.
type Request struct {
	what    transfer
	engine  *engine
	context uint32
	global  int    // world rank of the peer, or AnySource
	buf     []byte // the caller's memory, not touched once done is closed
	done    chan struct{}

	// The rest is guarded by the engine's lock until done is closed.
	state  requestState
	giveUp error // why its owner waits no longer, while moving
	err    error
	source int // world rank
	tag    int
	bytes  int
}

// requestState says where a request is:
//
//	waiting -> moving -> complete
//	   '-------------------^
type requestState uint8

const (
	waiting  requestState = iota // in a matcher or in a peer's queue
	moving                       // its bytes are being read or written
	complete                     // done is closed
)

// transfer says what a request is about, in terms of its communicator.
type transfer struct {
	comm *Comm
	send bool
	peer int // rank in comm, or AnySource
	tag  int // or AnyTag
	elem int // bytes in an element
}

// String returns "send to rank 3 of world, tag 7".
func (t transfer) String() string {
	s := "receive from "
	if t.send {
		s = "send to "
	}
	switch t.peer {
	case AnySource:
		s += "any rank of " + t.comm.Name()
	case ProcNull:
		s += "ProcNull on " + t.comm.Name()
	default:
		s += fmt.Sprintf("rank %d of %s", t.peer, t.comm.Name())
	}
	if t.tag == AnyTag {
		return s + ", any tag"
	}
	return fmt.Sprintf("%s, tag %d", s, t.tag)
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// failedRequest is one that never starts.
func failedRequest(what transfer, err error) *Request {
	return &Request{what: what, done: closedChan, state: complete, err: err}
}

// nullRequest is a transfer with ProcNull, which is complete at once and moves
// nothing (MPI-4.1, section 3.10).
func nullRequest(what transfer) *Request { return failedRequest(what, nil) }

// nullStatus is what a receive from ProcNull returns.
var nullStatus = Status{Source: ProcNull, Tag: AnyTag}

// Wait returns when the transfer is complete or has failed, or when ctx is
// done. In the last case it is given up, as by MPI_Cancel: a receive matches
// no message any more; a send may or may not arrive. In every case the buffer
// belongs to the caller again. Later calls return the same.
func (r *Request) Wait(ctx context.Context) (Status, error) {
	st, err := r.wait(ctx)
	if err == nil && st.Bytes%r.what.elem != 0 {
		err = fmt.Errorf("%w: the message has %d bytes, an element %d", ErrCount, st.Bytes, r.what.elem)
	}
	if err != nil {
		return st, r.what.comm.raise(fmt.Errorf("mpilib: %v: %w", r.what, err))
	}
	return st, nil
}

// wait is Wait without the request's name in the error.
func (r *Request) wait(ctx context.Context) (Status, error) {
	select {
	case <-r.done:
		return r.result()
	default:
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		r.engine.giveUp(r, ctx.Err())
		<-r.done // at once: whoever moves its bytes has been interrupted
	}
	return r.result()
}

// Test says whether the request is complete, and if so what Wait would return
// (MPI_Test).
func (r *Request) Test() (st Status, done bool, err error) {
	select {
	case <-r.done:
		st, err = r.Wait(context.Background())
		return st, true, err
	default:
		return Status{}, false, nil
	}
}

// result is for requests that are done.
func (r *Request) result() (Status, error) {
	if r.err != nil {
		return Status{Source: r.what.peer, Tag: r.what.tag}, r.err
	}
	if r.what.peer == ProcNull {
		return nullStatus, nil
	}
	if r.what.send {
		return Status{Source: r.what.comm.rank, Tag: r.what.tag, Count: r.bytes / r.what.elem, Bytes: r.bytes}, nil
	}
	return r.what.comm.status(r.source, r.tag, r.bytes, r.what.elem), nil
}

// status describes a message from world rank source.
func (c *Comm) status(source, tag, bytes, elem int) Status {
	return Status{Source: c.local(source), Tag: tag, Count: bytes / elem, Bytes: bytes}
}

// Waitall waits for all the requests (MPI_Waitall). It returns the status of
// each, and the errors of all that failed, joined.
func Waitall(ctx context.Context, requests ...*Request) ([]Status, error) {
	statuses := make([]Status, len(requests))
	var errs []error
	for i, r := range requests {
		var err error
		if statuses[i], err = r.Wait(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return statuses, errors.Join(errs...)
}
