package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/sleep"
)

// limitsSegments is true: dialOptions.segment works here.
const limitsSegments = true

// dialOptions modify connect; the zero value changes nothing.
type dialOptions struct {
	segment int    // maximum segment size in both directions, in bytes
	ttl     int    // number of routers that a packet may pass
	port    uint16 // local port, shared with a listener
}

// connect makes one TCP connection and records the result. Unlike a net.Dialer it keeps the
// network's error: the ICMP error and its sender (IP_RECVERR, ip(7)). The connection is nil unless
// the outcome is Connected.
func connect(ctx context.Context, to netip.AddrPort, o dialOptions) (*net.TCPConn, Connection) {
	start := time.Now()
	c := Connection{To: to}
	fd, err := open(to, o)
	if err != nil {
		c.Outcome, c.Err = NoPermit, err.Error()
		return nil, c
	}
	immediate := true
	err = unix.Connect(fd, sockaddr(to))
	if errors.Is(err, unix.EINPROGRESS) {
		immediate = false
		err = await(ctx, fd)
	}
	c.Took = time.Since(start)
	if err != nil {
		c.Outcome, c.Err = outcomeOf(err, immediate), err.Error()
		c.Reply, c.Replier = icmpError(fd)
		unix.Close(fd)
		return nil, c
	}
	f := os.NewFile(uintptr(fd), "tcp")
	defer f.Close() // FileConn has a copy
	conn, err := net.FileConn(f)
	if err != nil {
		c.Outcome, c.Err = NoPermit, err.Error()
		return nil, c
	}
	c.Outcome = Connected
	c.From = addrPort(conn.LocalAddr())
	return conn.(*net.TCPConn), c
}

// open creates the socket that connect dials with.
func open(to netip.AddrPort, o dialOptions) (fd int, err error) {
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	set := func(level, option, value int) {
		if err == nil {
			err = unix.SetsockoptInt(fd, level, option, value)
		}
	}
	if family == unix.AF_INET {
		set(unix.IPPROTO_IP, unix.IP_RECVERR, 1)
		if o.ttl > 0 {
			set(unix.IPPROTO_IP, unix.IP_TTL, o.ttl)
		}
	} else {
		set(unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
		if o.ttl > 0 {
			set(unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, o.ttl)
		}
	}
	if o.segment > 0 {
		set(unix.IPPROTO_TCP, unix.TCP_MAXSEG, o.segment)
	}
	if o.port > 0 {
		set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		set(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil && o.port > 0 {
		any := netip.IPv6Unspecified()
		if family == unix.AF_INET {
			any = netip.IPv4Unspecified()
		}
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(any, o.port)))
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("socket options: %w", err)
	}
	return fd, nil
}

// await waits until a pending connect has ended, or ctx has.
func await(ctx context.Context, fd int) error {
	const look = 50 // ms, the longest delay in noticing the end of ctx
	for {
		if ctx.Err() != nil {
			return os.ErrDeadlineExceeded
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, look)
		switch {
		case err == unix.EINTR || err == nil && n == 0:
			continue
		case err != nil:
			return err
		}
		v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return err
		}
		if v != 0 {
			return syscall.Errno(v)
		}
		// There may be only an ICMP error in the queue, while the kernel still tries.
		if _, err := unix.Getpeername(fd); err == nil {
			return nil
		}
		sleep.For(ctx, look*time.Millisecond)
	}
}

// icmpError reads the network's error from the socket's error queue: its kind, and the device that
// sent it.
func icmpError(fd int) (reply string, from netip.Addr) {
	var data [512]byte
	var oob [512]byte
	_, n, _, _, err := unix.Recvmsg(fd, data[:], oob[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return "", netip.Addr{}
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return "", netip.Addr{}
	}
	for _, m := range messages {
		v4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		v6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		const size = int(unsafe.Sizeof(unix.SockExtendedErr{}))
		if !v4 && !v6 || len(m.Data) < size {
			continue
		}
		e := (*unix.SockExtendedErr)(unsafe.Pointer(&m.Data[0]))
		offender := m.Data[size:] // a sockaddr of the same family
		switch {
		case v4 && e.Origin == unix.SO_EE_ORIGIN_ICMP && len(offender) >= 8:
			from = netip.AddrFrom4([4]byte(offender[4:8]))
		case v6 && e.Origin == unix.SO_EE_ORIGIN_ICMP6 && len(offender) >= 24:
			from = netip.AddrFrom16([16]byte(offender[8:24]))
		default:
			continue
		}
		return icmpName(v6, e.Type, e.Code), from
	}
	return "", netip.Addr{}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// pathMTU returns the kernel's path MTU for c, in bytes; 0 if unknown.
func pathMTU(c *net.TCPConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	mtu := 0
	raw.Control(func(fd uintptr) {
		if v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU); err == nil {
			mtu = v
		}
	})
	return mtu
}

// arrives sends padding and reports whether the other kernel acknowledged all of it in time; tried
// is false if that cannot be determined.
func arrives(ctx context.Context, c *net.TCPConn) (tried, passed bool) {
	ctx, cancel := bounded(ctx, segmentBound)
	defer cancel()
	raw, err := c.SyscallConn()
	if err != nil {
		return false, false
	}
	if _, err := c.Write(padding()); err != nil {
		return false, false
	}
	for {
		var info *unix.TCPInfo
		if e := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); e != nil || err != nil {
			return false, false
		}
		if info.Unacked == 0 && info.Notsent_bytes == 0 {
			return true, true
		}
		if sleep.For(ctx, 10*time.Millisecond) != nil {
			return true, false
		}
	}
}
