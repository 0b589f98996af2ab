package mpilib

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// Request is a send or a receive under way (MPI_Request). It advances by
// itself. Safe for concurrent use.
type Request struct {
	what  transfer
	never bool // it was not even started, for err, or because there is nothing to do
	err   error
	core  engine.Request
	into  *arrival  // of a receive into a Part; else nil
	seen  *sighting // in debug mode; else nil
}

// transfer says what a request is about, in terms of its communicator.
type transfer struct {
	comm   *Comm
	send   bool
	signed bool  // the message begins with a signature
	needs  *Comm // of a part of a collective call: all of whose processes it needs; else nil
	peer   int   // rank in comm, or AnySource
	tag    int   // or AnyTag
	elem   int   // bytes in an element
}

// head returns how many bytes of the message come before the program's.
func (t transfer) head() int {
	if t.signed {
		return signatureSize
	}
	return 0
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

// spare holds requests of blocking calls, which nobody else has seen: without garbage
// the collector never runs in the middle of a program that sends and receives.
var spare = sync.Pool{New: func() any { return new(Request) }}

// newRequest returns one that is not started.
func newRequest(what transfer) *Request {
	r := spare.Get().(*Request)
	r.what = what
	return r
}

// recycle takes back a request that only its caller knows, and that Wait returned
// err for. One that failed, or was given up, may still be known to the engine.
func (r *Request) recycle(err error) {
	if err == nil && !r.never && r.into == nil && r.seen == nil {
		r.what = transfer{}
		spare.Put(r)
	}
}

// failedRequest is one that never starts.
func failedRequest(what transfer, err error) *Request {
	return &Request{what: what, never: true, err: err}
}

// nullRequest is a transfer with ProcNull, which is complete at once and moves
// nothing (MPI-4.1, section 3.10).
func nullRequest(what transfer) *Request { return failedRequest(what, nil) }

// nullStatus is what a receive from ProcNull returns.
var nullStatus = Status{Source: ProcNull, Tag: AnyTag}

// Wait returns when the transfer is complete or has failed, or when ctx is
// done. In the last case it is given up, as by MPI_Cancel: a receive matches
// no message any more; a send may or may not arrive. In every case the buffer
// belongs to the caller again, and later calls return the same, but with
// ErrProcFailedPending: then the transfer goes on, and can be waited for again.
func (r *Request) Wait(ctx context.Context) (Status, error) {
	r.await(ctx)
	if err := r.heldUp(); err != nil {
		return r.held(err)
	}
	return r.result()
}

// heldUp says why a receive from any source is not to be waited for though it
// goes on, or returns nil.
func (r *Request) heldUp() error {
	if r.never || r.what.send || r.what.peer != AnySource {
		return nil
	}
	return r.core.Held()
}

// await returns when the request is complete, given up or held up. It fails only for a
// part of a collective call that the debug mode finds at odds with others'.
func (r *Request) await(ctx context.Context) error {
	switch {
	case r.never:
	case r.seen != nil:
		return r.seen.await(ctx, r)
	default:
		r.core.Wait(ctx)
	}
	return nil
}

// held is what Wait and Test return for a request that goes on, but is not to be
// waited for because of err.
func (r *Request) held(err error) (Status, error) {
	return emptyStatus, r.what.comm.raise(fmt.Errorf("mpilib: rank %d: %v%s: %w", r.what.comm.rank, r.what, r.line(), err))
}

// Test says whether the request is complete, and if so what Wait would return
// (MPI_Test).
func (r *Request) Test() (st Status, done bool, err error) {
	if !r.never && !r.core.Done() {
		if err := r.heldUp(); err != nil {
			st, err = r.held(err)
			return st, false, err
		}
		return Status{}, false, nil
	}
	st, err = r.result()
	return st, true, err
}

// Cancel asks for the transfer not to happen (MPI-4.1, section 3.8.4). The
// request completes in any case, either as if it had never been made, which
// Status.Cancelled then says, or as if it had not been cancelled.
func (r *Request) Cancel() {
	if !r.never {
		r.core.Cancel()
	}
}

// result is what Wait returns for a request that is done.
func (r *Request) result() (Status, error) {
	if r.seen != nil {
		r.seen.told(r)
	}
	st, err := r.status()
	if err == nil {
		err = wholeError(st.Bytes, r.what.elem)
	}
	if err != nil {
		return st, r.what.comm.raise(fmt.Errorf("mpilib: rank %d: %v%s: %w", r.what.comm.rank, r.what, r.line(), err))
	}
	return st, nil
}

// status is result without the request's name in the error.
func (r *Request) status() (Status, error) {
	got, err := engine.Result{}, r.err
	if !r.never {
		got, err = r.core.Result()
	}
	switch {
	case err != nil:
		return Status{Source: r.what.peer, Tag: r.what.tag}, err
	case r.what.peer == ProcNull:
		return nullStatus, nil
	case got.Cancelled:
		return Status{Source: r.what.peer, Tag: r.what.tag, Cancelled: true}, nil
	case r.what.send:
		n := int(got.Bytes) - r.what.head()
		return Status{Source: r.what.comm.rank, Tag: r.what.tag, Count: n / r.what.elem, Bytes: n}, nil
	}
	st := r.what.comm.status(got, r.what.elem, r.what.head())
	if r.into != nil {
		st.Count, err = r.into.land(st.Bytes)
	}
	return st, err
}

// status describes a message, of which the first head bytes are not the program's.
func (c *Comm) status(m engine.Result, elem, head int) Status {
	n := max(0, int(m.Bytes)-head)
	return Status{Source: c.local(m.Source), Tag: m.Tag, Count: n / elem, Bytes: n}
}

// emptyStatus is that of a nil request (MPI-4.1, section 3.7.3).
var emptyStatus = Status{Source: AnySource, Tag: AnyTag}

// Waitall waits for all the requests (MPI_Waitall). It returns the status of
// each, and the errors of all that failed, joined. nil requests, which the caller
// has dealt with, are complete, with neither source, tag nor elements.
func Waitall(ctx context.Context, requests ...*Request) ([]Status, error) {
	statuses := make([]Status, len(requests))
	var errs []error
	for i, r := range requests {
		if r == nil {
			statuses[i] = emptyStatus
			continue
		}
		var err error
		if statuses[i], err = r.Wait(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return statuses, errors.Join(errs...)
}

// Waitany waits until one of the requests is complete and returns which, and what
// its Wait returns (MPI_Waitany). Unlike Wait it gives none up when ctx is done: it
// then returns Undefined and the context's error. nil requests, which the caller
// has dealt with, do not count; if there are no others it returns Undefined at
// once, without an error.
func Waitany(ctx context.Context, requests ...*Request) (int, Status, error) {
	i, err := waitAny(ctx, requests)
	if err != nil || i == Undefined {
		return Undefined, emptyStatus, err
	}
	if st, done, err := requests[i].Test(); done || err != nil {
		return i, st, err
	}
	return Waitany(ctx, requests...) // what held it up was acknowledged just now
}

// Waitsome waits until at least one of the requests is complete and returns which
// are, with their statuses and their errors, joined (MPI_Waitsome). Otherwise it
// is as Waitany.
func Waitsome(ctx context.Context, requests ...*Request) ([]int, []Status, error) {
	if i, err := waitAny(ctx, requests); err != nil || i == Undefined {
		return nil, nil, err
	}
	return Testsome(requests...)
}

// Testsome is Waitsome without waiting (MPI_Testsome).
func Testsome(requests ...*Request) (done []int, statuses []Status, err error) {
	var errs []error
	for i, r := range requests {
		if r == nil {
			continue
		}
		if st, ok, err := r.Test(); ok || err != nil {
			done, statuses, errs = append(done, i), append(statuses, st), append(errs, err)
		}
	}
	return done, statuses, errors.Join(errs...)
}

// Testany says whether one of the requests is complete, and if so which, and what
// its Wait returns (MPI_Testany); without any request that is not nil it is
// Undefined.
func Testany(requests ...*Request) (i int, st Status, done bool, err error) {
	open := false
	for i, r := range requests {
		if r == nil {
			continue
		}
		open = true
		if st, done, err := r.Test(); done || err != nil {
			return i, st, true, err
		}
	}
	return Undefined, emptyStatus, !open, nil
}

// Testall says whether all the requests are complete, and if so what Waitall
// returns (MPI_Testall).
func Testall(requests ...*Request) ([]Status, bool, error) {
	for _, r := range requests {
		if r != nil && !r.never && !r.core.Done() && r.heldUp() == nil {
			return nil, false, nil
		}
	}
	statuses, err := Waitall(context.Background(), requests...)
	return statuses, true, err
}

func waitAny(ctx context.Context, requests []*Request) (int, error) {
	var waited *watcher
	cores, at := make([]*engine.Request, 0, len(requests)), make([]int, 0, len(requests))
	for i, r := range requests {
		switch {
		case r == nil:
		case r.never:
			return i, nil
		default:
			cores, at, waited = append(cores, &r.core), append(at, i), r.what.comm.world.watch
		}
	}
	if len(cores) == 0 {
		return Undefined, nil
	}
	i, err := waited.waitAny(ctx, requests, cores)
	if err != nil {
		return Undefined, fmt.Errorf("mpilib: waiting for any of %d requests: %w", len(cores), err)
	}
	return at[i], nil
}
