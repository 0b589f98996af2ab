package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// That the network connected a path does not mean that it can carry a link: a middlebox may drop
// traffic that does not look as it expects, the path may be too slow for even a handshake, or large
// packets may vanish. While a handshake takes long, the code in this file dials a relay in
// parallel, with small packets, and uses whichever is ready first.

// A path is in doubt when its handshake takes longer than hedgeAfter and longer than hedgeTimes its
// connection setup.
const (
	hedgeAfter = 500 * time.Millisecond
	hedgeTimes = 4
)

// slow returns how long a handshake on a path may take before the path is in doubt.
func slow(p overlay.Path) time.Duration { return max(hedgeAfter, hedgeTimes*p.Setup) }

// Errors for a path whose handshake failed. If nothing arrived, the size of the packets may be the
// cause. If part of a padded hello arrived, full-sized packets pass, so the path itself is the
// cause.
var (
	errStalled     = fmt.Errorf("%w: the path connected, and then carried no handshake", overlay.ErrTimeout)
	errTrickle     = fmt.Errorf("%w: the path connected, and then carried only a part of a hello in time", overlay.ErrUnreachable)
	errClosedEarly = fmt.Errorf("%w: the path connected, and was closed before anything came", overlay.ErrUnreachable)
)

// handshakeResult is the outcome of the handshake on a dialled carrier.
type handshakeResult struct {
	link   *Link
	chosen bool // the pair had chosen the carrier, even if it broke then
	err    error
}

// hedge performs the handshake on a carrier, and in parallel on a relay if the carrier's path is
// slow to complete it.
func (m *Mesh) hedge(ctx context.Context, a *attempt, peer overlay.ProcessName, id wire.ID, c overlay.Carrier) handshakeResult {
	if c.Path.Technique == 0 || c.Path.Technique == overlay.Relay && c.Path.Small {
		return m.shakeDialled(ctx, a, peer, id, c)
	}
	direct, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	done := make(chan handshakeResult, 1)
	m.work.Go(func() { done <- m.shakeDialled(direct, a, peer, id, c) })
	timer := time.NewTimer(slow(c.Path))
	defer timer.Stop()
	for inDoubt := false; !inDoubt; inDoubt = !m.isHeld(a) { // a path that brought the peer's proof is in no doubt
		select {
		case r := <-done:
			return r
		case <-timer.C:
			timer.Reset(slow(c.Path))
		}
	}
	dial, cancel := context.WithCancel(ctx)
	defer cancel()
	relays := make(chan overlay.Carrier, 1) // closed without a value if the dial failed
	m.work.Go(func() {
		defer close(relays)
		if relay, err := m.cfg.Connector.Dial(dial, peer, overlay.RelayOnly|overlay.SmallPackets); err == nil {
			relays <- relay
		}
	})
	select {
	case r := <-done:
		if r.ended() {
			cancel()
			m.work.Go(func() {
				if relay, ok := <-relays; ok {
					relay.Conn.Close()
				}
			})
			return r
		}
		if relay, ok := <-relays; ok {
			return m.goOver(ctx, a, peer, id, c, relay, func() handshakeResult { return r })
		}
		return r
	case relay, ok := <-relays:
		if !ok {
			return <-done
		}
		if m.isHeld(a) {
			relay.Conn.Close()
			return <-done
		}
		return m.goOver(ctx, a, peer, id, c, relay, func() handshakeResult { giveUp(errStalled); return <-done })
	}
}

// ended reports whether no other carrier is needed.
func (r handshakeResult) ended() bool { return r.err == nil || r.chosen || final(r.err) }

// goOver ends the handshake on a slow carrier by calling giveUp, and continues on a relay unless
// the slow handshake completed after all. If the relay succeeds, the slow path was to blame.
func (m *Mesh) goOver(ctx context.Context, a *attempt, peer overlay.ProcessName, id wire.ID, slow, relay overlay.Carrier, giveUp func() handshakeResult) handshakeResult {
	r := giveUp()
	if r.ended() {
		relay.Conn.Close()
		return r
	}
	slowness := errStalled
	if errors.Is(r.err, errTrickle) {
		slowness = errTrickle
	}
	r = m.shakeDialled(ctx, a, peer, id, relay)
	if r.err == nil {
		settle(slow, slowness)
	}
	return r
}

// settle reports the outcome of the handshake on a carrier, if it has an Outcome callback.
func settle(c overlay.Carrier, err error) {
	if c.Outcome != nil {
		c.Outcome(err)
	}
}

// settleFailed reports the outcome of a failed handshake if the failure says something about the
// path, and reports whether nothing arrived on it.
func settleFailed(c overlay.Carrier, err error) (silent bool) {
	switch {
	case errors.Is(err, context.Canceled): // the deadline had not passed
	case errors.Is(err, errTrickle), errors.Is(err, errClosedEarly):
		settle(c, err)
	case stalled(err):
		settle(c, err)
		return true
	}
	return false
}

// stalled reports whether a handshake failed because data stopped arriving.
func stalled(err error) bool {
	return errors.Is(err, overlay.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
}

// shakeDialled performs the handshake on a carrier that this end dialled, and makes a link of it if
// the pair accepts it.
func (m *Mesh) shakeDialled(ctx context.Context, a *attempt, peer overlay.ProcessName, id wire.ID, c overlay.Carrier) (r handshakeResult) {
	handshake, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	t := terms{link: id, admit: func(h *wire.Hello) (uint64, error) {
		err := m.ready(ctx, a, h.Generation)
		r.chosen = err == nil
		return 0, err
	}}
	carrier, got, err := runHandshake(handshake, c, m.cfg.Self, &peer, t)
	switch {
	case err == nil:
		settle(c, nil)
		r.link, r.err = m.lasting(carrier, got, true)
	case r.chosen && c.Path.Technique != 0 && m.serving():
		// The proof was in flight or about to be sent: whether the peer has the link becomes known
		// when the next carrier asks for it.
		settleFailed(c, err)
		r.link, r.err = m.carrierless(c, got, err)
	case r.chosen && ctx.Err() == nil && m.serving() && !stalled(err): // on one node only the end of the process ends a carrier
		r.err = fmt.Errorf("%v: %w: %w", peer, overlay.ErrEnded, err)
	default:
		if ctx.Err() == nil {
			settleFailed(c, err)
		}
		r.err = err
	}
	return r
}
