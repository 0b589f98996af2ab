package carrier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// dialBound ends a dial whose context has no deadline of its own.
const dialBound = 30 * time.Second

// DialTCP connects to addr, "host:port", directly or, when via names one,
// through an HTTP CONNECT proxy. The result is a bare kernel socket from which
// nothing has been read that came after the proxy's answer, so it can be
// spliced or passed on. MPTCP is off.
//
// It ends with ctx, and after 30 s in any case. An error names the address and
// the cause and is one of overlay.ErrRefused (somebody there said no, the HTTP
// proxy included), overlay.ErrTimeout (nobody said anything) and
// overlay.ErrUnreachable (no route, no such name), or context.Canceled.
func DialTCP(ctx context.Context, addr string, via HTTPProxy) (*net.TCPConn, error) {
	return dialTCP(ctx, addr, via, 0)
}

// DialSmall is DialTCP for a connection that carries little, and that must come
// about before anything is known of the way: its packets have at most MinMTU
// bytes.
func DialSmall(ctx context.Context, addr string, via HTTPProxy) (*net.TCPConn, error) {
	return dialTCP(ctx, addr, via, MinMTU)
}

func dialTCP(ctx context.Context, addr string, via HTTPProxy, mtu int) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	if via.Addr == "" {
		return dialPlain(ctx, addr, mtu)
	}
	conn, err := dialPlain(ctx, via.Addr, mtu)
	if err != nil {
		return nil, fmt.Errorf("HTTP proxy on the way to %s: %w", addr, err)
	}
	if err := via.connect(ctx, conn, addr); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func dialPlain(ctx context.Context, addr string, mtu int) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1, Control: limiter(mtu)} // Tune decides about keepalive
	d.SetMultipathTCP(false)                              // a fallback path of MPTCP cannot be spliced or bounded (TCP_USER_TIMEOUT)
	start := time.Now()
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, dialError(addr, time.Since(start), err)
	}
	return conn.(*net.TCPConn), nil
}

// dialError puts a failed dial into one of the classes of package overlay.
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
