package simopen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// A connecting is a socket between connect(2) and its outcome. The goroutine that calls
// startConnect makes the socket, so it is in that thread's network namespace; waiting may happen
// anywhere.
type connecting struct {
	file *os.File
}

// share lets further sockets of this user use the port of fd. On a listener it must be called after
// listen(2): until then the port is checked against all others, and afterwards against none of this
// user's that request sharing.
func share(fd uintptr) error {
	return errors.Join(
		os.NewSyscallError("SO_REUSEADDR", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)),
		os.NewSyscallError("SO_REUSEPORT", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)))
}

// startConnect sends a SYN from local to remote. EADDRNOTAVAIL means that there is a connection
// between the two already.
func startConnect(ctx context.Context, local, remote netip.AddrPort) (*connecting, error) {
	family := unix.AF_INET
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c := &connecting{file: os.NewFile(uintptr(fd), "connect")}
	err = errors.Join(share(uintptr(fd)), carrier.LimitSocket(ctx, uintptr(fd), family == unix.AF_INET6))
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(local)))
	}
	if err == nil {
		if e := unix.Connect(fd, sockaddr(remote)); e != unix.EINPROGRESS {
			err = os.NewSyscallError("connect", e)
		}
	}
	if err != nil {
		c.file.Close()
		return nil, err
	}
	return c, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// wait returns the connection once it is established. It ends with ctx and with abort; the error is
// then os.ErrDeadlineExceeded. After an error nothing is left to close.
func (c *connecting) wait(ctx context.Context) (*net.TCPConn, error) {
	defer c.file.Close()
	stop := context.AfterFunc(ctx, c.abort)
	defer stop()
	raw, err := c.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var outcome error
	if err := raw.Write(func(fd uintptr) (done bool) {
		outcome, done = connected(int(fd))
		return done
	}); err != nil {
		c.reset()
		return nil, err
	}
	if outcome != nil {
		return nil, outcome
	}
	conn, err := carrier.FromFile(c.file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// connected returns how a connect ended. A wake-up without an outcome is normal.
func connected(fd int) (err error, done bool) {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return os.NewSyscallError("getsockopt", err), true
	}
	switch e := syscall.Errno(n); e {
	case 0, unix.EISCONN:
		_, err := unix.Getpeername(fd)
		return nil, err == nil
	case unix.EINPROGRESS, unix.EALREADY, unix.EINTR:
		return nil, false
	default:
		return os.NewSyscallError("connect", e), true
	}
}

// abort makes wait give up.
func (c *connecting) abort() { c.file.SetWriteDeadline(time.Unix(1, 0)) }

// reset makes closing the socket send a reset to a peer that has already received segments: a
// half-open connection would otherwise end in an orderly way, which the peer takes for a
// connection.
func (c *connecting) reset() {
	if raw, err := c.file.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		})
	}
}

// noAnswer reports whether nothing has arrived from the peer yet.
func (c *connecting) noAnswer() bool {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info != nil && info.State == unix.BPF_TCP_SYN_SENT
}

// explain adds the remedy to errors that have one.
func explain(err error, local netip.AddrPort) error {
	if errors.Is(err, unix.EACCES) && local.Port() < 1024 && local.Port() != 0 {
		return fmt.Errorf("%w; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE", err)
	}
	return err
}
