package connhelper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// attempts says how the asker's helper carries out each technique. Package coordinate
// distinguishes the negotiated ones.
var attempts = map[overlay.Technique]struct {
	run   func(*dialler, context.Context, *frontal, *process, target, overlay.Step) (readyConn, error)
	bound time.Duration // of the whole attempt
	dials bool          // it opens a connection out of the site at once, which is counted
}{
	overlay.Direct:           {(*dialler).direct, attemptTimeout, true},
	overlay.PortRange:        {(*dialler).direct, attemptTimeout, true},
	overlay.Reversed:         {(*dialler).reversed, attemptTimeout, false},
	overlay.SimultaneousOpen: {(*dialler).negotiated, agreeTimeout, false},
	overlay.Traversing:       {(*dialler).negotiated, agreeTimeout, false},
	overlay.HolePunching:     {(*dialler).negotiated, agreeTimeout, false},
	overlay.Relay:            {(*dialler).relay, relayTimeout, true},
}

// attempt carries out one step of a plan from the asker's side.
func (d *dialler) attempt(ctx context.Context, p *process, to target, step overlay.Step) (readyConn, error) {
	f, err := d.uplink.frontalFor(ctx, p)
	if err != nil {
		return readyConn{}, err
	}
	ctx, small := d.sizes.sized(ctx, to, time.Now())
	kind := step.Technique.Kind()
	a, ok := attempts[step.Technique]
	if !ok {
		return readyConn{}, fmt.Errorf("%w: this helper does not know the technique; upgrade it", wire.ErrVersion)
	}
	if kind.Negotiated() {
		if err := d.outbound.skipReason(step.Technique); err != nil {
			return readyConn{}, err
		}
	}
	if a.dials {
		inside := kind != overlay.ByProxy && to.point.Node.Site == d.node.Site
		var end func()
		if ctx, end, err = d.outbound.dialSlot(ctx, f, inside, maxBudget); err != nil {
			return readyConn{}, err
		}
		defer end()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.bound, fmt.Errorf("%w after %v", overlay.ErrTimeout, a.bound))
	defer cancel()
	m, err := a.run(d, ctx, f, p, to, step)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, overlay.ErrTimeout) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return readyConn{}, err
	}
	m.path.Technique, m.path.Via, m.path.Reason, m.path.Peer = step.Technique, step.Via, withLimits(step.Reason, m.limits), to.point.Node
	m.path.Small = small
	return m, nil
}

// direct dials the target's helper, or the frontal of its site, and sends the intro. It does not
// wait for an answer: the first one comes from the process, or is a refusal that the process reads.
func (d *dialler) direct(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	addr, inside := to.point.Public, to.point.Node.Site == d.node.Site
	switch {
	case inside:
		addr = to.point.Local
	case step.IPv6 && !addr.Addr().Is6():
		if addr = to.point.Public6; !addr.IsValid() {
			return readyConn{}, fmt.Errorf("%w: %v listens nowhere that this site can dial over IPv6; profile.networks of its frontal may declare no network of IPv6, or its helper may be older", overlay.ErrUnreachable, to.point.Node)
		}
	}
	if !addr.IsValid() {
		return readyConn{}, fmt.Errorf("%w: %v listens nowhere that this site can dial; its port range may be full", overlay.ErrUnreachable, to.point.Node)
	}
	c, limits, err := d.outbound.reach(ctx, f, journey{addrs: []string{addr.String()}, inside: inside, foreign: !inside, asker: p.name, target: to.point.Process})
	if err != nil {
		return readyConn{}, err
	}
	intro := &wire.Intro{
		Kind: wire.IntroProcess, Job: to.point.Process.Job, Rank: to.point.Process.Rank,
		From: d.node, Technique: step.Technique, Via: step.Via,
	}
	if err := writeFrame(ctx, c, intro); err != nil {
		return readyConn{}, err
	}
	s, err := d.socketFor(c)
	return readyConn{conn: s, limits: limits}, err
}

// withLimits adds what limits the connections of a technique to the reason for it, so that the user
// can see which limit applies.
func withLimits(reason string, limits []string) string {
	for _, l := range limits {
		if l != "" {
			reason += "; " + l
		}
	}
	return reason
}

// reversed asks the target's helper to dial back, and waits for the connection that presents the
// connect-id.
func (d *dialler) reversed(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	back := f.public
	switch {
	case to.point.Node.Site == d.node.Site:
		back = f.local
	case step.IPv6 && !back.Addr().Is6():
		back = f.public6
	}
	if !back.IsValid() && !f.profile.GatewayOnly {
		return readyConn{}, fmt.Errorf("%w: this node listens nowhere that %s can dial", overlay.ErrUnreachable, to.point.Node.Site)
	}
	id := newID()
	arrival, cancel := d.here.expect(id)
	defer cancel()
	request := d.signalRequest(p, to, overlay.Reversed)
	request.ConnectId = id[:]
	if back.IsValid() {
		request.ConnectAddress = back.String()
	}
	out := d.signal(ctx, f, request, nil)
	defer out.End()
	done := out.Done()
	for {
		select {
		case c := <-arrival:
			tune(c)
			return readyConn{conn: c}, nil
		case <-done:
			if _, err := out.Result(); err != nil {
				return readyConn{}, err
			}
			done = nil // from now on only the connection itself counts
		case <-ctx.Done():
			if !out.Has(controlpb.SignalEvent_ACCEPTED) { // the target's side has not started to dial
				return readyConn{}, signalling.Unanswered(ctx, controlpb.SignalEvent_ACCEPTED)
			}
			return readyConn{}, fmt.Errorf("%w: waited for helper %v to dial back", context.Cause(ctx), to.point.Node)
		}
	}
}

// writeFrame writes a frame as the first bytes of c, and closes c if that fails.
func writeFrame(ctx context.Context, c carrier.Stream, f wire.Frame) error {
	return write(ctx, c, wire.Append(nil, f))
}

func write(ctx context.Context, c carrier.Stream, b []byte) error {
	if deadline, ok := ctx.Deadline(); ok {
		c.SetWriteDeadline(deadline)
	}
	if _, err := c.Write(b); err != nil {
		c.Close()
		return fmt.Errorf("%w: %w", overlay.ErrUnreachable, err)
	}
	return c.SetWriteDeadline(time.Time{})
}

func newID() (id wire.ID) {
	rand.Read(id[:]) // never fails (crypto/rand)
	return id
}

func idOf(b []byte) (wire.ID, error) {
	if len(b) != len(wire.ID{}) {
		return wire.ID{}, fmt.Errorf("an id of %d bytes, want %d", len(b), len(wire.ID{}))
	}
	return wire.ID(b), nil
}
