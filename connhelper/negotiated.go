package connhelper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// negotiated carries out a technique of package coordinate from the asker's side, or makes the
// gateway do so for a node without a route out.
func (d *dialler) negotiated(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	if f.profile.GatewayOnly {
		return d.negotiatedByGateway(ctx, f, p, to, step)
	}
	var in *signalling
	side, peer := d.traversals.side(f, journey{asker: p.name, target: to.point.Process}), to.point.Node.String()
	if step.IPv6 {
		var err error
		if side, err = side.OverIPv6(); err != nil {
			return readyConn{}, err
		}
	}
	c, err := side.Ask(ctx, step.Technique, peer, step.Port, func(until context.Context, offer []byte) ([]byte, error) {
		if in != nil {
			in.end() // the previous attempt failed
		}
		request := d.signalRequest(p, to, step.Technique)
		request.Offer = offer
		var err error
		// The call outlasts the answer: it reports the other end's result later.
		if in, err = d.openSignalling(ctx, f, request); err != nil {
			return nil, err
		}
		accepted, err := in.await(until, controlpb.SignalEvent_ACCEPTED)
		if err != nil {
			return nil, err
		}
		return accepted.Answer, nil
	})
	if err == nil && in == nil { // some process listens there, and the target knows nothing of it
		c.Close()
		err = fmt.Errorf("%w: connected to %v, but the process there could not be notified", overlay.ErrUnreachable, to.point.Node)
	}
	if err != nil {
		if in != nil {
			in.end()
		}
		return readyConn{}, err
	}
	in.detach()
	limits := d.site.version(c, step.IPv6)
	s, err := d.socketFor(c)
	if err != nil {
		in.end()
		return readyConn{}, err
	}
	in.onReserved = func(next []byte) { side.Keep(peer, next) }
	return readyConn{conn: s, limits: limits, handed: d.watch(in)}, nil
}

// negotiatedByGateway makes the frontal act as the asker's end, and fetches the connection from it.
func (d *dialler) negotiatedByGateway(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	request := d.signalRequest(p, to, step.Technique)
	request.Port, request.Ipv6 = uint32(step.Port), step.IPv6
	in, err := d.openSignalling(ctx, f, request)
	if err != nil {
		return readyConn{}, err
	}
	accepted, err := in.await(ctx, controlpb.SignalEvent_ACCEPTED)
	if errors.Is(err, errUnanswered) { // the gateway sends the event when it is connected: it may have tried all the time
		err = fmt.Errorf("%w: waited for the gateway to connect", context.Cause(ctx))
	}
	var c *net.TCPConn
	if err == nil {
		c, err = d.outbound.fetch(ctx, f, p.name, accepted.CarryId)
	}
	if err != nil {
		in.end()
		return readyConn{}, err
	}
	in.detach()
	return readyConn{conn: c, handed: d.watch(in)}, nil
}

// watch returns a function that reports failures at the other end to the process that got a
// carrier.
func (d *dialler) watch(in *signalling) func(*process, uint64, error) {
	return func(p *process, carrier uint64, err error) {
		if err != nil {
			in.end()
			return
		}
		d.work.Go(func() {
			defer in.end()
			if err := in.outcome(); err != nil {
				p.fault(carrier, err)
			}
		})
	}
}

// bridgeTimeout is how long the kernel tries to deliver what a process wrote on a connection that
// this helper bridges: by then the link itself has moved elsewhere.
const bridgeTimeout = 30 * time.Second
