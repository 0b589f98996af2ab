package connhelper

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/overlay"
)

// negotiated carries out a technique of package coordinate from the asker's side, or makes the
// gateway do so for a node without a route out.
func (d *dialler) negotiated(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	if f.profile.GatewayOnly {
		return d.negotiatedByGateway(ctx, f, p, to, step)
	}
	side := d.traversals.side(f, journey{asker: p.name, target: to.point.Process})
	if step.IPv6 {
		var err error
		if side, err = side.OverIPv6(); err != nil {
			return readyConn{}, err
		}
	}
	var out *outgoing // the last: it outlasts the answer, and reports the other end's result later
	c, _, err := signalling.Ask(ctx, side, step.Technique, to.point.Node.String(), step.Port, func(offer []byte, failed func(error)) *signalling.Call {
		request := d.signalRequest(p, to, step.Technique)
		request.Offer = offer
		out = d.signal(ctx, f, request, failed)
		return out.Call
	})
	if err != nil {
		return readyConn{}, err
	}
	out.detach()
	limits := d.site.version(c, step.IPv6)
	s, err := d.socketFor(c)
	if err != nil {
		out.End()
		return readyConn{}, err
	}
	keep := func(next []byte) { side.Keep(to.point.Node.String(), next) }
	return readyConn{conn: s, limits: limits, handed: d.watch(out, keep)}, nil
}

// negotiatedByGateway makes the frontal act as the asker's end, and fetches the connection from it.
func (d *dialler) negotiatedByGateway(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	request := d.signalRequest(p, to, step.Technique)
	request.Port, request.Ipv6 = uint32(step.Port), step.IPv6
	out := d.signal(ctx, f, request, nil)
	accepted, err := out.Await(ctx, controlpb.SignalEvent_ACCEPTED)
	if errors.Is(err, signalling.ErrUnanswered) { // the gateway sends the event when it is connected: it may have tried all the time
		err = fmt.Errorf("%w: waited for the gateway to connect", context.Cause(ctx))
	}
	var c *net.TCPConn
	if err == nil {
		c, err = d.outbound.fetch(ctx, f, p.name, accepted.CarryId)
	}
	if err != nil {
		out.End()
		return readyConn{}, err
	}
	out.detach()
	return readyConn{conn: c, handed: d.watch(out, nil)}, nil
}

// watch returns a function that reports failures at the other end to the process that got a
// carrier. keep, if not nil, gets what the target has prepared for the next time.
func (d *dialler) watch(out *outgoing, keep func(next []byte)) func(*process, uint64, error) {
	return func(p *process, carrier uint64, err error) {
		if err != nil {
			out.End()
			return
		}
		d.work.Go(func() {
			defer out.End()
			next, err := out.outcome()
			switch {
			case err != nil:
				p.fault(carrier, err)
			case keep != nil:
				keep(next)
			}
		})
	}
}
