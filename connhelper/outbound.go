package connhelper

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/dialwindow"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// journey describes a connection to make, and on whose behalf.
type journey struct {
	addrs   []string // address:port, the best first
	inside  bool     // the addresses are in this site
	proxy   bool     // the addresses are a proxy's
	foreign bool     // the addresses come from another site and are of a process there
	asker   overlay.ProcessName
	target  overlay.ProcessName
	link    wire.ID // zero when there is no signalling request
}

// outbound opens the connections that leave this node: it knows which addresses the settings permit,
// how proxies are reached, and how many connections may be opened at a time.
type outbound struct {
	node          overlay.NodeID
	audit         auditor
	rule          netrule.Rule
	allowLoopback bool
	httpProxy     carrier.HTTPProxy
	proxies       *encap.Dialer
	window        *dialwindow.Window // of connections out of the site
}

// reach opens a connection to the first address that answers: by the node's own route, through the
// site's HTTP proxy, or carried by the frontal when the node has no route out. Addresses inside the
// site are dialled as they are; a connection to a proxy of the grid may be inside TLS, and is then
// no plain socket. limits says what limits the connection, as far as is known.
func (d *outbound) reach(ctx context.Context, f *frontal, j journey) (c carrier.Stream, limits []string, err error) {
	if f.profile.GatewayOnly && !j.inside {
		c, limits, err := d.dialByGateway(ctx, f, j)
		if err != nil {
			return nil, nil, err // not a nil *net.TCPConn in a Stream
		}
		return c, limits, nil
	}
	allowed, proxy, err := d.mayReach(f, j)
	if err != nil {
		return nil, nil, err
	}
	dial := func(ctx context.Context, addr string) (*net.TCPConn, error) { return carrier.DialTCP(ctx, addr, proxy) }
	if proxy.Addr == "" && !j.inside {
		dial = func(ctx context.Context, addr string) (*net.TCPConn, error) {
			return dialwindow.Dial(ctx, d.window, func(ctx context.Context) (*net.TCPConn, error) {
				return carrier.DialTCP(ctx, addr, proxy)
			})
		}
	}
	first, err := carrier.FirstOf(ctx, allowed, func(ctx context.Context, addr string) (limitedStream, error) {
		if j.proxy {
			route := encap.RouteOf(f.profile, proxy)
			route.Dial = dial
			c, form, err := d.proxies.Dial(ctx, addr, route)
			return limitedStream{c, []string{form.Note()}}, err
		}
		c, err := dial(ctx, addr)
		return limitedStream{c, nil}, err
	})
	return first.Stream, first.limits, err
}

// mayReach returns which of a journey's addresses this helper dials, and through which HTTP proxy.
func (d *outbound) mayReach(f *frontal, j journey) (allowed []string, proxy carrier.HTTPProxy, err error) {
	if f.profile.Egress.ThroughHTTPProxy() && !j.inside {
		proxy = d.httpProxy
		if proxy.Addr == "" {
			return nil, proxy, fmt.Errorf("%w: the site permits outbound connections only through its HTTP proxy, but this helper has none configured (http_proxy)", overlay.ErrUnreachable)
		}
	}
	err = fmt.Errorf("%w: there is no address to dial", overlay.ErrUnreachable)
	for _, addr := range j.addrs {
		if bad := d.checkAddress(f, addr, j); bad != nil {
			d.audit.denied(j, bad)
			err = bad
			continue
		}
		allowed = append(allowed, addr)
	}
	if len(allowed) > 0 {
		err = nil
	}
	return allowed, proxy, err
}

// limitedStream is a connection and what limits it.
type limitedStream struct {
	carrier.Stream
	limits []string
}

// forget makes the next dials to a proxy try every form again: the form by which it was reached
// proved useless.
func (d *outbound) forget(addrs []string) {
	for _, addr := range addrs {
		d.proxies.Forget(addr)
	}
}

// dialByGateway makes the frontal dial, and connects to its data port. It also returns the limits
// that the frontal reported.
func (d *outbound) dialByGateway(ctx context.Context, f *frontal, j journey) (*net.TCPConn, []string, error) {
	r, err := controlpb.NewNodesClient(f.session.Conn()).Carry(ctx, &controlpb.CarryRequest{
		Addresses: j.addrs, Link: j.link[:], Asker: control.ProcessToPB(j.asker), Target: control.ProcessToPB(j.target),
		SmallPackets: carrier.SmallPackets(ctx),
	})
	if err != nil {
		return nil, nil, control.FromStatus(err)
	}
	c, err := d.fetch(ctx, f, j.asker, r.CarryId)
	return c, []string{r.GetNote(), control.HeldTo(r.GetLimit(), "the gateway of "+string(d.node.Site))}, err
}

// fetch connects to the connection that the gateway holds for a process of this node.
func (d *outbound) fetch(ctx context.Context, f *frontal, asker overlay.ProcessName, carryID []byte) (*net.TCPConn, error) {
	id, err := idOf(carryID)
	if err != nil {
		return nil, err
	}
	if a, err := netip.ParseAddrPort(f.data); err == nil {
		if err := d.rule.Denied(a.Addr()); err != nil {
			return nil, fmt.Errorf("data port of %v: %w", f.session.Peer(), err)
		}
	}
	c, err := carrier.DialTCP(ctx, f.data, carrier.HTTPProxy{})
	if err != nil {
		return nil, fmt.Errorf("data port of %v: %w", f.session.Peer(), err)
	}
	tune(c)
	if err := writeFrame(ctx, c, &wire.Intro{Kind: wire.IntroCarry, ID: id, Job: asker.Job, Rank: asker.Rank, From: d.node}); err != nil {
		return nil, err
	}
	return c, nil
}

// checkAddress rejects addresses that belong to this host alone, since a signalling request must
// not become a way into it, and those that the settings deny.
func (d *outbound) checkAddress(f *frontal, addr string, j journey) error {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fmt.Errorf("%w: address %q: %w", wire.ErrMalformed, addr, err)
	}
	if ip := a.Addr().Unmap(); ip.IsLoopback() && (d.allowLoopback || j.inside) {
		// One host may be the whole site, or the whole grid.
	} else if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("%w: %v is not an address that a helper dials", overlay.ErrForbidden, a)
	}
	if j.foreign {
		return d.rule.With(f.networks).Foreign(a.Addr())
	}
	return d.rule.Denied(a.Addr())
}

// dialSlot waits, at most for max, until this node may open one more connection out of the site, if
// one is about to be opened. It returns a context for that.
func (d *outbound) dialSlot(ctx context.Context, f *frontal, inside bool, max time.Duration) (context.Context, func(), error) {
	if inside || f.profile.GatewayOnly || f.profile.Egress.ThroughHTTPProxy() {
		return ctx, func() {}, nil
	}
	wait, cancel := context.WithTimeout(ctx, max)
	defer cancel()
	t, err := d.window.Wait(wait)
	if err != nil {
		return ctx, nil, err
	}
	return t.With(ctx), t.End, nil
}

// skipReason returns why a technique that needs several connections is skipped, where the site lets
// few through.
func (d *outbound) skipReason(t overlay.Technique) error {
	if !coordinate.AsksByTCP(t) {
		return nil
	}
	return d.window.Limited()
}
