package debug

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// A Watcher observes the program for the debug mode and the timeline. Without one, it is nil and
// Requests have no Observation, which are the only checks needed: the methods that say so may be
// called on a nil Watcher.
//
// Locks: mu is taken before the engine's and a communicator's, never while either is held. Nothing
// is sent or written while it is held.
type Watcher struct {
	cfg      Config
	timeline *timeline // nil if not wanted

	acts atomic.Uint64 // number of calls that began and that ended
	stop context.CancelFunc
	work sync.WaitGroup

	leaks    leaks
	checks   checks
	audit    audit
	deadlock deadlocks

	mu    sync.Mutex // guards the fields below, and the four above
	waits map[*waiting]struct{}
	comms map[uint32]seenComm // by context: not freed yet
}

// seenComm is a usable communicator.
type seenComm struct {
	comm    *comm.Core
	created Callsite
	own     bool // created by the program, which frees it
}

// Observation is a Watcher's record of a request.
type Observation struct {
	w    *Watcher
	call Callsite
	coll *PendingCall // the collective call that it is part of; nil for the program's own
	is   *PendingCall // the collective call that it is; otherwise nil

	// For the timeline.
	context uint32
	id      string // of its message; empty if unknown
	ended   atomic.Bool
}

// waiting is a goroutine that waits: for one or any of several requests, for a message to probe, or
// for the other ranks to enter a collective call.
type waiting struct {
	call     Callsite
	since    time.Time
	requests []Request
	probe    *comm.Transfer
	coll     *PendingCall
	span     span // in the timeline

	elsewhere bool // a request of another world may end it
}

// New returns a Watcher that is not active yet (Serve).
func New(cfg Config) (*Watcher, error) {
	w := &Watcher{cfg: cfg, waits: map[*waiting]struct{}{}, comms: map[uint32]seenComm{}}
	w.leaks.init()
	w.checks.init()
	w.audit.init()
	w.deadlock.init()
	for _, c := range cfg.Comms {
		w.comms[c.Context] = seenComm{comm: c}
	}
	if cfg.Trace != "" {
		var err error
		if w.timeline, err = newTimeline(w, cfg.Trace); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Serve starts the Watcher's background work, until End. w may be nil.
func (w *Watcher) Serve() {
	if w == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.work.Go(func() { w.listen(ctx) })
	w.work.Go(func() { w.checkWaits(ctx) })
	if t := w.timeline; t != nil {
		w.work.Go(func() { t.serve(ctx) })
	}
}

// End stops the Watcher; the engine is closed. w may be nil.
func (w *Watcher) End() error {
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

// enabled reports whether a part of the debug mode is enabled.
func (w *Watcher) enabled(part Parts) bool { return w.cfg.Parts&part != 0 }

// report writes a report for the user.
func (w *Watcher) report(format string, args ...any) {
	text := fmt.Sprintf("isthmus debug: "+format, args...)
	if text[len(text)-1] != '\n' {
		text += "\n"
	}
	io.WriteString(w.cfg.Out, text) // a failure of the report itself cannot be reported
}

// Started records a request for n bytes that is about to start.
func (w *Watcher) Started(r Request, context uint32, n int) {
	w.acts.Add(1)
	s := &Observation{w: w, context: context}
	r.SetObservation(s)
	if context == r.Transfer().Comm.Context { // otherwise the collective call reports the rest
		s.call = CurrentCallsite()
		if w.enabled(Leaks) {
			w.leaks.started(w, r)
		}
	}
	if w.timeline != nil {
		w.timeline.started(r, n)
	}
}

// Watcher returns the Watcher of s.
func (s *Observation) Watcher() *Watcher { return s.w }

// SetCall records the collective call that a request is part of.
func (s *Observation) SetCall(c *PendingCall, send bool) {
	s.coll = c
	if t := s.w.timeline; t != nil && c != nil && send {
		t.partSent(s)
	}
}

// CompletionSeen records that the program has seen the completion of its request.
func (s *Observation) CompletionSeen(r Request) {
	s.w.acts.Add(1)
	if s.coll == nil && s.w.enabled(Leaks) {
		s.w.mu.Lock()
		delete(s.w.leaks.open, r)
		s.w.mu.Unlock()
	}
	if t := s.w.timeline; t != nil {
		t.ended(r)
	}
}

// Wait is Request.Wait for an observed request.
func (s *Observation) Wait(ctx context.Context, r Request) error {
	if s.coll != nil {
		if err := s.coll.Agreed(ctx); err != nil {
			r.Handle().Wait(gone) // releases the buffer
			return err
		}
		if t := s.w.timeline; t != nil {
			defer t.ended(r)
		}
	}
	if r.Handle().Done() {
		return nil
	}
	if s.coll != nil && s.coll.alone {
		r.Handle().Wait(ctx)
		return nil
	}
	x := &waiting{requests: []Request{r}}
	switch {
	case s.coll != nil:
		x.call = s.coll.call
	case s.is != nil:
		x.call, x.coll, x.requests = CurrentCallsite(), s.is, nil
	default:
		x.call = CurrentCallsite()
	}
	s.w.begin(x)
	defer s.w.finish(x)
	r.Handle().Wait(ctx)
	return nil
}

// gone is a context that is done.
var gone = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// begin records that a goroutine waits.
func (w *Watcher) begin(x *waiting) {
	w.acts.Add(1)
	x.since = time.Now()
	w.mu.Lock()
	w.waits[x] = struct{}{}
	w.mu.Unlock()
	if w.timeline != nil && !x.inside() {
		x.span = w.timeline.begin()
	}
}

// inside reports whether the wait is part of a collective call, which the timeline shows as one.
func (x *waiting) inside() bool {
	return x.coll != nil && !x.coll.alone || len(x.requests) > 0 && x.requests[0].Observation().coll != nil
}

// finish records the end of a wait.
func (w *Watcher) finish(x *waiting) {
	w.acts.Add(1)
	w.mu.Lock()
	delete(w.waits, x)
	w.mu.Unlock()
	if w.timeline != nil && !x.inside() {
		w.timeline.finish(x.span, x.call.name, map[string]any{"what": x.what(), "line": x.call.line})
	}
}

// what returns a text for what is waited for.
func (x *waiting) what() string {
	switch {
	case x.probe != nil:
		return x.probe.String()
	case x.coll != nil:
		return fmt.Sprintf("%s on %s", x.coll.call.name, x.coll.comm.Name())
	}
	s := x.requests[0].Transfer().String()
	if more := len(x.requests) - 1; more > 0 {
		s += fmt.Sprintf(", or any of %d more", more)
	}
	return s
}

// Left records the end of a call on a communicator.
func (w *Watcher) Left(c *comm.Core) {
	if w.timeline != nil {
		w.timeline.left(c)
	}
}

// Detached records a nonblocking collective call, as a request.
func (w *Watcher) Detached(r Request, is *PendingCall) {
	r.SetObservation(&Observation{w: w, is: is, call: is.call})
	if w.enabled(Leaks) {
		w.leaks.started(w, r)
	}
}

// LeftBehind records that it has ended, or is only prepared.
func (w *Watcher) LeftBehind(is *PendingCall) {
	w.acts.Add(1)
	if w.timeline != nil {
		w.timeline.over(is)
	}
}

// WaitAny is engine.WaitAnyHandle for requests with the given handles. One that is not observed is for work that this process
// may complete: such a wait is not recorded.
func (w *Watcher) WaitAny(ctx context.Context, requests []Request, handles []*engine.Handle) (int, error) {
	unobserved := slices.ContainsFunc(requests, func(r Request) bool { return r.Observation() == nil })
	if s := requests[0].Observation(); !unobserved && (s.coll == nil || !s.coll.alone) {
		defer w.WaitingAny(requests, false)()
	}
	return engine.WaitAnyHandle(ctx, handles, -1)
}

// WaitingAny records a wait for any of the requests, all of which w observes, or, where elsewhere is set, for one of another
// world; the caller calls the returned function at its end.
func (w *Watcher) WaitingAny(requests []Request, elsewhere bool) (over func()) {
	x := &waiting{call: CurrentCallsite(), requests: requests, elsewhere: elsewhere}
	w.begin(x)
	return func() { w.finish(x) }
}

// Probing records a waiting probe; the caller calls the returned function at its end.
func (w *Watcher) Probing(t comm.Transfer) (over func()) {
	x := &waiting{call: CurrentCallsite(), probe: &t}
	w.begin(x)
	return func() { w.finish(x) }
}

// Created records a new communicator of the program and the call that created it.
func (w *Watcher) Created(c *comm.Core, at Callsite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.comms[c.Context] = seenComm{comm: c, created: at, own: true}
}

// CreatedLocal records an intercommunicator's local communicator.
func (w *Watcher) CreatedLocal(inner *comm.Core) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.comms[inner.Context] = seenComm{comm: inner}
}

// Freed records that the program has freed it, by its context.
func (w *Watcher) Freed(context uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.comms, context)
}

// Line returns, for an error, the program's current call, if there is a Watcher: w may be nil.
func (w *Watcher) Line() string {
	if w == nil {
		return ""
	}
	return CurrentCallsite().At()
}

// Line returns, for an error, where the call was made, if known: s may be nil.
func (s *Observation) Line() string {
	if s == nil || s.call.line == "" {
		return ""
	}
	return " (" + s.call.line + ")"
}
