package mpilib

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// A watcher follows what the program does, for the debug mode and the timeline. Where nobody watches
// World.watch is nil, Requests have no sighting, and that is all that is looked at.
//
// Locks: mu is taken before the engine's and a communicator's, never while either is
// held. Nothing is sent and nothing is written while it is.
type watcher struct {
	world    *World
	parts    debugParts
	out      io.Writer
	patience time.Duration
	timeline *timeline // nil where none is wanted

	acts atomic.Uint64 // calls that began and that ended
	stop context.CancelFunc
	work sync.WaitGroup

	leaks    leaks
	checks   checks
	audit    audit
	deadlock deadlocks

	mu    sync.Mutex // guards the rest, and the four
	waits map[*waiting]struct{}
	comms map[uint32]seenComm // by context: those that are not freed
}

// seenComm is a communicator that can be used.
type seenComm struct {
	comm *Comm
	made callsite
	own  bool // the program made it, and frees it
}

// sighting is what a watcher knows of a request.
type sighting struct {
	w    *watcher
	call callsite
	coll *calling // the collective call that it is a part of; nil: the program's own
	is   *calling // the collective call that it is; else nil

	// For the timeline.
	context uint32
	bytes   int
	id      string // of its message; empty: not known
	ended   atomic.Bool
}

// waiting is a goroutine that waits: for one or any of several requests, for a
// message to probe, or for the other ranks to come to a collective call.
type waiting struct {
	call     callsite
	since    time.Time
	requests []*Request
	probe    *transfer
	coll     *calling
	span     span // in the timeline
}

// watched makes a watcher if there is something to watch; it is for Init.
func (w *World) watched() error {
	if w.config.debug&^debugTypes == 0 && w.config.trace == "" {
		return nil
	}
	x := &watcher{
		world: w, parts: w.config.debug, out: w.config.debugOut, patience: w.config.patience,
		waits: map[*waiting]struct{}{}, comms: map[uint32]seenComm{},
	}
	x.leaks.init()
	x.checks.init()
	x.audit.init()
	x.deadlock.init()
	for _, c := range []*Comm{w.comm, w.comms.self, w.comms.whereabouts.comm} {
		x.comms[c.context] = seenComm{comm: c}
	}
	if w.config.trace != "" {
		var err error
		if x.timeline, err = newTimeline(x, w.config.trace); err != nil {
			return err
		}
	}
	w.watch = x
	return nil
}

// serve starts what a watcher does besides the program's calls. It is nil where nobody
// watches.
func (w *watcher) serve() {
	if w == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.work.Go(func() { w.listen(ctx) })
	w.work.Go(func() { w.look(ctx) })
	if t := w.timeline; t != nil {
		w.work.Go(func() { t.serve(ctx) })
	}
}

// end stops watching; the engine is closed.
func (w *watcher) end() error {
	if w == nil {
		return nil
	}
	if w.stop != nil {
		w.stop()
	}
	w.work.Wait()
	if w.timeline == nil {
		return nil
	}
	return w.timeline.close()
}

// sees reports whether a part of the debug mode is on.
func (w *watcher) sees(part debugParts) bool { return w.parts&part != 0 }

// report writes what a person is to know.
func (w *watcher) report(format string, args ...any) {
	text := fmt.Sprintf("isthmus debug: "+format, args...)
	if text[len(text)-1] != '\n' {
		text += "\n"
	}
	io.WriteString(w.out, text) // there is nobody to tell that it failed
}

// started is told of a request for n bytes that is about to start.
func (w *watcher) started(r *Request, context uint32, n int) {
	w.acts.Add(1)
	r.own().seen = &sighting{w: w, context: context}
	if context == r.what().comm.context { // else the collective call says the rest
		r.seen.call = here()
		if w.sees(debugLeaks) {
			w.leaks.started(w, r)
		}
	}
	if w.timeline != nil {
		w.timeline.started(r, n)
	}
}

// partOf is told of which collective call a request is a part.
func (s *sighting) partOf(c *calling, send bool) {
	s.coll = c
	if t := s.w.timeline; t != nil && c != nil && send {
		t.partSent(s)
	}
}

// told is told that the program has learned how its request ended.
func (s *sighting) told(r *Request) {
	s.w.acts.Add(1)
	if s.coll == nil && s.w.sees(debugLeaks) {
		s.w.mu.Lock()
		delete(s.w.leaks.open, r)
		s.w.mu.Unlock()
	}
	if t := s.w.timeline; t != nil {
		t.ended(r)
	}
}

// await is Request.await for one that is watched.
func (s *sighting) await(ctx context.Context, r *Request) error {
	if s.coll != nil {
		if err := s.coll.agreed(ctx); err != nil {
			r.core.Wait(gone) // gives the buffer back
			return err
		}
		if t := s.w.timeline; t != nil {
			defer t.ended(r)
		}
	}
	if r.core.Done() {
		return nil
	}
	if s.coll != nil && s.coll.alone {
		r.core.Wait(ctx)
		return nil
	}
	x := &waiting{requests: []*Request{r}}
	switch {
	case s.coll != nil:
		x.call = s.coll.call
	case s.is != nil:
		x.call, x.coll, x.requests = here(), s.is, nil
	default:
		x.call = here()
	}
	s.w.begin(x)
	defer s.w.finish(x)
	r.core.Wait(ctx)
	return nil
}

// gone is a context that is done.
var gone = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// begin is told that a goroutine waits.
func (w *watcher) begin(x *waiting) {
	w.acts.Add(1)
	x.since = time.Now()
	w.mu.Lock()
	w.waits[x] = struct{}{}
	w.mu.Unlock()
	if w.timeline != nil && !x.inside() {
		x.span = w.timeline.begin()
	}
}

// inside reports whether the wait is a part of a collective call, which the timeline
// has as one.
func (x *waiting) inside() bool {
	return x.coll != nil && !x.coll.alone || len(x.requests) > 0 && x.requests[0].seen.coll != nil
}

// finish is told that it does no more.
func (w *watcher) finish(x *waiting) {
	w.acts.Add(1)
	w.mu.Lock()
	delete(w.waits, x)
	w.mu.Unlock()
	if w.timeline != nil && !x.inside() {
		w.timeline.finish(x.span, x.call.name, map[string]any{"what": x.what(), "line": x.call.line})
	}
}

// what is waited for, in words.
func (x *waiting) what() string {
	switch {
	case x.probe != nil:
		return x.probe.String()
	case x.coll != nil:
		return fmt.Sprintf("%s on %s", x.coll.call.name, x.coll.comm.Name())
	}
	s := x.requests[0].what().String()
	if more := len(x.requests) - 1; more > 0 {
		s += fmt.Sprintf(", or any of %d more", more)
	}
	return s
}

// left is told that a call on a communicator ends.
func (w *watcher) left(c *Comm) {
	if w.timeline == nil {
		return
	}
	w.timeline.left(c)
	if c.inner != nil {
		w.timeline.left(c.inner)
	}
}

// detached is told of a collective call that goes on by itself, as a request.
func (w *watcher) detached(r *Request, is *calling) {
	r.own().seen = &sighting{w: w, is: is, call: is.call}
	if w.sees(debugLeaks) {
		w.leaks.started(w, r)
	}
}

// leftBehind is told that it has ended, or is only prepared.
func (w *watcher) leftBehind(is *calling) {
	w.acts.Add(1)
	if w.timeline != nil {
		w.timeline.over(is)
	}
}

// waitAny is engine.WaitAny for requests of a world.
func (w *watcher) waitAny(ctx context.Context, requests []*Request, cores []*engine.Handle) (int, error) {
	if w == nil {
		return engine.WaitAnyHandle(ctx, cores, -1)
	}
	x := &waiting{call: here()}
	for _, r := range requests {
		if r != nil && !r.never {
			x.requests = append(x.requests, r)
		}
	}
	if s := x.requests[0].seen; s != nil && s.coll != nil && s.coll.alone {
		return engine.WaitAnyHandle(ctx, cores, -1)
	}
	w.begin(x)
	defer w.finish(x)
	return engine.WaitAnyHandle(ctx, cores, -1)
}

// probing is told that a probe waits; what it returns is to be called at its end.
func (w *watcher) probing(t transfer) (over func()) {
	if w == nil {
		return func() {}
	}
	x := &waiting{call: here(), probe: &t}
	w.begin(x)
	return func() { w.finish(x) }
}

// made is told of a communicator that the program has now.
func (w *watcher) made(c *Comm, at callsite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.comms[c.context] = seenComm{comm: c, made: at, own: true}
}

// lent is told of an intercommunicator's local one.
func (w *watcher) lent(inner *Comm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.comms[inner.context] = seenComm{comm: inner}
}

// freed is told that the program has it no more.
func (w *watcher) freed(c *Comm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.comms, c.context)
	if c.inner != nil {
		delete(w.comms, c.inner.context)
	}
}

// madeBy notes which call made the communicator, for one that goes on by itself.
func (c *Comm) madeBy(call *collectiveCall) {
	if call.seen != nil {
		c.world.watch.made(c, call.seen.call)
	}
}

// line says for an error where the program's call is, if somebody watches.
func (w *watcher) line() string {
	if w == nil {
		return ""
	}
	return here().at()
}

// line says for an error where the call was, if that is known.
func (r *Request) line() string {
	if r.seen == nil || r.seen.call.line == "" {
		return ""
	}
	return " (" + r.seen.call.line + ")"
}
