package engine

import (
	"context"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// Mode is the communication mode of a send.
type Mode = protocol.Mode

const (
	Standard    = protocol.Standard
	Synchronous = protocol.Synchronous
	Buffered    = protocol.Buffered
	Copied      = protocol.Copied
)

const (
	idle     = protocol.Idle
	waiting  = protocol.Waiting
	moving   = protocol.Moving
	complete = protocol.Completed
)

// Result is the outcome of a request.
type Result = protocol.Result

// A Request is one send or receive. The zero Request is ready for Isend or
// Irecv, and again once it is complete.
type Request struct {
	protocol.Request
	e     *Engine
	group Group

	task     func(error)     // of a task of the owner: cancels it
	reader   *linkTransport  // which its waiter is reading
	done     chan struct{}   // created by the first sleeping waiter; closed when complete
	watchers []chan struct{} // waiters for any of several requests
	users    int             // waiters through its Handle

	hold     bool   // somebody waits for it
	orphan   bool   // replaces an abandoned request
	mark     uint64 // of the last byte of it that the link refers to
	uncopied bool   // it is an eager message, all of which the link refers to: it is complete once that is taken back
	exposed  bool   // its buffer is exposed to a peer of this node
	slot     int    // the copy slot

	posting *replica.Receive // of a receive, where ranks have replicas
}

// begin resets r to a waiting request. mu is held.
func (r *Request) begin(e *Engine, g Group, ctxID uint32, peer, tag int, buf []byte) {
	if r.State != idle && r.State != complete {
		panic("engine: a request is started that is under way")
	}
	*r = Request{}
	r.e, r.group = e, g
	r.Begin(r, ctxID, peer, tag, buf)
}

// finish completes r. mu is held.
func (r *Request) finish(err error) {
	if r.Complete(err) {
		r.wakeWaiters()
	}
}

// wakeWaiters makes the waiters of r, which is complete or cannot become so, check it again. mu is held.
func (r *Request) wakeWaiters() {
	if r.done != nil {
		close(r.done)
		r.done = nil
	}
	for _, c := range r.watchers {
		wake(c)
	}
	if n := &r.e.rings; n.spinning {
		n.attention.Store(true)
	}
	if r.reader != nil && r.reader.reading.blocked { // otherwise it may block for ever
		r.reader.interruptRead()
	}
}

// Done reports whether the request is complete.
func (r *Request) Done() bool {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.test()
}

// test makes progress, and reports whether the request is complete. mu is held, and may be released.
func (r *Request) test() bool {
	if r.State != complete {
		r.e.idle.writeLeft()
		r.e.rings.pollOnce()
	}
	if r.isUncopied() {
		r.takeBack()
	}
	return r.State == complete
}

// isUncopied reports whether r is complete as soon as its buffer is taken back from the link. mu is held.
func (r *Request) isUncopied() bool { return r.uncopied && r.State == waiting }

func (r *Request) takeBack() { r.e.peers[r.Peer].transport.link.takeBack(r) }

// Finished returns a channel that is closed when the request is complete or, where it is
// a receive from any source, when a process has failed: then check, and call it again.
func (r *Request) Finished() <-chan struct{} {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.finished()
}

func (r *Request) finished() chan struct{} {
	if r.State == complete { // completed may still follow
		return closedChannel
	}
	if r.done == nil {
		r.done = make(chan struct{})
	}
	return r.done
}

// Result returns the result of a completed request.
func (r *Request) Result() (Result, error) { return r.Got, r.Err }

// Wait returns when the request is complete or, if ctx is done before, when it
// been abandoned: a receive matches no message any more, a send may or may
// not arrive. The buffer belongs to the caller again, except with
// ErrProcFailedPending: then the request stays pending.
func (r *Request) Wait(ctx context.Context) (Result, error) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if err := r.wait(ctx); err != nil {
		return Result{}, err
	}
	return r.Got, r.Err
}

// maxPushes is how often a waiter writes before it takes its message back: others may send behind it all the time.
const maxPushes = 64

// wait returns when r is complete, or why it is held up. mu is held, and released meanwhile.
func (r *Request) wait(ctx context.Context) error {
	e := r.e
	r.hold = true
	for pushes := 0; r.State != complete; {
		if ctx.Err() != nil && r.GiveUp == nil {
			if err := e.replicas.expired(context.Cause(ctx)); r.State != complete {
				r.abandon(err)
			}
			continue
		}
		if err := r.blockedBy(); err != nil {
			return err
		}
		t := r.linkToServe()
		if r.GiveUp != nil { // the goroutine that transfers its bytes completes it
			t = nil
		}
		switch {
		case t != nil && r.IsSend && (t.unflushed || slices.Contains(e.idle.left, t)) && (pushes < maxPushes || !r.isUncopied()):
			t.push()
			pushes++
		case len(e.idle.left) > 0:
			e.idle.writeLeft()
		case r.isUncopied():
			r.takeBack()
		case r.usesRings():
			e.rings.poll(ctx, r)
		case t != nil && t.readable():
			t.readForWaiter(ctx, r)
		default:
			r.sleep(ctx, t)
		}
	}
	if t := r.linkToServe(); t != nil && t.unflushed { // what others have left to this waiter
		if r.IsSend && t.reading.forRequest == nil && t.reading.waiters == 0 {
			e.idle.leaves(t) // the next wait for a send writes it: most wait for several in turn
		} else { // the answer to it may be waited for
			t.flush(true)
		}
	}
	return nil
}

// usesRings reports whether the rings are to be polled for r. mu is held.
func (r *Request) usesRings() bool {
	e := r.e
	switch {
	case len(e.rings.peers) == 0 || r.GiveUp != nil || r.Peer == e.cfg.Rank:
		return false
	case r.Peer == AnySource:
		e.wakeReaders()
		return true
	}
	return e.peers[r.Peer].transport.fromRing
}

// isMet and changed make a Request a condition.
func (r *Request) isMet() bool { return r.State == complete || r.blockedBy() != nil }

func (r *Request) changed() <-chan struct{} { return r.finished() }

// linkToServe returns the link that is to be read for r, if it is one, or written to. mu is held.
func (r *Request) linkToServe() *linkTransport {
	e, rank := r.e, r.Peer
	if e.replicas != nil {
		return e.replicas.linkToServe(r)
	}
	if rank == AnySource && e.remote == 1 && e.cfg.Size == 2 {
		rank = 1 - e.cfg.Rank
	}
	if rank == AnySource || rank == e.cfg.Rank {
		return nil
	}
	return &e.peers[rank].transport.link
}

// sleep waits until r may have made progress. mu is held, and released meanwhile.
func (r *Request) sleep(ctx context.Context, t *linkTransport) {
	e := r.e
	done := r.finished()
	var token chan struct{}
	if t != nil {
		t.reading.waiters++
		token = t.reading.token
	} else {
		e.wakeReaders()
	}
	stop := ctx.Done()
	if r.GiveUp != nil {
		stop = nil
	}
	e.mu.Unlock()
	select {
	case <-done:
	case <-token:
	case <-stop:
	}
	e.mu.Lock()
	if t != nil {
		t.leaveToken()
	}
}

// wakeReaders makes every link's own goroutine read it: a waiter cannot know which link
// its message will use. mu is held.
func (e *Engine) wakeReaders() {
	for _, p := range e.peers {
		if p != nil && p.transport.connected() {
			p.transport.link.wakeReader()
		}
	}
}

// abandon makes r complete soon, with err unless it completes normally before. mu is held.
func (r *Request) abandon(err error) {
	e := r.e
	switch {
	case r.task != nil:
		r.GiveUp = err
		r.task(err)
	case e.replicas != nil && e.replicas.abandon(r, err):
	case r.State == moving && r.IsSend:
		r.GiveUp = err
	case r.State == moving:
		r.GiveUp = err
		if r.From != nil { // otherwise it is being copied
			e.peers[r.From.Process].stopReceive(r)
		}
	case !r.IsSend:
		e.core.Withdraw(&r.Request)
		r.finish(err)
	case r.Peer == e.cfg.Rank:
		e.core.AbandonSelf(&r.Request, err)
		e.carryOut()
	default:
		e.peers[r.Peer].abandon(r, err)
	}
}

// Cancel marks the request for cancellation (MPI-4.1, section 3.8.4): it either
// completes as if it had not been started, which Result.Cancelled says, or as if
// it had not been cancelled.
func (r *Request) Cancel() {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.cancel()
}

func (r *Request) cancel() {
	e := r.e
	switch {
	case r.State == complete, r.task != nil:
		return
	case e.replicas != nil && e.replicas.cancel(r):
	case !r.IsSend:
		e.core.CancelReceive(&r.Request)
	case r.Peer == e.cfg.Rank:
		e.core.CancelSelf(&r.Request)
	default:
		e.peers[r.Peer].proto.CancelSend(&r.Request)
	}
	e.carryOut()
}

// WaitAny returns the index of a request that is complete or that a failure blocks, as soon as there is one, or
// the error of ctx, which abandons none of them. All belong to one engine. Where first is not
// negative, the caller itself reads the link of that request's peer; the other links are read
// once they were idle for a tick.
func WaitAny(ctx context.Context, rs []*Request, first int) (int, error) {
	e := rs[0].e
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.newAny()
	w.rs = append(w.rs, rs...)
	return w.wait(ctx, first, false)
}

// anyOf waits for one of several requests.
type anyOf struct {
	rs  []*Request
	any chan struct{} // created when a waiter sleeps; signalled when one of them is complete
}

// newAny returns an unused anyOf without requests; wait returns it for reuse. mu is held.
func (e *Engine) newAny() *anyOf {
	w := e.freeAny
	if w == nil {
		return &anyOf{}
	}
	e.freeAny = nil
	w.rs = w.rs[:0]
	return w
}

// wait waits for one of the requests; counted says that it is counted in their users. mu is
// held, and released meanwhile.
func (w *anyOf) wait(ctx context.Context, first int, counted bool) (int, error) {
	e := w.rs[0].e
	defer w.forget(counted)
	for {
		if i := slices.IndexFunc(w.rs, (*Request).isMet); i >= 0 {
			return i, nil
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		e.idle.writeLeft()
		if w.takeBack() {
			continue
		}
		if first < 0 {
			e.wakeReaders()
		} else {
			e.idle.startChecks()
			if t := w.rs[first].linkToServe(); t != nil && !t.bellsOnly {
				w.readFor(ctx, t)
				continue
			}
		}
		if len(e.rings.peers) > 0 {
			e.rings.poll(ctx, w)
			continue
		}
		w.sleep(ctx, nil)
	}
}

// takeBack takes back what is lent, until one of the requests is complete, and reports whether one is. mu is held, and may be
// released.
func (w *anyOf) takeBack() bool {
	for _, r := range w.rs {
		r.hold = true
		if r.isUncopied() {
			r.takeBack()
		}
		if r.State == complete {
			return true
		}
	}
	return false
}

// readFor reads a link until one of the requests is complete or there is other work to
// do; while another goroutine reads the link it sleeps. mu is held, and released meanwhile.
func (w *anyOf) readFor(ctx context.Context, t *linkTransport) {
	if !t.readable() {
		t.reading.waiters++
		w.sleep(ctx, t.reading.token)
		t.leaveToken()
		return
	}
	t.takeReading(ctx)
	for _, r := range w.rs { // any that completes interrupts the read
		r.reader = t
	}
	for !w.isMet() && t.servesWaiters() && ctx.Err() == nil {
		t.readOnce(false)
	}
	for _, r := range w.rs {
		r.reader = nil
	}
	t.releaseReading(false)
}

// sleep waits until one of the requests may be complete, or the token is the caller's. mu is
// held, and released meanwhile.
func (w *anyOf) sleep(ctx context.Context, token <-chan struct{}) {
	e, signal := w.rs[0].e, w.changed()
	e.mu.Unlock()
	select {
	case <-signal:
	case <-token:
	case <-ctx.Done():
	}
	e.mu.Lock()
}

// forget removes w from its requests. mu is held.
func (w *anyOf) forget(counted bool) {
	e := w.rs[0].e
	if counted {
		for _, r := range w.rs {
			r.users--
		}
	}
	if w.any != nil {
		for _, r := range w.rs {
			r.watchers = slices.DeleteFunc(r.watchers, func(c chan struct{}) bool { return c == w.any })
		}
		w.any = nil
	}
	clear(w.rs)
	e.freeAny = w
}

func (w *anyOf) isMet() bool {
	return slices.ContainsFunc(w.rs, (*Request).isMet)
}

func (w *anyOf) changed() <-chan struct{} {
	if w.any == nil {
		w.any = make(chan struct{}, 1)
		for _, r := range w.rs {
			r.watchers = append(r.watchers, w.any)
		}
	}
	if w.isMet() { // the caller may have given mu up since it looked
		wake(w.any)
	}
	return w.any
}
