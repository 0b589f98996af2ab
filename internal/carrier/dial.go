package carrier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/overlay"
)

// dialBound ends a dial whose context has no deadline of its own.
const dialBound = 30 * time.Second

// DialTCP connects to addr, "host:port", directly or, when via names one, through an HTTP CONNECT
// proxy. The result is a plain kernel socket from which nothing after the proxy's answer has been
// read, so it can be spliced or passed on. MPTCP is off.
//
// A dead uplink does not block a host with several: attempts from all its addresses overlap.
//
// It ends with ctx, and after 30 s in any case. An error names the address and the cause and is one
// of overlay.ErrRefused (refused there, or by the HTTP proxy), overlay.ErrTimeout (no answer) and
// overlay.ErrUnreachable (no route, unknown name), or context.Canceled.
func DialTCP(ctx context.Context, addr string, via HTTPProxy) (*net.TCPConn, error) {
	return dialTCP(ctx, addr, via, 0)
}

// DialSmall is DialTCP for a connection that carries little, and that must be established before
// anything is known about the path: its packets have at most 1280 bytes, and fewer if ctx requests
// that (WithSmallPackets).
func DialSmall(ctx context.Context, addr string, via HTTPProxy) (*net.TCPConn, error) {
	return dialTCP(ctx, addr, via, usualMTU)
}

func dialTCP(ctx context.Context, addr string, via HTTPProxy, mtu int) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	if via.Addr == "" {
		return dialPlain(ctx, addr, mtu)
	}
	conn, err := dialPlain(ctx, via.Addr, mtu)
	if err != nil {
		return nil, fmt.Errorf("HTTP proxy on the path to %s: %w", addr, err)
	}
	if err := via.connect(ctx, conn, addr); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func dialPlain(ctx context.Context, addr string, mtu int) (*net.TCPConn, error) {
	start := time.Now()
	to, err := resolve(ctx, addr)
	if err != nil {
		return nil, dialError(addr, time.Since(start), err)
	}
	known := lately.Load()
	via := known.sourceFor(start, to, multihome.Others)
	conn, err := overlap(ctx, to, via, multihome.Others, func(ctx context.Context, a attempt) (*net.TCPConn, error) { return a.dial(ctx, mtu) })
	if err != nil {
		return nil, dialError(addr, time.Since(start), err)
	}
	lately.CompareAndSwap(known, known.update(conn.by.from, via, time.Now()))
	return conn.TCPConn, nil
}

// dial makes the attempt, with packets of mtu bytes or the limit.
func (a attempt) dial(ctx context.Context, mtu int) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1, Control: limiter(ctx, mtu)} // Tune decides about keepalive
	d.SetMultipathTCP(false)                                   // a fallback subflow of MPTCP cannot be spliced or bounded (TCP_USER_TIMEOUT)
	if a.from.Addr.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.from.Addr, 0))
		d.Control = chain(d.Control, func(_, _ string, c syscall.RawConn) (err error) {
			if outer := c.Control(func(fd uintptr) { err = multihome.Bind(fd, a.from) }); outer != nil {
				return outer
			}
			return err
		})
	}
	conn, err := d.DialContext(ctx, "tcp", a.to.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// A control is called by net.Dialer on a socket before it connects.
type control = func(network, address string, c syscall.RawConn) error

func chain(one, other control) control {
	return func(network, address string, c syscall.RawConn) error {
		if err := one(network, address, c); err != nil {
			return err
		}
		return other(network, address, c)
	}
}

// dialError maps a failed dial to one of the classes of package overlay.
func dialError(addr string, took time.Duration, err error) error {
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("dial %s: given up after %v: %w", addr, took.Round(time.Millisecond), context.Canceled)
	case errors.As(err, &dns) && !dns.IsTimeout:
		return fmt.Errorf("dial %s: %w: the name %q has no address", addr, overlay.ErrUnreachable, dns.Name)
	case isTimeout(err):
		return fmt.Errorf("dial %s: %w: no answer within %v", addr, overlay.ErrTimeout, took.Round(time.Millisecond))
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("dial %s: %w: nothing listens there, or a firewall resets", addr, overlay.ErrRefused)
	case errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("dial %s: %w: the connection was reset", addr, overlay.ErrRefused)
	}
	cause := err
	var op *net.OpError
	if errors.As(err, &op) {
		cause = op.Err // without the address, which is named already
	}
	return fmt.Errorf("dial %s: %w: %w", addr, overlay.ErrUnreachable, cause)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &ne) && ne.Timeout()
}
