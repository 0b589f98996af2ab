package mpilib

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/wire"
)

// sayGoodbye makes sure that every peer has read what was sent to it. The
// goodbye goes behind the last message of each link; the peer's reader
// confirms it by itself. A peer without a link to which messages wait is
// waited for, too: its link is under way.
func (e *engine) sayGoodbye(ctx context.Context) error {
	e.mu.Lock()
	if e.closed != nil {
		e.mu.Unlock()
		return nil
	}
	e.closed = fmt.Errorf("rank %d: %w", e.rank, ErrFinalized)
	var open []*peer
	for _, p := range e.peers {
		if p == nil || p.link == nil && len(p.queue) == 0 && p.failed == nil {
			continue
		}
		open = append(open, p)
		p.wakeReader() // it stops at no limit any more
		if !p.gone {
			p.control(wire.EnvelopeGoodbye)
		}
	}
	e.abandonReceives()
	e.mu.Unlock()

	var errs []error
	for _, p := range open {
		select {
		case <-p.confirmed:
		case <-ctx.Done():
		}
		if err := p.farewell(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// farewell says what went wrong with a peer's goodbye.
func (p *peer) farewell(ctx context.Context) error {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	switch {
	case p.isClosed && p.failed != nil && !p.gone && !p.confirmedFirst:
		return p.failed
	case p.isClosed || p.gone:
		return nil
	}
	return fmt.Errorf("rank %d of the world has not confirmed that it read everything: %w", p.rank, ctx.Err())
}

// abandonReceives fails every receive that is still posted. mu is held.
func (e *engine) abandonReceives() {
	for _, m := range e.contexts {
		for _, r := range m.posted {
			e.unpost(r)
			e.finish(r, e.closed)
		}
		for _, msg := range m.unexpected {
			if msg.sender != nil {
				e.finish(msg.sender, e.closed)
			}
		}
		m.posted, m.unexpected = nil, nil
	}
	e.wakeProbes()
}

// shut ends every link and goroutine of the engine and returns when they are
// gone. Requests that are not complete fail.
func (e *engine) shut() {
	e.cancel()
	e.mu.Lock()
	for _, p := range e.peers {
		if p != nil {
			p.fail(e.closed)
		}
	}
	e.mu.Unlock()
	e.wg.Wait()
	for _, p := range e.peers {
		if p == nil || p.link == nil {
			continue
		}
		if done := p.link.Done(); done != nil {
			<-done // bounded by the link
		}
	}
}
