package engine

import "time"

// tick is how long a link may be idle before the peer's own goroutine reads it.
const tick = time.Millisecond

// idleWatch controls the check, every tick, for links and rings that no goroutine serves. The
// engine's lock guards it.
type idleWatch struct {
	runs  bool // checks are due every tick
	start chan struct{}
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

// checkIdle wakes the reader of each link that was idle since the last call, and
// reports whether to call it again.
func (e *Engine) checkIdle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
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
