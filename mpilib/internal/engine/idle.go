package engine

import (
	"slices"
	"time"
)

// tick is how long a link may be idle before the peer's own goroutine reads it.
const tick = time.Millisecond

// idleWatch controls the check, every tick, for links and rings that no goroutine serves. The
// engine's lock guards it.
type idleWatch struct {
	runs  bool // checks are due every tick
	start chan struct{}
	left  []*linkTransport // whose sockets have not taken all, and nobody writes the rest
}

// leaves notes that a link's socket has not taken all, and nobody writes the rest. mu is held.
func (w *idleWatch) leaves(t *linkTransport) {
	w.writes(t) // once
	w.left = append(w.left, t)
	w.startChecks()
}

// writes notes that somebody is about to write what was left of a link. mu is held.
func (w *idleWatch) writes(t *linkTransport) {
	if len(w.left) > 0 {
		w.left = slices.DeleteFunc(w.left, func(q *linkTransport) bool { return q == t })
	}
}

// writeLeft has goroutines of the streams write what was left. mu is held, and may be released.
func (w *idleWatch) writeLeft() {
	for len(w.left) > 0 {
		w.left[0].flush(true) // removes it
	}
}

// startChecks starts the checks: a link, or the rings, may be without a goroutine. mu is held.
func (w *idleWatch) startChecks() {
	if !w.runs {
		w.runs = true
		wake(w.start)
	}
}

// watchIdle calls checkIdle every tick while any link has no permanent reader.
func (e *Engine) watchIdle() {
	clock := time.NewTimer(tick)
	defer clock.Stop()
	for {
		select {
		case <-e.idle.start:
		case <-e.ctx.Done():
			return
		}
		for again := true; again; {
			clock.Reset(tick)
			select {
			case <-clock.C:
			case <-e.ctx.Done():
				return
			}
			again = e.checkIdle()
		}
	}
}

// checkIdle wakes the reader of each link that was idle since the last call, has written what was left, and
// reports whether to call it again.
func (e *Engine) checkIdle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idle.writeLeft()
	again := e.rings.checkIdle()
	for _, p := range e.peers {
		if p == nil || !p.transport.connected() || p.proto.Failed != nil {
			continue
		}
		if p.transport.link.checkIdle() {
			again = true
		}
	}
	e.idle.runs = again
	return again
}
