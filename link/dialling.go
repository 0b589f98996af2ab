package link

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// startDial starts the pair's own dial. mu is held.
func (m *Mesh) startDial(a *attempt) {
	ctx, cancel := context.WithCancel(m.serve)
	a.cancelDial, a.refused = cancel, false
	m.work.Go(func() {
		defer cancel()
		m.dial(ctx, a)
	})
}

func (m *Mesh) dial(ctx context.Context, a *attempt) {
	l, err := m.tryDial(ctx, a)
	if err == nil {
		m.handUp(a, l)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil || a.err == nil {
		a.err = err
	}
	switch {
	case l != nil: // this end had committed itself
		m.step(a, event{kind: evLost})
	case ctx.Err() == nil || m.serve.Err() != nil: // otherwise it was cancelled, and the pair has gone on
		m.step(a, event{kind: evDialFailed})
	}
}

// tryDial dials until a carrier survives its handshake. A link returned with an error means that
// the pair had chosen the carrier when it broke.
func (m *Mesh) tryDial(ctx context.Context, a *attempt) (*Link, error) {
	peer := overlay.ProcessName{Job: m.cfg.Self.Process.Job, Rank: a.rank}
	pause := firstPause
	var id wire.ID
	rand.Read(id[:])      // never fails (crypto/rand). One id for all attempts: by it the peer knows that the previous one failed
	var refused time.Time // when the peer first reported that it has a link
	for try := 1; ; try++ {
		c, err := m.cfg.Connector.Dial(ctx, peer, overlay.AllWays)
		if err != nil {
			return nil, err
		}
		r := m.hedge(ctx, a, peer, id, c)
		if r.err == nil {
			return r.link, nil
		}
		m.record(a, r.err)
		switch {
		case r.chosen:
			return new(Link), r.err
		case ctx.Err() != nil || final(r.err):
			return nil, r.err
		case errors.Is(r.err, overlay.ErrDuplicate):
			// The peer has a link that this end does not have: the peer does not know yet that the
			// first carrier ended. When it does, it dials for that link again, and that dial
			// counts; or it gives the link up in the end.
			if refused.IsZero() {
				refused, pause = time.Now(), duplicatePause
			}
			if m.parks(ctx, a) || time.Since(refused) > m.cfg.Patience {
				return nil, r.err
			}
			try = 0
		case try == maxDials:
			return nil, r.err
		}
		if sleep.For(ctx, pause) != nil {
			return nil, r.err
		}
		pause = min(4*pause, lastPause)
	}
}

// record keeps why a carrier broke.
func (m *Mesh) record(a *attempt, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.broke = err
}

// The pauses between dials that broke in their handshakes: they grow fourfold, and start from
// duplicatePause when the peer reports that it has a link.
const (
	firstPause     = 20 * time.Millisecond
	lastPause      = 1280 * time.Millisecond
	duplicatePause = 320 * time.Millisecond
)

// final reports whether another carrier would meet the same refusal.
func final(err error) bool {
	for _, class := range []error{overlay.ErrForbidden, overlay.ErrStale, overlay.ErrRefused, wire.ErrVersion, wire.ErrMalformed, wire.ErrType} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
