package connhelper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/overlay"
)

// permitted removes from r the reflectors that the settings deny; r may be nil.
func (h *Helper) permitted(r *controlpb.ReflectorsResponse) *controlpb.ReflectorsResponse {
	if r != nil {
		coordinate.Filter(r, h.opts.Rule.Without)
	}
	return r
}

// side returns this node as one end of a coordinated traversal, on behalf of j.
func (h *Helper) side(f *frontal, j journey) *coordinate.Side {
	ip := f.local.Addr()
	if !ip.IsValid() {
		ip = h.ownAddress(f.session)
	}
	return &coordinate.Side{
		Address: ip, Other: coordinate.OtherAddress(ip), Profile: f.profile, Log: h.log, PortPool: h.portPool, Engine: h.engine,
		Permit: func(ip netip.Addr) error {
			err := h.opts.Rule.With(f.networks).Foreign(ip)
			if err != nil {
				h.audit.denied(j, err)
			}
			return err
		},
		Reflectors: func(ctx context.Context) (coordinate.Reflectors, error) {
			return h.reflectors.Get(ctx, func(ctx context.Context) (*controlpb.ReflectorsResponse, error) {
				r, err := f.directory().Reflectors(ctx, &controlpb.ReflectorsRequest{})
				return h.permitted(r), err
			})
		},
	}
}

// negotiated carries out a technique of package coordinate from the asker's side, or makes the
// gateway do so for a node without a route out.
func (h *Helper) negotiated(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	if f.profile.GatewayOnly {
		return h.negotiatedByGateway(ctx, f, p, to, step)
	}
	var in *signalling
	side, peer := h.side(f, journey{asker: p.name, target: to.point.Process}), to.point.Node.String()
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
		request := h.signalRequest(p, to, step.Technique)
		request.Offer = offer
		var err error
		// The call outlasts the answer: it reports the other end's result later.
		if in, err = h.openSignalling(ctx, f, request); err != nil {
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
	limits := h.site.version(c, step.IPv6)
	s, err := h.socketFor(c)
	if err != nil {
		in.end()
		return readyConn{}, err
	}
	in.onReserved = func(next []byte) { side.Keep(peer, next) }
	return readyConn{conn: s, limits: limits, handed: h.watch(in)}, nil
}

// negotiatedByGateway makes the frontal act as the asker's end, and fetches the connection from it.
func (h *Helper) negotiatedByGateway(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	request := h.signalRequest(p, to, step.Technique)
	request.Port, request.Ipv6 = uint32(step.Port), step.IPv6
	in, err := h.openSignalling(ctx, f, request)
	if err != nil {
		return readyConn{}, err
	}
	accepted, err := in.await(ctx, controlpb.SignalEvent_ACCEPTED)
	if errors.Is(err, errUnanswered) { // the gateway sends the event when it is connected: it may have tried all the time
		err = fmt.Errorf("%w: waited for the gateway to connect", context.Cause(ctx))
	}
	var c *net.TCPConn
	if err == nil {
		c, err = h.outbound.fetch(ctx, f, p.name, accepted.CarryId)
	}
	if err != nil {
		in.end()
		return readyConn{}, err
	}
	in.detach()
	return readyConn{conn: c, handed: h.watch(in)}, nil
}

// watch returns a function that reports failures at the other end to the process that got a
// carrier.
func (h *Helper) watch(in *signalling) func(*process, uint64, error) {
	return func(p *process, carrier uint64, err error) {
		if err != nil {
			in.end()
			return
		}
		h.work.Go(func() {
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

// socketFor returns c in a form that can be handed to a process. A kernel socket already is; for any
// other connection the process gets one end of a socket pair, and this helper copies for as long as
// the connection lives.
func (h *Helper) socketFor(c net.Conn) (socket, error) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tune(tcp)
		return tcp, nil
	}
	if tcp := carrier.Socket(c); tcp != nil {
		carrier.Tune(tcp, carrier.Tuning{KeepAlive: keepAlive, UserTimeout: bridgeTimeout}) // best effort: the socket works untuned
	}
	ours, theirs, err := socketPair()
	if err != nil {
		c.Close()
		return nil, err
	}
	h.work.Go(func() {
		if err := punch.Bridge(h.life, c, ours); err != nil && !errors.Is(err, syscall.EPIPE) {
			h.log.Info("a bridged link ended", "peer", c.RemoteAddr().String(), "error", err)
		}
	})
	return theirs, nil
}
