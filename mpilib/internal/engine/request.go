package engine

import (
	"context"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
)

// Mode is the communication mode of a send (MPI-4.1, section 3.4).
type Mode uint8

const (
	Standard    Mode = iota
	Synchronous      // complete once a receive has matched the message
	Buffered         // complete at once: the message is copied
)

// A Request is one send or receive. The zero Request is ready for Isend or
// Irecv, and again once it is complete.
type Request struct {
	post  match.Receive[*Request] // of a receive
	e     *Engine
	group Group
	send  bool
	mode  Mode
	state requestState
	ctxID uint32
	peer  int // world rank, or AnySource
	tag   int
	buf   []byte // owned by the engine until complete

	self     *message        // of a send to this process
	task     func(error)     // of a task of the owner: cancels it
	reader   *peer           // whose link its waiter is reading
	done     chan struct{}   // created by the first sleeping waiter; closed when complete
	watchers []chan struct{} // waiters for any of several requests
	users    int             // waiters through its Handle
	err      error
	giveUp   error // why it is to end, while moving
	got      Result

	id      uint32 // of an RTS or a synchronous send
	at      int    // bytes that were sent, or received, so far
	cleared bool   // the CTS has come
	ended   bool   // the receiver needs no more bytes, while moving
	orphan  bool   // replaces one that was given up
	mark    uint64 // of the last byte of it that the link refers to
	exposed bool   // its buffer is exposed to a peer of this node
	slot    int    // the copy slot
}

// requestState is the state of a request:
//
//	idle -> waiting -> moving -> complete
//	           '--------------------^
type requestState uint8

const (
	idle     requestState = iota
	waiting               // in a table, a queue, or announced
	moving                // its bytes are being read or written
	complete              // the buffer is the caller's again
)

// Result is the outcome of a request.
type Result struct {
	Source    int    // world rank
	Tag       int    // of the message
	Bytes     uint64 // of the message, which may be more than the buffer's with ErrTruncate
	Cancelled bool
}

// begin resets r to a waiting request. mu is held.
func (r *Request) begin(e *Engine, g Group, ctxID uint32, peer, tag int, buf []byte) {
	if r.state != idle && r.state != complete {
		panic("engine: a request is started that is under way")
	}
	*r = Request{}
	r.e, r.group, r.state, r.ctxID, r.peer, r.tag, r.buf = e, g, waiting, ctxID, peer, tag, buf
}

// finish completes r. mu is held.
func (r *Request) finish(err error) {
	if r.state == complete {
		return
	}
	r.state, r.err, r.buf = complete, err, nil
	if r.done != nil {
		close(r.done)
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
	if r.state != complete {
		r.e.pollOnce()
	}
	return r.state == complete
}

// Finished returns a channel that is closed when the request is complete or, where it is
// a receive from any source, when a process has failed: then look, and ask again.
func (r *Request) Finished() <-chan struct{} {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.finished()
}

func (r *Request) finished() chan struct{} {
	if r.done == nil {
		r.done = make(chan struct{})
		if r.state == complete {
			close(r.done)
		}
	}
	return r.done
}

// Result is for requests that are complete.
func (r *Request) Result() (Result, error) { return r.got, r.err }

// Wait returns when the request is complete or, if ctx is done before, when it
// has been given up: a receive matches no message any more, a send may or may
// not arrive. In every case but one the buffer belongs to the caller again: with
// ErrProcFailedPending the request goes on.
func (r *Request) Wait(ctx context.Context) (Result, error) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if err := r.wait(ctx); err != nil {
		return Result{}, err
	}
	return r.got, r.err
}

// wait returns when r is complete, or why it is held up. mu is held, and released meanwhile.
func (r *Request) wait(ctx context.Context) error {
	e := r.e
	for r.state != complete {
		if ctx.Err() != nil && r.giveUp == nil {
			r.abandon(context.Cause(ctx))
			continue
		}
		if err := r.holdError(); err != nil {
			return err
		}
		p := r.served()
		if r.giveUp != nil { // the goroutine that moves its bytes knows
			p = nil
		}
		switch {
		case p != nil && r.send && p.writable():
			p.writeForWaiter(ctx)
		case r.polled():
			e.poll(ctx, r)
		case p != nil && r.send && p.writing.byWriter:
			p.awaitWriteToken(ctx, r)
		case p != nil && p.readable():
			p.readForWaiter(ctx, r)
		default:
			r.sleep(ctx, p)
		}
	}
	if p := r.served(); p != nil && p.writable() { // for others, perhaps the next that is waited for
		e.noteIdle()
	}
	return nil
}

// polled reports whether the rings are to be polled for r. mu is held.
func (r *Request) polled() bool {
	e := r.e
	switch {
	case len(e.rings.peers) == 0 || r.giveUp != nil || r.peer == e.cfg.Rank:
		return false
	case r.peer == AnySource:
		e.wakeReaders()
		return true
	}
	return e.peers[r.peer].shm.open
}

// met makes a Request what somebody waits for at the rings, as signal does.
func (r *Request) met() bool { return r.state == complete || r.holdError() != nil }

func (r *Request) changed() <-chan struct{} { return r.finished() }

// served returns the peer whose link is to be read for r, if it is one. mu is held.
func (r *Request) served() *peer {
	e := r.e
	if r.peer != AnySource {
		return e.peers[r.peer]
	}
	if e.remote == 1 && e.cfg.Size == 2 {
		for _, p := range e.peers {
			if p != nil {
				return p
			}
		}
	}
	return nil
}

// sleep waits until r may have made progress. mu is held, and released meanwhile.
func (r *Request) sleep(ctx context.Context, p *peer) {
	e := r.e
	done := r.finished()
	var turn chan struct{}
	if p != nil {
		p.reading.waiters++
		turn = p.reading.token
	} else {
		e.wakeReaders()
	}
	stop := ctx.Done()
	if r.giveUp != nil {
		stop = nil
	}
	e.mu.Unlock()
	select {
	case <-done:
	case <-turn:
	case <-stop:
	}
	e.mu.Lock()
	if p != nil {
		p.reading.waiters--
	}
}

// wakeReaders makes every link's own goroutine read it: a waiter cannot know which link
// its message comes by. mu is held.
func (e *Engine) wakeReaders() {
	for _, p := range e.peers {
		if p != nil && p.link != nil && !p.reading.busy {
			wake(p.reading.wake)
		}
	}
}

// abandon makes r complete soon, with err unless it completes normally before. mu is held.
func (r *Request) abandon(err error) {
	e := r.e
	switch {
	case r.task != nil:
		r.giveUp = err
		r.task(err)
	case r.state == moving && r.send:
		r.giveUp = err
		if r.peer != e.cfg.Rank && !r.exposed {
			e.peers[r.peer].interruptWrite()
		}
	case r.state == moving:
		r.giveUp = err
		if r.got.Source != e.cfg.Rank { // otherwise it is being copied
			e.peers[r.got.Source].stopReceive(r)
		}
	case !r.send:
		e.contextOf(r.ctxID).table.Withdraw(&r.post)
		r.finish(err)
	case r.peer == e.cfg.Rank:
		e.abandonSelf(r, err)
	default:
		e.peers[r.peer].abandon(r, err)
	}
}

// Cancel marks the request for cancellation (MPI-4.1, section 3.8.4): it either
// completes as if it had never been made, which Result.Cancelled says, or as if
// it had not been cancelled.
func (r *Request) Cancel() {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.cancel()
}

func (r *Request) cancel() {
	e := r.e
	switch {
	case r.state == complete, r.task != nil:
	case !r.send:
		if r.state == waiting && e.contextOf(r.ctxID).table.Withdraw(&r.post) {
			r.got.Cancelled = true
			r.finish(nil)
		}
	case r.peer == e.cfg.Rank:
		if r.state == waiting && e.withdrawSelf(r) {
			r.got.Cancelled = true
			r.finish(nil)
		}
	default:
		e.peers[r.peer].cancel(r)
	}
}

// WaitAny returns the index of a request that is complete or Held, as soon as there is one, or
// the error of ctx, which gives up none of them. All belong to one engine. Where first is not
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

// wait waits for one of them; counted says that they have it among their users. mu is
// held, and given up meanwhile.
func (w *anyOf) wait(ctx context.Context, first int, counted bool) (int, error) {
	e := w.rs[0].e
	defer w.forget(counted)
	for {
		if i := slices.IndexFunc(w.rs, (*Request).met); i >= 0 {
			return i, nil
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if first < 0 {
			e.wakeReaders()
		} else {
			e.noteIdle()
			if p := w.rs[first].served(); p != nil && !p.shm.open {
				w.readFor(ctx, p)
				continue
			}
		}
		if len(e.rings.peers) > 0 {
			e.poll(ctx, w)
			continue
		}
		w.sleep(ctx, nil)
	}
}

// readFor reads a peer's link until one of the requests is complete or there is other work to
// do; while another goroutine reads the link it sleeps. mu is held, and released meanwhile.
func (w *anyOf) readFor(ctx context.Context, p *peer) {
	if !p.readable() {
		p.reading.waiters++
		w.sleep(ctx, p.reading.token)
		p.reading.waiters--
		return
	}
	p.reading.busy = true
	p.reading.count++
	p.reading.ctx.watch(p.e, ctx, p.interruptRead)
	for _, r := range w.rs { // whichever is complete interrupts
		r.reader = p
	}
	for !w.met() && p.failed == nil && !p.shm.open && ctx.Err() == nil {
		p.step(false)
	}
	for _, r := range w.rs {
		r.reader = nil
	}
	p.release(false)
}

// sleep waits until one of the requests may be complete, or the token is the caller's. mu is
// held, and given up meanwhile.
func (w *anyOf) sleep(ctx context.Context, turn <-chan struct{}) {
	e, signal := w.rs[0].e, w.changed()
	e.mu.Unlock()
	select {
	case <-signal:
	case <-turn:
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

func (w *anyOf) met() bool {
	return slices.ContainsFunc(w.rs, (*Request).met)
}

func (w *anyOf) changed() <-chan struct{} {
	if w.any == nil {
		w.any = make(chan struct{}, 1)
		for _, r := range w.rs {
			r.watchers = append(r.watchers, w.any)
		}
	}
	return w.any
}
