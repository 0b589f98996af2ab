package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// carry is one connection that the frontal dials for a node, or makes by
// meeting the other end.
//
//	Carry -> dialling --- dial failed ---> the call's error
//	            |
//	            v             the node shows the id
//	          waiting (the id is sent) ------------> joined ---> over
//	            \--- no node shows it in time -----> closed
//
// The node learns that a dial failed while it can still try another way. The goroutine that takes a
// waiting carry out of the table owes it a lanEnd; no other sends one.
type carry struct {
	forwardedLink
	id    wire.ID
	addrs []outward
	lan   chan lanEnd   // buffered: the sender does not block
	gone  chan struct{} // closed when the node no longer wants it; nil if that is never signalled
}

// outward is an address to dial.
type outward struct {
	netip.AddrPort
	proxy bool // a proxy of the grid
}

// lanEnd is the node's connection, which presented the id.
type lanEnd struct{ conn *net.TCPConn }

// dialCarry dials what c requests, within the caller's time less the margin.
func (g *Gateway) dialCarry(ctx context.Context, c *carry) (carrier.Stream, error) {
	bound := g.settings().Dial
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, max(time.Until(deadline)-uplink.AnswerMargin, 0))
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	return g.dialAny(ctx, c)
}

// runCarry runs one dialled carry until it is joined, or not fetched in time.
func (g *Gateway) runCarry(c *carry, out net.Conn) {
	lan, err := g.awaitLAN(c)
	if err != nil {
		cut(out)
		g.logLink(c.forwardedLink, "not carried", err)
		return
	}
	c.from, c.to = lan.RemoteAddr().String(), out.RemoteAddr().String()
	g.carryBetween(c.forwardedLink, lan, out)
}

// awaitLAN waits for the node's connection, or returns why there is none.
func (g *Gateway) awaitLAN(c *carry) (*net.TCPConn, error) {
	over := time.NewTimer(g.Bounds.Carry)
	defer over.Stop()
	var err error
	select {
	case end := <-c.lan:
		return end.conn, nil
	case <-over.C:
		err = fmt.Errorf("%w: node %s did not fetch the connection within %v", overlay.ErrTimeout, c.node, g.Bounds.Carry)
	case <-c.gone:
		err = fmt.Errorf("%w: node %s gave the connection up before it fetched it", overlay.ErrStale, c.node)
	case <-g.ctx.Done():
		err = fmt.Errorf("%w: the frontal ended before node %s fetched the connection", overlay.ErrUnreachable, c.node)
	}
	g.mu.Lock()
	mine := g.carries.take(c.id) != nil
	g.mu.Unlock()
	if mine {
		return nil, err
	}
	return (<-c.lan).conn, nil // the goroutine that took it is about to send
}

// dialled is an outbound connection, its destination and its form.
type dialled struct {
	carrier.Stream
	form encap.Form
	to   outward
}

// dialAny dials the addresses, and uses the first that answers.
func (g *Gateway) dialAny(ctx context.Context, c *carry) (carrier.Stream, error) {
	first, err := carrier.FirstOf(ctx, c.addrs, func(ctx context.Context, to outward) (dialled, error) {
		conn, form, err := g.dialOutward(ctx, to)
		return dialled{conn, form, to}, err
	})
	if err != nil {
		return nil, err
	}
	if c.form = first.form; first.to.proxy {
		c.proxy = first.to.String()
	}
	return first.Stream, nil
}

// dialOutward dials one address; a proxy in whichever form gets through.
func (g *Gateway) dialOutward(ctx context.Context, to outward) (carrier.Stream, encap.Form, error) {
	if to.proxy && g.proxies != nil {
		return g.proxies.Dial(ctx, to.String(), g.wayOut())
	}
	c, err := g.Dial(ctx, to.String())
	if err != nil {
		return nil, 0, err // not a nil *net.TCPConn in a Stream
	}
	return c, encap.Plain, nil
}

// wayOut is the path out of the site to a proxy.
func (g *Gateway) wayOut() encap.Route {
	route := encap.RouteOf(g.profile(), g.httpProxy)
	route.Dial = g.Dial
	return route
}

// fromNode passes a node's connection to the carry whose id it presents.
func (g *Gateway) fromNode(_ context.Context, conn *net.TCPConn, intro *wire.Intro) error {
	if intro.Kind != wire.IntroCarry {
		return fmt.Errorf("%w: this is the port for a node's own data, which shows a carry-id", overlay.ErrRefused)
	}
	g.mu.Lock()
	c := g.carries.take(intro.ID)
	g.mu.Unlock()
	if c == nil {
		// Mostly a node that was too busy to come in time, which is to try again.
		return fmt.Errorf("%w: unknown carry-id; it works once, for %v", overlay.ErrTimeout, g.Bounds.Carry)
	}
	c.lan <- lanEnd{conn}
	return nil
}
