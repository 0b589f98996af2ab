package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Where nodes have no route out, the gateway is their end of the techniques
// that need both ends at work, and carries what comes of it:
//
//	asker's helper   its gateway               broker   target's gateway     target's helper
//	    | Signal       |                       |            |                    |
//	    |---------------->| Signal with offer  | Signal |                    |
//	    |                 |---------------------->|----------->|                    |
//	    |                 |<--------- ACCEPTED with answer ----|                    |
//	    |                 |================ the link =========>|                    |
//	    | ACCEPTED with   |                       |            | intro, the link    |
//	    |<-- a carry-id --|                       |            |===================>|
//	    | carry-id        |                       |            |                    |
//	    |====the link====>|<----------------- CONNECTED -------|                    |
//	    |<-- CONNECTED ---|                       |            |                    |
//
// Either gateway may as well be a node that is its own end. ask.go is the
// left one, answer.go the right one.

// maxTraversals bounds the concurrent coordinated traversals. Each uses a few sockets and must send
// at its instant; further ones wait for a place.
const maxTraversals = 256

// traversals are the pending coordinated traversals, and counts of all.
type traversals struct {
	line   *limit.Counter[string] // those that wait for a place, by node
	places chan struct{}          // a semaphore: one token for each that has a place

	connected, failed atomic.Uint64
}

func newTraversals(l Limits) traversals {
	return traversals{line: newPending("coordinated traversals that wait for their turn", l), places: make(chan struct{}, maxTraversals)}
}

// TraversalCounters count the outcomes of the gateway's coordinated traversals.
type TraversalCounters struct {
	UnderWay  int    `json:"under_way"`
	Connected uint64 `json:"connected"`
	Failed    uint64 `json:"failed"`
}

func (t *traversals) counters() TraversalCounters {
	return TraversalCounters{UnderWay: len(t.places), Connected: t.connected.Load(), Failed: t.failed.Load()}
}

// enter reserves a place for a node, and waits for one while ctx is not done.
func (t *traversals) enter(ctx context.Context, node string) (leave func(), err error) {
	if err := t.line.Take(node, 1); err != nil {
		return nil, err
	}
	defer t.line.Give(node, 1)
	select {
	case t.places <- struct{}{}:
		return func() { <-t.places }, nil
	case <-ctx.Done():
		// This is not also ErrTimeout, which would be a statement about the path.
		return nil, fmt.Errorf("%w: %d coordinated traversals are under way, and none ended in time: %v", overlay.ErrOverloaded, cap(t.places), context.Cause(ctx))
	}
}

// StandsIn reports whether this gateway is the site's end of such a technique.
func (g *Gateway) StandsIn(t overlay.Technique) bool {
	return g.profile().GatewayOnly && coordinate.Knows(t)
}

// spare returns why a technique that needs several connections is skipped if the site permits few
// new connections.
func (g *Gateway) spare(t overlay.Technique) error {
	if !coordinate.AsksByTCP(t) {
		return nil
	}
	return g.window.Limited()
}

// Start prepares the gateway for coordinated traversals, if it takes part in them: it prepares
// ports ahead of time and, with the privilege, injects segments.
func (g *Gateway) Start() error {
	if !g.profile().GatewayOnly {
		return nil
	}
	var err error
	if g.engine, err = coordinate.OpenEngine(g.log); err != nil {
		return err
	}
	g.work.Go(func() { coordinate.ServeEngine(g.ctx, g.engine, g.log) })
	g.work.Go(func() { g.portPool.Serve(g.ctx) })
	g.work.Go(func() {
		<-g.ctx.Done()
		g.proxies.Close()
	})
	return nil
}

// boundTraversal bounds one coordinated traversal of a peer's call, which ends with the peer's
// session and so with the frontal.
func (g *Gateway) boundTraversal(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, g.Bounds.Meet, fmt.Errorf("%w after %v", overlay.ErrTimeout, g.Bounds.Meet))
}

// Side is this gateway as an end of coordinated traversals: where its own outbound connections
// originate, over IPv6 if requested.
func (g *Gateway) Side(ctx context.Context, ipv6 bool) (signalling.End, error) {
	s, err := g.up.Get(ctx)
	if err != nil {
		return nil, err
	}
	ip := s.LocalAddr().Addr().Unmap().WithZone("")
	if !g.settings().OneHost {
		ip = multihome.Outward(ip) // the broker may be on this host
	}
	side := &coordinate.Side{
		Address: ip, Other: coordinate.OtherAddress(ip), Profile: g.profile(), Log: g.log,
		Forbidden: notTraversed, Permit: g.settings().Rule.Foreign, PortPool: g.portPool, Engine: g.engine,
		Reflectors: func(ctx context.Context) (coordinate.Reflectors, error) {
			return g.reflectors.Get(ctx, g.askReflectors)
		},
	}
	if ipv6 {
		if side, err = side.OverIPv6(); err != nil {
			return nil, fmt.Errorf("%s: %w", g.who, err)
		}
	}
	return side, nil
}

// notTraversed is what NeverDialled refuses and package coordinate does not refuse itself.
var notTraversed = slices.Concat(netrule.Translated(), []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("255.255.255.255/32"),
})
