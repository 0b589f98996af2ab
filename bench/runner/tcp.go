package runner

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

// A TCPProcess is one of the processes of a job that reach each other over TCP, each at a host of its own, as helpers make
// them do where the nodes of a site reach each other. The key is the environment's.
type TCPProcess struct {
	Hosts  []netip.Addr // of each process
	Port   uint16       // where all of them listen
	Number int          // of this process
	Size   int          // how many ranks the job has
}

// Join returns the option that makes this process join its job, as rank Number modulo Size.
func (p TCPProcess) Join() (mpilib.Option, error) {
	key, err := jobkey.Parse(os.Getenv(mpilib.EnvJobKey))
	if err != nil {
		return nil, err
	}
	here := net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Hosts[p.Number], p.Port))
	ln, err := net.ListenTCP("tcp", here)
	if err != nil {
		return nil, err
	}
	return mpilib.WithConnector(&tcpConnector{TCPProcess: p, ln: ln}, key, p.Number%p.Size, p.Size), nil
}

// tcpConnector makes one TCP connection for each dial.
type tcpConnector struct {
	TCPProcess
	ln *net.TCPListener
}

var _ overlay.Connector = (*tcpConnector)(nil)

// node returns the node of a process.
func node(number int) overlay.NodeID {
	return overlay.NodeID{Site: "bench", Name: fmt.Sprintf("node%d", number)}
}

func (c *tcpConnector) carrier(raw *net.TCPConn, peer overlay.NodeID, setup time.Duration) overlay.Carrier {
	carrier.Tune(raw, carrier.Tuning{KeepAlive: 15 * time.Second}) // best effort, as the helper does
	return overlay.Carrier{
		Conn: raw, Here: node(c.Number),
		Path: overlay.Path{Technique: overlay.Direct, Peer: peer, Reason: "both nodes are on one wire", Setup: setup},
	}
}

// dialEvery is the interval at which a Dial retries a process that has not started.
const dialEvery = 5 * time.Millisecond

func (c *tcpConnector) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	if !ways.Allow(overlay.Direct) {
		return overlay.Carrier{}, fmt.Errorf("%v: %w", peer, overlay.ErrNoRelay)
	}
	if int(peer.Rank) >= len(c.Hosts) {
		return overlay.Carrier{}, fmt.Errorf("%v: %w", peer, overlay.ErrUnknownProcess)
	}
	start := time.Now()
	tick := time.NewTicker(dialEvery)
	defer tick.Stop()
	for {
		var d net.Dialer
		raw, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(c.Hosts[peer.Rank], c.Port).String())
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
	for number, host := range c.Hosts {
		if host == from {
			return c.carrier(raw, node(number), 0), nil
		}
	}
	return c.carrier(raw, overlay.NodeID{}, 0), nil
}

func (c *tcpConnector) Close() error { return c.ln.Close() }
