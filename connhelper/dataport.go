package connhelper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// dataPort is the listener on which other nodes dial this one. It survives sessions with the
// frontal, so that registered addresses remain valid.
type dataPort struct {
	*common
	delivery *delivery
	reports  *reports

	mu sync.Mutex // guards the fields below; held while the listener is replaced

	ln     *net.TCPListener
	ip     netip.Addr
	ports  overlay.Ports
	mtu    uint16 // from the profile: it bounds a listener's segments when the listener is made
	stop   context.CancelFunc
	served sync.WaitGroup // of ln: its goroutine ends after those of its connections
}

// listen opens a port as the site's profile requires, unless it is open already, and returns its
// address.
func (d *dataPort) listen(ip netip.Addr, profile overlay.SiteProfile) (netip.AddrPort, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ports overlay.Ports
	if profile.Inbound == overlay.InboundPorts && !profile.GatewayOnly {
		ports = profile.Ports // all listeners of the site stay inside
	}
	if d.ln != nil && d.ip == ip && d.ports == ports && d.mtu == profile.MTU {
		return addrOf(d.ln), nil
	}
	d.end()
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := carrier.ListenIn(ctx, ip, ports)
	if err != nil {
		cancel()
		return netip.AddrPort{}, err
	}
	d.ln, d.ip, d.ports, d.mtu, d.stop = ln, ip, ports, profile.MTU, cancel
	d.served.Go(func() { d.accept(ctx, ln) })
	return addrOf(ln), nil
}

// listenOverIPv4 returns where the node listens over the IP version that the profile is about: local,
// unless that is of IPv6 because the frontal is reached so, and the host has IPv4 as well; then it opens
// a port there, if the site lets connections in.
func (d *dataPort) listenOverIPv4(local netip.AddrPort, profile overlay.SiteProfile) (netip.AddrPort, error) {
	ip := multihome.OtherVersion(local.Addr())
	if !needsIPv4Port(local.Addr(), ip, profile) {
		d.close()
		return local, nil
	}
	return d.listen(ip, profile)
}

// needsIPv4Port reports whether a node that listens at local needs another port, at other.
func needsIPv4Port(local, other netip.Addr, p overlay.SiteProfile) bool {
	return local.Is6() && other.Is4() && p.IPv6 && !p.IPv6Only && !p.GatewayOnly && p.Inbound != overlay.InboundNone
}

// listenOverIPv6 opens a port for other sites' nodes on this host's IPv6 address, and returns its
// address, where the site's firewall lets connections in over IPv6; otherwise it closes the port.
// local is where the node listens already.
func (d *dataPort) listenOverIPv6(local netip.AddrPort, profile overlay.SiteProfile) (netip.AddrPort, error) {
	if profile.GatewayOnly || !profile.IPv6 || profile.IPv6Only || profile.OverIPv6().Inbound != overlay.InboundOpen {
		d.close()
		return netip.AddrPort{}, nil
	}
	if local.Addr().Is6() {
		d.close()
		return local, nil
	}
	ip := coordinate.OtherAddress(netip.IPv4Unspecified())
	if !ip.IsValid() {
		d.close()
		return netip.AddrPort{}, fmt.Errorf("%w: this host has no IPv6 address that leads to other sites, though the site's profile declares IPv6", overlay.ErrUnreachable)
	}
	six := profile.OverIPv6()
	six.MTU = profile.MTU
	return d.listen(ip, six)
}

func addrOf(ln *net.TCPListener) netip.AddrPort {
	a := ln.Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// close ends the listener and the accepted connections that were not handed on.
func (d *dataPort) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}

func (d *dataPort) end() {
	if d.ln != nil {
		d.stop()
		d.ln.Close()
		d.served.Wait()
		d.ln = nil
	}
}

func (d *dataPort) accept(ctx context.Context, ln *net.TCPListener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	err := accept.Each(ctx, d.log, ln.Addr(), ln.AcceptTCP, func(c *net.TCPConn) {
		place, err := d.budgets.half.Enter(c)
		if err != nil {
			c.Close()
			return
		}
		conns.Go(func() { d.incoming(ctx, c, place) })
	})
	if err != nil && !errors.Is(err, net.ErrClosed) {
		d.log.Error("no data port any more: other nodes cannot dial this one", "error", err)
	}
}

// incoming reads the intro of a connection and hands the connection to its recipient. It releases
// the place when the intro has arrived.
func (d *dataPort) incoming(ctx context.Context, c *net.TCPConn, place *limit.Place[accept.Source]) {
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	c.SetDeadline(time.Now().Add(introTimeout))
	frame, err := wire.Read(c)
	if !place.Leave() {
		return // it was closed to make room for another source
	}
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			d.log.Warn("connection refused", "from", c.RemoteAddr().String(), "error", err)
			d.audit.refusal(c, "intro", err)
		}
		d.refuse(c, err)
		return
	}
	c.SetDeadline(time.Time{})
	intro, ok := frame.(*wire.Intro)
	if !ok {
		err := fmt.Errorf("%w: a %v in place of an intro", wire.ErrType, frame.Type())
		d.audit.refusal(c, "intro", err)
		d.refuse(c, err)
		return
	}
	if err := d.routeIntro(c, intro); err != nil {
		d.log.Warn("connection refused", "from", c.RemoteAddr().String(), "job", string(intro.Job), "error", err)
		d.audit.refusal(c, "intro", err)
		d.refuse(c, err)
	}
}

// routeIntro gives c to the process or to the dial that intro names; it owns c unless it fails.
func (d *dataPort) routeIntro(c *net.TCPConn, intro *wire.Intro) error {
	switch intro.Kind {
	case wire.IntroProcess:
		name := overlay.ProcessName{Job: intro.Job, Rank: intro.Rank}
		p := d.here.get(name)
		if p == nil {
			return fmt.Errorf("%w: no %v at node %v", overlay.ErrUnknownProcess, name, d.node)
		}
		tune(c)
		path := overlay.Path{Technique: intro.Technique, Via: intro.Via, Peer: intro.From, Reason: "the other process dialled"}
		if d.site.choseIPv6(c) {
			path.Reason += " over IPv6"
		}
		if err := d.delivery.deliver(p, c, path); err != nil {
			d.log.Warn("cannot hand a connection to its process", "process", name.String(), "error", err)
			return nil
		}
		d.reports.called(p, path)
		return nil
	case wire.IntroReverse:
		if !d.here.arrived(intro.ID, c) {
			return fmt.Errorf("%w: no process here expects this connection any more", overlay.ErrStale)
		}
		return nil
	default:
		return fmt.Errorf("%w: a helper does not relay for others", overlay.ErrForbidden)
	}
}

// refuse sends the other side the error and closes. Unread input would turn the close into a reset
// that overtakes the refusal, so it is drained first.
func (d *dataPort) refuse(c *net.TCPConn, err error) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	c.Write(wire.Append(nil, &wire.Refuse{Code: wire.CodeOf(err), By: "helper " + d.node.String(), Text: err.Error()}))
	c.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(c, 1<<20))
}

// keepAlive is shorter than the known idle timeouts of firewalls.
const keepAlive = 15 * time.Second

// tune prepares a socket that will be handed to a process.
func tune(c *net.TCPConn) {
	carrier.Tune(c, carrier.Tuning{KeepAlive: keepAlive}) // best effort: the socket works untuned
}
