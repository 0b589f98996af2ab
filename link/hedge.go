package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// This file does not take a path for good because the network connected it: somebody
// on the way may drop what does not look as they expect, or carry so little that not
// even a handshake gets through, or large packets may vanish. While a handshake takes long
// a relay is dialled beside it, with small packets, and whichever is ready first goes on.

// A handshake that takes longer than hedgeAfter, and longer than hedgeTimes what it took
// to connect, is one on a path in doubt.
const (
	hedgeAfter = 500 * time.Millisecond
	hedgeTimes = 4
)

// slow returns how long a handshake on a path may take before the path is in doubt.
func slow(p overlay.Path) time.Duration { return max(hedgeAfter, hedgeTimes*p.Setup) }

// What is said of a path whose handshake failed. Where nothing came it may be the size of the
// packets. A part of a padded hello shows that those of full size pass: then it is the path.
var (
	errStalled     = fmt.Errorf("%w: the path connected, and then carried no handshake", overlay.ErrTimeout)
	errTrickle     = fmt.Errorf("%w: the path connected, and then carried only a part of a hello in time", overlay.ErrUnreachable)
	errClosedEarly = fmt.Errorf("%w: the path connected, and was closed before anything came", overlay.ErrUnreachable)
)

// shaken is how the handshake on a carrier that was dialled ended.
type shaken struct {
	link   *Link
	chosen bool // the pair had chosen the carrier, even if it broke then
	err    error
}

// hedge shakes hands on a carrier, and on a relay if the carrier's path is slow to carry that.
func (m *Mesh) hedge(ctx context.Context, a *attempt, peer overlay.ProcessName, id wire.ID, c overlay.Carrier) shaken {
	if c.Path.Technique == 0 || c.Path.Technique == overlay.Relay && c.Path.Small {
		return m.shakeDialled(ctx, a, peer, id, c)
	}
	direct, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	done := make(chan shaken, 1)
	m.work.Go(func() { done <- m.shakeDialled(direct, a, peer, id, c) })
	timer := time.NewTimer(slow(c.Path))
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
	}
	dial, cancel := context.WithCancel(ctx)
	defer cancel()
	relays := make(chan overlay.Carrier, 1) // closed without one that failed
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
			return m.goOver(ctx, a, peer, id, c, relay, func() shaken { return r })
		}
		return r
	case relay, ok := <-relays:
		if !ok {
			return <-done
		}
		return m.goOver(ctx, a, peer, id, c, relay, func() shaken { giveUp(errStalled); return <-done })
	}
}

// ended reports whether no other carrier is wanted.
func (r shaken) ended() bool { return r.err == nil || r.chosen || final(r.err) }

// goOver ends the handshake on a slow carrier, by giveUp, and goes on with a relay, unless
// the slow one has got there after all. What the relay achieves proves that the slow path was to blame.
func (m *Mesh) goOver(ctx context.Context, a *attempt, peer overlay.ProcessName, id wire.ID, slow, relay overlay.Carrier, giveUp func() shaken) shaken {
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

// settle says what came of the handshake on a carrier, if anybody wants to know.
func settle(c overlay.Carrier, err error) {
	if c.Outcome != nil {
		c.Outcome(err)
	}
}

// settleFailed says what came of a handshake that failed, where that says something of the
// path, and reports whether nothing came on it.
func settleFailed(c overlay.Carrier, err error) (silent bool) {
	switch {
	case errors.Is(err, context.Canceled): // there was more time
	case errors.Is(err, errTrickle), errors.Is(err, errClosedEarly):
		settle(c, err)
	case stalled(err):
		settle(c, err)
		return true
	}
	return false
}

// stalled reports whether a handshake failed because nothing came any more.
func stalled(err error) bool {
	return errors.Is(err, overlay.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
}

// shakeDialled shakes hands on a carrier that this end dialled, and makes a link of it if
// the pair wants it.
func (m *Mesh) shakeDialled(ctx context.Context, a *attempt, peer overlay.ProcessName, id wire.ID, c overlay.Carrier) (r shaken) {
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
		// The proof was on its way or about to be: whether the peer has the link shows
		// when the next carrier asks for it.
		settleFailed(c, err)
		r.link, r.err = m.carrierless(c, got, err)
	default:
		if ctx.Err() == nil {
			settleFailed(c, err)
		}
		r.err = err
	}
	return r
}
