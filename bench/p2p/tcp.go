package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// tcpPort is where each rank listens at its host, which has no other.
const tcpPort = 7700

// join returns the option that makes rank number join the job of the environment's key over TCP.
// hosts has an address for each rank.
func join(hosts []netip.Addr, number int) (mpilib.Option, error) {
	key, err := jobkey.Parse(os.Getenv(mpilib.EnvJobKey))
	if err != nil {
		return nil, err
	}
	here := net.TCPAddrFromAddrPort(netip.AddrPortFrom(hosts[number], tcpPort))
	ln, err := net.ListenTCP("tcp", here)
	if err != nil {
		return nil, err
	}
	c := &tcpConnector{hosts: hosts, number: number, ln: ln}
	return mpilib.WithConnector(c, key, number, len(hosts)), nil
}

// tcpConnector joins ranks of one site, each at a host of its own, as helpers
// do when the site's nodes reach each other: by one TCP connection per dial.
type tcpConnector struct {
	hosts  []netip.Addr
	number int
	ln     *net.TCPListener
}

var _ overlay.Connector = (*tcpConnector)(nil)

// node returns the node of a rank.
func node(number int) overlay.NodeID {
	return overlay.NodeID{Site: "bench", Name: fmt.Sprintf("node%d", number)}
}

func (c *tcpConnector) carrier(raw *net.TCPConn, peer overlay.NodeID, setup time.Duration) overlay.Carrier {
	carrier.Tune(raw, carrier.Tuning{KeepAlive: 15 * time.Second}) // best effort, as the helper does
	return overlay.Carrier{
		Conn: raw, Here: node(c.number),
		Path: overlay.Path{Technique: overlay.Direct, Peer: peer, Reason: "both nodes are on one wire", Setup: setup},
	}
}

// dialEvery is the interval at which a Dial retries a rank that has not started.
const dialEvery = 5 * time.Millisecond

func (c *tcpConnector) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	if !ways.Allow(overlay.Direct) {
		return overlay.Carrier{}, fmt.Errorf("%v: %w", peer, overlay.ErrNoRelay)
	}
	if int(peer.Rank) >= len(c.hosts) {
		return overlay.Carrier{}, fmt.Errorf("%v: %w", peer, overlay.ErrUnknownProcess)
	}
	start := time.Now()
	tick := time.NewTicker(dialEvery)
	defer tick.Stop()
	for {
		var d net.Dialer
		raw, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(c.hosts[peer.Rank], tcpPort).String())
		if err == nil {
			return c.carrier(raw.(*net.TCPConn), node(int(peer.Rank)), time.Since(start)), nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return overlay.Carrier{}, fmt.Errorf("%v: %w: %w", peer, overlay.ErrUnreachable, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return overlay.Carrier{}, fmt.Errorf("%v: waited for it to listen: %w", peer, context.Cause(ctx))
		}
	}
}

// Accept implements overlay.Connector. It is for one goroutine at a time.
func (c *tcpConnector) Accept(ctx context.Context) (overlay.Carrier, error) {
	c.ln.SetDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { c.ln.SetDeadline(time.Unix(1, 0)) })()
	raw, err := c.ln.AcceptTCP()
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return overlay.Carrier{}, err
	}
	from := raw.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	for number, host := range c.hosts {
		if host == from {
			return c.carrier(raw, node(number), 0), nil
		}
	}
	return c.carrier(raw, overlay.NodeID{}, 0), nil
}

func (c *tcpConnector) Close() error { return c.ln.Close() }
