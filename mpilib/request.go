package mpilib

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/waitany"
)

// Request is a pending send, receive or collective call (MPI_Request). It makes progress by itself.
// Safe for concurrent use. Transfers that complete when they are started may share a Request.
type Request struct {
	core engine.Handle // of the started operation

	// What it is about, see transfer. An ordinary request fits one cache line.
	comm         *Comm
	*extra              // ordinary, or a separate one
	peer, tag    int32  // unused if extra has a transfer
	elem         uint32 // likewise
	send, signed bool
}

// extra holds the state that only some requests need.
type extra struct {
	unstarted bool // the operation was not started, because of err, or because there is nothing to do
	err       error
	whole     *transfer          // if the Request has no space for it; otherwise nil
	into      *buffer.Arrival    // of a receive into a Part; otherwise nil
	seen      *debug.Observation // in debug mode; otherwise nil
	paired    *Request           // the send of an Isendrecv, whose receive this is; otherwise nil
	given     *Status            // of work that completed with one; otherwise nil
	repeats   bool               // of a Persistent: inactive once its completion was returned
	reported  atomic.Bool        // of such a request: its completion was returned
}

// ordinary is shared by all other requests and immutable.
var ordinary extra

// ownExtra returns an extra that belongs to the request, to be modified before the request is shared.
func (r *Request) ownExtra() *extra {
	if r.extra == &ordinary {
		r.extra = new(extra)
	}
	return r.extra
}

// transfer describes the request in terms of its communicator.
func (r *Request) transfer() transfer {
	if r.whole != nil {
		return *r.whole
	}
	return transfer{comm: r.comm, send: r.send, signed: r.signed, peer: int(r.peer), tag: int(r.tag), elem: int(r.elem)}
}

// setTransfer sets what the request is about.
func (r *Request) setTransfer(t transfer) {
	r.comm, r.extra, r.send, r.signed = t.comm, &ordinary, t.send, t.signed
	r.peer, r.tag, r.elem = int32(t.peer), int32(t.tag), uint32(t.elem)
	if r.transfer() != t {
		whole := t // not t, which would then need an allocation per call
		r.ownExtra().whole = &whole
	}
}

// transfer describes a request in terms of its communicator.
type transfer struct {
	comm   *Comm
	send   bool
	signed bool   // the message begins with a signature
	call   string // of a collective call: its name; then only comm is used
	peer   int    // rank in comm, or AnySource
	tag    int    // or AnyTag
	elem   int    // bytes in an element
}

// head returns the number of bytes of the message before the program's.
func (t transfer) head() int {
	if t.signed {
		return buffer.SignatureSize
	}
	return 0
}

func (t transfer) String() string { return t.watched().String() }

// A slab is memory for many requests in one allocation, because an allocation costs as much as a
// small message. It lives as long as any of them is referenced.
type slab struct {
	used     atomic.Uint32
	requests [slabRequests]Request
}

// slabRequests gives a slab of about 4 KiB.
const slabRequests = 63

// newRequest returns a request that is not started.
func newRequest(what transfer) *Request {
	r := what.comm.memory()
	r.setTransfer(what)
	return r
}

// memory returns memory for a request.
func (c *Comm) memory() *Request {
	for {
		s := c.slab.Load()
		if s != nil {
			if n := s.used.Add(1); n <= slabRequests {
				return &s.requests[n-1]
			}
		}
		c.slab.CompareAndSwap(s, new(slab))
	}
}

// completed returns the Request of a transfer that was complete when it was started. Two with the
// same result share one, since it is immutable: so a stream of small messages allocates no memory,
// whose collection would take longer than the messages. last is c's sent or got.
func (c *Comm) completed(last *atomic.Pointer[Request], elem int, got engine.Result) *Request {
	if r := last.Load(); r != nil && int(r.elem) == elem && r.core.HasResult(got) {
		return r
	}
	r := newRequest(transfer{comm: c, send: last == &c.sent, peer: c.core.Local(got.Source), tag: got.Tag, elem: elem})
	c.world.engine.Settle(&r.core, got)
	last.Store(r)
	return r
}

// failedRequest is one that never starts.
func failedRequest(what transfer, err error) *Request {
	r := new(Request)
	r.setTransfer(what)
	r.ownExtra().unstarted, r.ownExtra().err = true, err
	return r
}

// nullRequest is a transfer with ProcNull, which completes at once and transfers nothing (MPI-4.1,
// section 3.10).
func nullRequest(what transfer) *Request { return failedRequest(what, nil) }

// nullStatus is the result of a receive from ProcNull.
var nullStatus = Status{Source: ProcNull, Tag: AnyTag}

// Wait returns when the transfer is complete or has failed, or when ctx is done. In the last case
// it is cancelled, as by MPI_Cancel: a receive matches no message any more; a send may or may not
// arrive. In every case the caller owns the buffer again, and later calls return the same, except
// with ErrProcFailedPending: then the transfer stays pending, and can be waited for again. A
// cancelled collective call fails here, and other ranks may wait for it forever. Its status is
// empty.
func (r *Request) Wait(ctx context.Context) (Status, error) {
	if r.extra == &ordinary {
		if got, ok := r.core.Settled(); ok && !got.Cancelled {
			return r.success(got)
		}
	}
	r.await(ctx)
	if err := r.blockedBy(); err != nil {
		return r.blockedResult(err)
	}
	r.report()
	return r.result()
}

// report records that the completion is returned to the program, where that changes the request.
func (r *Request) report() {
	if r.repeats {
		r.reported.Store(true)
	}
}

// blockedBy returns why a pending receive from any source cannot be waited for, or nil.
func (r *Request) blockedBy() error {
	if r.peer != AnySource || r.send || r.unstarted {
		return nil
	}
	return r.core.BlockedBy()
}

// await returns when the request is complete, cancelled or blocked.
func (r *Request) await(ctx context.Context) {
	switch {
	case r.unstarted:
	case r.seen != nil:
		r.seen.Wait(ctx, (*watchedRequest)(r)) // fails for parts of collective calls only
	default:
		r.core.Wait(ctx)
	}
	if r.paired != nil && r.blockedBy() == nil {
		r.paired.await(ctx)
	}
}

// blockedResult is the result of Wait and Test for a request that stays pending but cannot be waited for
// because of err.
func (r *Request) blockedResult(err error) (Status, error) {
	return emptyStatus, r.transfer().failed(r.line(), err)
}

// Test reports whether the request is complete, and if so Wait's result (MPI_Test).
func (r *Request) Test() (st Status, done bool, err error) {
	if w := replicatedWorld(r); w != nil && !r.unstarted {
		return w.testReplicated(r)
	}
	if !r.isDone() {
		if err := r.blockedBy(); err != nil {
			st, err = r.blockedResult(err)
			return st, false, err
		}
		return Status{}, false, nil
	}
	r.report()
	st, err = r.result()
	return st, true, err
}

// Cancel cancels the transfer if possible (MPI-4.1, section 3.8.4). The request completes in any
// case, either as if it had never been made, which Status.Cancelled then reports, or as if it had
// not been cancelled. A collective call cannot be cancelled (MPI-4.1, section 6.12), nor an Isendrecv.
func (r *Request) Cancel() error {
	if r.transfer().call != "" || r.paired != nil {
		return r.transfer().comm.raise(fmt.Errorf("mpilib: Cancel of %v, rank %d%s: %w", r.transfer(), r.transfer().comm.core.Rank, r.line(), errNoCancel))
	}
	if r.unstarted {
		return nil
	}
	if err := r.transfer().comm.world.unreplicated(reasonCancel); err != nil {
		return r.transfer().comm.raise(fmt.Errorf("mpilib: Cancel of %v, rank %d%s: %w", r.transfer(), r.transfer().comm.core.Rank, r.line(), err))
	}
	r.core.Cancel()
	return nil
}

// result is Wait's result for a completed request.
func (r *Request) result() (Status, error) {
	if r.extra == &ordinary {
		if got, ok := r.core.Settled(); ok && !got.Cancelled {
			return r.success(got)
		}
	}
	if r.seen != nil {
		r.seen.CompletionSeen((*watchedRequest)(r))
	}
	if r.transfer().call != "" {
		err := r.named(r.failed())
		if r.given != nil {
			return *r.given, err
		}
		return emptyStatus, err
	}
	st, err := r.status()
	if r.paired != nil {
		_, sendErr := r.paired.result()
		err = errors.Join(err, sendErr)
	}
	if err == nil {
		err = buffer.WholeError(st.Bytes, r.transfer().elem)
	}
	if err != nil {
		return st, r.transfer().failed(r.line(), err)
	}
	return st, nil
}

// failed adds the transfer and, if known, the line of its call.
func (t transfer) failed(line string, err error) error {
	return t.comm.raise(fmt.Errorf("mpilib: rank %d: %v%s: %w", t.comm.core.Rank, t, line, err))
}

// success is result for an ordinary request that has succeeded.
func (r *Request) success(got engine.Result) (Status, error) {
	if r.send {
		n := int(got.Bytes)
		if r.signed {
			n -= buffer.SignatureSize
		}
		return Status{Source: r.comm.core.Rank, Tag: got.Tag, Count: n, Bytes: n}, nil
	}
	st := r.comm.status(got, int(r.elem), 0)
	if st.Count*int(r.elem) != st.Bytes {
		return st, r.transfer().failed("", buffer.WholeError(st.Bytes, int(r.elem)))
	}
	return st, nil
}

// named adds the name of the collective call to an error.
func (r *Request) named(err error) error {
	if err == nil {
		return nil
	}
	return r.transfer().comm.raise(fmt.Errorf("mpilib: %v, rank %d%s: %w", r.transfer(), r.transfer().comm.core.Rank, r.line(), err))
}

// status is result without the request's name in the error.
func (r *Request) status() (Status, error) {
	what, got, err := r.transfer(), engine.Result{}, r.err
	if !r.unstarted {
		got, err = r.core.Result()
	}
	switch {
	case err != nil:
		if head := what.head(); head > 0 && errors.Is(err, ErrTruncate) && r.into != nil { // the program's count excludes it
			err = fmt.Errorf("%w: the message has %d bytes, the buffer %d", ErrTruncate, max(0, int(got.Bytes)-head), r.into.Room())
		}
		return Status{Source: what.peer, Tag: what.tag}, err
	case what.peer == ProcNull:
		return nullStatus, nil
	case got.Cancelled:
		return Status{Source: what.peer, Tag: what.tag, Cancelled: true}, nil
	case what.send:
		n := int(got.Bytes) - what.head()
		return Status{Source: what.comm.core.Rank, Tag: what.tag, Count: n / what.elem, Bytes: n}, nil
	}
	st := what.comm.status(got, what.elem, what.head())
	if r.into != nil {
		st.Count, err = r.into.Land(st.Bytes)
	}
	return st, err
}

// status describes a message whose first head bytes are not the program's.
func (c *Comm) status(m engine.Result, elem, head int) Status {
	n := max(0, int(m.Bytes)-head)
	return Status{Source: c.core.Local(m.Source), Tag: m.Tag, Count: n / elem, Bytes: n}
}

// emptyStatus is that of a nil request (MPI-4.1, section 3.7.3).
var emptyStatus = Status{Source: AnySource, Tag: AnyTag}

// Waitall waits for all the requests (MPI_Waitall). It returns the status of each, and the errors
// of all that failed, joined. nil requests, which the caller has handled, and inactive ones of a
// Persistent count as complete, without source, tag or elements.
func Waitall(ctx context.Context, requests ...*Request) ([]Status, error) {
	statuses := make([]Status, len(requests))
	return statuses, WaitallInto(ctx, statuses, requests...)
}

// WaitallInto is Waitall with the caller's memory for the statuses: at least as many as there are
// requests, or nil to ignore them (MPI_STATUSES_IGNORE). It allocates nothing.
func WaitallInto(ctx context.Context, statuses []Status, requests ...*Request) error {
	var errs []error
	var last *Request // the one that st and err are of
	st, err := emptyStatus, error(nil)
	for i, r := range requests {
		switch {
		case r != nil && r == last && err == nil: // shared by both, with the same result
		case r.isInactive():
			st, err = emptyStatus, nil
		default:
			st, err = r.Wait(ctx)
		}
		last = r
		if statuses != nil {
			statuses[i] = st
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if errs == nil {
		return nil
	}
	return errors.Join(errs...)
}

// Waitany waits until one of the requests is complete and returns its index, and its Wait's result
// (MPI_Waitany). Unlike Wait it cancels none when ctx is done: it then returns Undefined and the
// context's error. nil requests, which the caller has handled, and inactive ones of a Persistent are
// ignored; if there are no others it returns Undefined at once, without an error.
func Waitany(ctx context.Context, requests ...*Request) (int, Status, error) {
	if w := replicatedWorld(requests...); w != nil {
		return w.waitanyReplicated(ctx, requests)
	}
	i, err := waitAny(ctx, requests)
	if err != nil || i == Undefined {
		return Undefined, emptyStatus, err
	}
	if st, done, err := requests[i].Test(); done || err != nil {
		return i, st, err
	}
	return Waitany(ctx, requests...) // the failure that blocked it was just acknowledged
}

// Waitsome waits until at least one of the requests is complete and returns the indices of those
// that are, with their statuses and their errors, joined (MPI_Waitsome). Otherwise it is like
// Waitany.
func Waitsome(ctx context.Context, requests ...*Request) ([]int, []Status, error) {
	if w := replicatedWorld(requests...); w != nil {
		return w.someReplicated(ctx, true, requests)
	}
	if i, err := waitAny(ctx, requests); err != nil || i == Undefined {
		return nil, nil, err
	}
	return Testsome(requests...)
}

// Testsome is a nonblocking Waitsome (MPI_Testsome).
func Testsome(requests ...*Request) (done []int, statuses []Status, err error) {
	if w := replicatedWorld(requests...); w != nil {
		return w.someReplicated(context.Background(), false, requests)
	}
	var errs []error
	for i, r := range requests {
		if r.isInactive() {
			continue
		}
		if st, ok, err := r.Test(); ok || err != nil {
			done, statuses, errs = append(done, i), append(statuses, st), append(errs, err)
		}
	}
	return done, statuses, errors.Join(errs...)
}

// Testany reports whether one of the requests is complete, and if so its index, and its Wait's
// result (MPI_Testany); if all requests are nil or inactive the index is Undefined.
func Testany(requests ...*Request) (i int, st Status, done bool, err error) {
	if w := replicatedWorld(requests...); w != nil {
		return w.testanyReplicated(requests)
	}
	open := false
	for i, r := range requests {
		if r.isInactive() {
			continue
		}
		open = true
		if st, done, err := r.Test(); done || err != nil {
			return i, st, true, err
		}
	}
	return Undefined, emptyStatus, !open, nil
}

// Testall reports whether all the requests are complete, and if so Waitall's result (MPI_Testall).
func Testall(requests ...*Request) ([]Status, bool, error) {
	if w := replicatedWorld(requests...); w != nil {
		return w.testallReplicated(requests)
	}
	for _, r := range requests {
		if !r.isInactive() && len(complete(r)) == 0 {
			return nil, false, nil
		}
	}
	statuses, err := Waitall(context.Background(), requests...)
	return statuses, true, err
}

// waitAnyOpen is waitAny, except that an Isendrecv counts as complete as soon as another of its transfers is.
func waitAnyOpen(ctx context.Context, requests []*Request) (int, error) {
	var world *World // of the last one
	mixed := false
	open, cores, at := make([]*Request, 0, len(requests)), make([]*engine.Handle, 0, len(requests)), make([]int, 0, len(requests))
	for i, r := range requests {
		if r.isInactive() {
			continue
		}
		if r = r.open(); r.unstarted {
			return i, nil
		}
		mixed = mixed || world != nil && world != r.comm.world
		open, cores, at, world = append(open, r), append(cores, &r.core), append(at, i), r.comm.world
	}
	if len(cores) == 0 {
		return Undefined, nil
	}
	var i int
	var err error
	switch {
	case mixed:
		i, err = waitany.Wait(ctx, watchedRequests(open))
	case world.watch != nil:
		i, err = world.watch.WaitAny(ctx, watchedRequests(open), cores)
	default:
		i, err = engine.WaitAnyHandle(ctx, cores, -1)
	}
	if err != nil {
		return Undefined, fmt.Errorf("mpilib: waiting for any of %d requests: %w", len(cores), err)
	}
	return at[i], nil
}

// watchedRequests are requests as a watcher sees them.
func watchedRequests(requests []*Request) []debug.Request {
	watched := make([]debug.Request, len(requests))
	for i, r := range requests {
		watched[i] = (*watchedRequest)(r)
	}
	return watched
}
