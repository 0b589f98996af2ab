package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// asking is one coordinated traversal that the gateway requests on behalf of a node.
type asking struct {
	g         *Gateway
	request   *controlpb.SignalRequest // the node's
	technique overlay.Technique
	asker     overlay.ProcessName
	target    overlay.ProcessName
	peer      string // the target's node
	uplink    *control.Session
	end       signalling.End

	ctx  context.Context  // of the node's call
	call *signalling.Call // that of the connection

	sending  sync.Mutex // held while sending to the node: a call's events are sent one at a time
	send     func(*controlpb.SignalEvent) error
	assigned bool // ASSIGNED, or its successor, was sent to the node
}

// attribute adds the frontal's name to an error, unless the error names its source.
func (g *Gateway) attribute(err error) error {
	if t, ok := errors.AsType[signalling.Attributed](err); ok {
		return t.Err
	}
	return fmt.Errorf("%s: %w", g.who, err)
}

// Ask is Signal for a node that cannot be the asker's end itself.
func (g *Gateway) Ask(ctx context.Context, node string, req *controlpb.SignalRequest, send func(*controlpb.SignalEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if req.SmallPackets {
		ctx = carrier.WithSmallPackets(ctx)
	}
	a, err := g.newAsking(ctx, req, send)
	if err != nil {
		return g.attribute(err)
	}
	defer func() {
		if a.call != nil {
			a.call.End()
		}
	}()
	c, err := g.reserveTraversal(a, node)
	if err != nil {
		return g.attribute(err)
	}
	conn, err := a.connect(node)
	if err != nil {
		g.traversals.failed.Add(1)
		g.mu.Lock()
		g.carries.take(c.id)
		g.mu.Unlock()
		err = g.attribute(err)
		g.logLink(c.forwardedLink, "not carried", err)
		return err
	}
	g.traversals.connected.Add(1)
	g.work.Go(func() { g.runCarry(c, conn) }) // Serve waits for this call, and then for that goroutine
	return a.handOver(c)
}

func (g *Gateway) newAsking(ctx context.Context, req *controlpb.SignalRequest, send func(*controlpb.SignalEvent) error) (*asking, error) {
	a := &asking{g: g, request: req, send: send, ctx: ctx}
	var err error
	if a.technique, err = control.TechniqueFromPB(req.Technique); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	if a.asker, err = control.ProcessFromPB(req.Asker); err != nil {
		return nil, fmt.Errorf("%w: asker: %w", wire.ErrMalformed, err)
	}
	if a.target, err = control.ProcessFromPB(req.Target); err != nil {
		return nil, fmt.Errorf("%w: target: %w", wire.ErrMalformed, err)
	}
	switch {
	case a.asker.Job != a.target.Job:
		return nil, fmt.Errorf("%w: %v asks for %v of another job", overlay.ErrForbidden, a.asker, a.target)
	case req.Port > math.MaxUint16:
		return nil, fmt.Errorf("%w: port %d to dial from", wire.ErrMalformed, req.Port)
	}
	a.peer = g.resolver.NodeOf(a.target)
	if a.uplink, err = g.up.Get(ctx); err != nil {
		return nil, signalling.Attributed{Err: err}
	}
	if a.end, err = g.NewEnd(ctx, req.Ipv6); err != nil {
		return nil, signalling.Attributed{Err: err}
	}
	return a, nil
}

// reserveTraversal reserves the place of the future connection.
func (g *Gateway) reserveTraversal(a *asking, node string) (*carry, error) {
	c := &carry{forwardedLink: forwardedLink{
		kind: "traversal", technique: a.technique, job: a.asker.Job, ranks: []uint32{a.asker.Rank, a.target.Rank},
		node: node, peer: a.peer, id: fmt.Sprintf("%x", a.request.Link), asked: true,
	}, lan: make(chan lanEnd, 1), gone: make(chan struct{})}
	rand.Read(c.id[:])
	c.principal = g.registry.Principal(a.asker)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.links.room(node); err != nil {
		return nil, err
	}
	return c, g.carries.add(c.id, c)
}

// connect runs the technique.
func (a *asking) connect(node string) (net.Conn, error) {
	if err := a.g.spare(a.technique); err != nil {
		return nil, err
	}
	ctx, cancel := a.g.boundTraversal(a.ctx)
	defer cancel()
	leave, err := a.g.traversals.enter(ctx, node)
	if err != nil {
		return nil, err
	}
	defer leave()
	conn, call, err := signalling.Ask(ctx, a.end, a.technique, a.peer, uint16(a.request.Port), a.start)
	a.call = call
	return conn, err
}

// start makes a signalling request, which ends with the node's call.
func (a *asking) start(offer []byte, failed func(error)) *signalling.Call {
	req := proto.CloneOf(a.request)
	req.Offer, req.Port, req.Ipv6 = offer, 0, false
	return signalling.Start(a.ctx, a.g.work.Go, controlpb.NewDirectoryClient(a.uplink.Conn()), req, signalling.Hooks{
		CallError: func(err error) error { return signalling.Attributed{Err: a.g.up.CallError(a.uplink, err)} },
		Failed:    failed,
		Assigned: func(e *controlpb.SignalEvent) error {
			if err := a.forward(e); err != nil {
				return fmt.Errorf("%w: the asker's helper is gone: %w", overlay.ErrUnreachable, err)
			}
			return nil
		},
	})
}

// handOver notifies the node that the gateway has its connection, and forwards the result of the
// target's side. A connection that the node has not fetched when its call ends without CONNECTED is
// closed.
func (a *asking) handOver(c *carry) error {
	connected := false
	defer func() {
		if !connected {
			close(c.gone)
		}
	}()
	if err := a.forward(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED, CarryId: c.id[:]}); err != nil {
		return err
	}
	e, err := a.call.Result() // at the latest when the node's call ends
	if err != nil {
		return a.forward(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(a.g.attribute(err))})
	}
	connected = true
	a.end.Keep(a.peer, e.Answer)
	return a.forward(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
}

// forward sends an event to the node. The node sees several signalling requests as one: ASSIGNED once,
// and not after ACCEPTED.
func (a *asking) forward(e *controlpb.SignalEvent) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	if e.Kind == controlpb.SignalEvent_ASSIGNED && a.assigned {
		return nil
	}
	a.assigned = true
	return a.send(e)
}
