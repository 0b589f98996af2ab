package engine

import (
	"context"
	"errors"
	"sync/atomic"
)

// A Handle is a program's reference to a send or a receive. The Request behind it belongs
// to the engine, which reuses it once the transfer has succeeded and its result was taken:
// the Handle keeps the result from then on. So a transfer needs no memory but its Handle's.
// Safe for concurrent use once started; it must not be copied after that, and is started once.
//
// Each waiter with a Request is counted in its users, with mu held: the last one
// takes the result and returns the Request to the engine.
type Handle struct {
	e      *Engine
	r      atomic.Pointer[Request] // changed with mu held; nil: the fields below are valid
	bytes  uint64
	source int32
	tag    int32 // or wasCancelled
}

const wasCancelled = -2 // no tag of a message

// maxFreeRequests is how many Requests an engine keeps for reuse: usually more than a program has
// pending at a time.
const maxFreeRequests = 1 << 10

// Engine returns the engine of a started transfer.
func (h *Handle) Engine() *Engine { return h.e }

// newRequest returns an unused Request. mu is held.
func (e *Engine) newRequest() *Request {
	if n := len(e.freeRequests); n > 0 {
		r := e.freeRequests[n-1]
		e.freeRequests = e.freeRequests[:n-1]
		return r
	}
	return new(Request)
}

// freeRequest keeps a completed Request for reuse, unless it failed: then it may
// still be referenced. mu is held.
func (e *Engine) freeRequest(r *Request) {
	if r.Err == nil && r.users == 0 && len(e.freeRequests) < maxFreeRequests {
		r.group, r.done, r.watchers = nil, nil, nil
		e.freeRequests = append(e.freeRequests, r)
	}
}

// StartSend is Isend for a Handle.
func (e *Engine) StartSend(h *Handle, g Group, ctxID uint32, dst, tag int, b []byte, mode Mode, hold bool) {
	h.e = e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sendNow(g, ctxID, dst, tag, b, mode) {
		e.Settle(h, Result{Source: e.cfg.Rank, Tag: tag, Bytes: uint64(len(b))})
		return
	}
	r := e.newRequest()
	e.isend(r, g, ctxID, dst, tag, b, mode, hold && e.replicas == nil) // see Isend
	h.begin(r)
}

// StartRecv is Irecv for a Handle.
func (e *Engine) StartRecv(h *Handle, g Group, ctxID uint32, src, tag int, b []byte) {
	h.e = e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.startError(g, ctxID) == nil {
		if got, ok := e.recvDirect(ctxID, src, tag, b, false); ok {
			e.Settle(h, got)
			return
		}
	}
	r := e.newRequest()
	e.irecv(r, g, ctxID, src, tag, b)
	h.begin(r)
}

// StartRecv is Irecv for a Handle.
func (m Matched) StartRecv(h *Handle, g Group, b []byte) {
	h.e = m.e
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	r := m.e.newRequest()
	m.irecv(r, g, b)
	h.begin(r)
}

// begin stores the Request, or its result if it is complete already. mu is held.
func (h *Handle) begin(r *Request) {
	h.r.Store(r)
	h.settle(r)
}

// settle takes the result of a Request that has succeeded and has no other users,
// and returns the Request to the engine. mu is held.
func (h *Handle) settle(r *Request) {
	if r.State != complete || r.Err != nil || r.users > 0 {
		return
	}
	h.bytes, h.source, h.tag = r.Got.Bytes, int32(r.Got.Source), int32(r.Got.Tag)
	if r.Got.Cancelled {
		h.tag = wasCancelled
	}
	h.r.Store(nil)
	h.e.freeRequest(r)
}

// Settle makes h, which was not started, the Handle of a transfer that has succeeded.
func (e *Engine) Settle(h *Handle, got Result) {
	h.e, h.bytes, h.source, h.tag = e, got.Bytes, int32(got.Source), int32(got.Tag)
}

// HasResult reports whether h, which Settle made, has that result.
func (h *Handle) HasResult(got Result) bool {
	return h.bytes == got.Bytes && int(h.source) == got.Source && int(h.tag) == got.Tag && !got.Cancelled
}

// settledResult returns the result of a settled Handle.
func (h *Handle) settledResult() Result {
	if h.tag == wasCancelled {
		return Result{Cancelled: true}
	}
	return Result{Source: int(h.source), Tag: int(h.tag), Bytes: h.bytes}
}

// Settled returns the result of a Handle that has succeeded and whose result was taken before.
func (h *Handle) Settled() (got Result, ok bool) {
	if h.r.Load() != nil {
		return got, false
	}
	return h.settledResult(), true
}

// Wait is Request.Wait.
func (h *Handle) Wait(ctx context.Context) (Result, error) {
	if h.r.Load() == nil {
		return h.settledResult(), nil
	}
	e := h.e
	e.mu.Lock()
	defer e.mu.Unlock()
	r := h.r.Load()
	if r == nil {
		return h.settledResult(), nil
	}
	r.users++
	err := r.wait(ctx)
	r.users--
	if err != nil {
		return Result{}, err
	}
	got, err := r.Got, r.Err
	h.settle(r)
	return got, err
}

// Result returns the result of a completed transfer.
func (h *Handle) Result() (Result, error) {
	var got Result
	var err error
	if !h.withRequest(func(r *Request) { got, err = r.Got, r.Err; h.settle(r) }) {
		return h.settledResult(), nil
	}
	return got, err
}

// withRequest calls f with the Request, with mu held, or returns false if the Handle is settled.
func (h *Handle) withRequest(f func(*Request)) bool {
	if h.r.Load() == nil {
		return false
	}
	h.e.mu.Lock()
	defer h.e.mu.Unlock()
	r := h.r.Load()
	if r == nil {
		return false
	}
	f(r)
	return true
}

// Done is Request.Done.
func (h *Handle) Done() (done bool) {
	return !h.withRequest(func(r *Request) {
		r.users++
		done = r.test()
		r.users--
	}) || done
}

// closedChannel is what Finished returns for settled Handles.
var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Finished is Request.Finished.
func (h *Handle) Finished() <-chan struct{} {
	c := closedChannel
	h.withRequest(func(r *Request) { c = r.finished() })
	return c
}

// Cancel is Request.Cancel.
func (h *Handle) Cancel() { h.withRequest((*Request).cancel) }

// BlockedBy is Request.BlockedBy.
func (h *Handle) BlockedBy() (err error) {
	h.withRequest(func(r *Request) { err = r.blockedBy() })
	return err
}

// FailBlocked is Request.FailBlocked.
func (h *Handle) FailBlocked() { h.withRequest((*Request).failBlocked) }

// Unmatched is Request.Unmatched.
func (h *Handle) Unmatched() (is bool) {
	h.withRequest(func(r *Request) { is = r.unmatched() })
	return is
}

// WaitAnyHandle is WaitAny of Handles, at least one, all of one engine.
func WaitAnyHandle(ctx context.Context, hs []*Handle, first int) (int, error) {
	e := hs[0].e
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, h := range hs {
		if h.r.Load() == nil {
			return i, nil
		}
	}
	w := e.newAny()
	for _, h := range hs {
		r := h.r.Load()
		r.users++
		w.rs = append(w.rs, r)
	}
	return w.wait(ctx, first, true)
}

// SendNow sends a message that is copied at once, and reports whether it did. If not, nothing
// has changed, and StartSend is to be called.
func (e *Engine) SendNow(g Group, ctxID uint32, dst, tag int, b []byte, mode Mode) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sendNow(g, ctxID, dst, tag, b, mode)
}

// Send is Isend and Wait in one call.
func (e *Engine) Send(ctx context.Context, g Group, ctxID uint32, dst, tag int, b []byte, mode Mode) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sendNow(g, ctxID, dst, tag, b, mode) {
		return nil
	}
	r := e.newRequest()
	e.isend(r, g, ctxID, dst, tag, b, mode, true)
	if e.replicas != nil {
		e.replicas.writeHeld(ctx)
	}
	_, err := e.finishNow(ctx, r)
	return err
}

// Recv is Irecv and Wait in one call, except that it abandons a receive that a failure blocks.
func (e *Engine) Recv(ctx context.Context, g Group, ctxID uint32, src, tag int, b []byte) (Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.startError(g, ctxID) == nil {
		if got, ok := e.recvDirect(ctxID, src, tag, b, true); ok {
			return got, nil
		}
	}
	r := e.newRequest()
	e.irecv(r, g, ctxID, src, tag, b)
	return e.finishNow(ctx, r)
}

// finishNow waits for a Request that has no other users, and frees it. mu is held, and
// released meanwhile.
func (e *Engine) finishNow(ctx context.Context, r *Request) (Result, error) {
	for r.State != complete {
		if err := r.wait(ctx); errors.Is(err, ErrProcFailedPending) {
			r.failBlocked()
		}
	}
	got, err := r.Got, r.Err
	e.freeRequest(r)
	return got, err
}
