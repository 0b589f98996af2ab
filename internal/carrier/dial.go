package carrier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// DialOptions are how a connection is opened. The zero value opens a direct one.
type DialOptions struct {
	Via HTTPProxy // the HTTP CONNECT proxy on the way, if it has an address

	// Small limits packets to 1280 bytes, and fewer if the context requests that (WithSmallPackets):
	// for a connection that carries little, and that must be established before anything is known
	// about the path.
	Small bool

	Connect time.Duration // bounds the time until an address, or the HTTP proxy, has accepted; 0: 30 s
}

// Dial opens a connection to addr, "host:port", that is of use only once finish has succeeded on it, as
// a TLS handshake. MPTCP is off.
//
// All ways to connect are tried, each a while after the one before it (RFC 8305): all addresses of the
// name, of both IP versions, and from all uplinks of a host with several. The last known addresses of
// a name are dialled at once, while it is looked up again. The exchange with the HTTP
// proxy and finish belong to an attempt, so an address that accepts and then stays silent holds the
// next one up for little more than one that does not answer. finish owns the connection, and may run
// for several connections at a time; all but the first that it returns are closed.
//
// Dial ends with ctx, and after 30 s in any case. An error of finish is returned unchanged. Another one
// names the address and the cause and is one of overlay.ErrRefused (refused there, or by the HTTP
// proxy), overlay.ErrTimeout (no answer) and overlay.ErrUnreachable (no route, unknown name), or
// context.Canceled.
func Dial[C io.Closer](ctx context.Context, addr string, o DialOptions, finish func(context.Context, *net.TCPConn) (C, error)) (C, error) {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	var none C
	start, first := time.Now(), cmp.Or(o.Via.Addr, addr)
	fail := func(err error) (C, error) {
		if late, ok := errors.AsType[*finishError](err); ok {
			return none, late.error
		}
		err = dialError(first, time.Since(start), err)
		if o.Via.Addr != "" {
			err = fmt.Errorf("HTTP proxy on the path to %s: %w", addr, err)
		}
		return none, err
	}
	to, err := names.resolve(ctx, first)
	if err != nil {
		return fail(err)
	}
	mtu := 0
	if o.Small {
		mtu = usualMTU
	}
	until := start.Add(cmp.Or(o.Connect, dialBound))
	conn, err := dialAddresses(ctx, to, func(ctx context.Context, to []netip.AddrPort) (C, error) {
		known := lately.Load()
		via := known.sourceFor(start, to, multihome.Others)
		won, err := overlap(ctx, until, attempts(to, via, multihome.Others), func(ctx context.Context, a attempt, reached func()) (C, error) {
			c, err := a.dial(ctx, mtu, until)
			if err != nil {
				return none, err
			}
			reached()
			noteReached(ctx)
			if o.Via.Addr != "" {
				if err := o.Via.connect(ctx, c, addr); err != nil {
					c.Close()
					return none, &finishError{err}
				}
				reached() // what is behind the proxy is farther away
				noteReached(ctx)
			}
			done, err := finish(ctx, c)
			if err != nil {
				return none, &finishError{err}
			}
			return done, nil
		})
		if err == nil {
			lately.CompareAndSwap(known, known.update(won.by.from, via, time.Now()))
		}
		return won.conn, err
	})
	if err != nil {
		return fail(err)
	}
	return conn, nil
}

// finishError is an error of what follows the TCP connection.
type finishError struct{ error }

func (e *finishError) Unwrap() error { return e.error }

// DialTCP is Dial without anything to finish. The result is a plain kernel socket from which nothing
// after an HTTP proxy's answer has been read, so it can be spliced or passed on.
func DialTCP(ctx context.Context, addr string, via HTTPProxy) (*net.TCPConn, error) {
	return Dial(ctx, addr, DialOptions{Via: via}, nothing)
}

// DialSmall is DialTCP with small packets (DialOptions).
func DialSmall(ctx context.Context, addr string, via HTTPProxy) (*net.TCPConn, error) {
	return Dial(ctx, addr, DialOptions{Via: via, Small: true}, nothing)
}

func nothing(_ context.Context, c *net.TCPConn) (*net.TCPConn, error) { return c, nil }

// dial makes the attempt, with packets of mtu bytes or the limit, and gives it up at a time.
func (a attempt) dial(ctx context.Context, mtu int, until time.Time) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1, Deadline: until, Control: limiter(ctx, mtu)} // Tune decides about keepalive
	d.SetMultipathTCP(false)                                                    // a fallback subflow of MPTCP cannot be spliced or bounded (TCP_USER_TIMEOUT)
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
	if old, ok := errors.AsType[*rememberedError](err); ok {
		return fmt.Errorf("%w (%s)", dialError(addr, took, old.error), old.note())
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("dial %s: given up after %v: %w", addr, took.Round(time.Millisecond), context.Canceled)
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Errorf("dial %s: %w: the name %q has no address", addr, overlay.ErrUnreachable, dns.Name)
	case errors.As(err, &dns) && dns.IsTimeout:
		return fmt.Errorf("dial %s: %w: no answer about the name %q within %v; check this host's name servers (/etc/resolv.conf)", addr, overlay.ErrTimeout, dns.Name, took.Round(time.Millisecond))
	case errors.As(err, &dns):
		return fmt.Errorf("dial %s: %w: the name %q cannot be looked up: %s; check this host's name servers (/etc/resolv.conf)", addr, overlay.ErrUnreachable, dns.Name, dns.Err)
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
