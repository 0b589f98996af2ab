package carrier

import (
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// LastAck returns how long ago the far end of a connection last acknowledged anything, new or not,
// with the kernel's precision of some milliseconds. It returns false where the kernel does not tell.
// The far end may be a relay or a middlebox that ends connections, not the peer.
func LastAck(c *net.TCPConn) (time.Duration, bool) {
	info, ok := tcpInfo(c)
	return time.Duration(info.Last_ack_recv) * time.Millisecond, ok
}

// LeastRTT returns the minimum round trip time that the kernel measured on a connection, lately: it
// forgets one after some minutes. It returns false where the kernel does not tell, or has none yet.
// As for LastAck, it may be that to a relay.
func LeastRTT(c *net.TCPConn) (time.Duration, bool) {
	info, ok := tcpInfo(c)
	return time.Duration(info.Min_rtt) * time.Microsecond, ok && info.Min_rtt > 0 && info.Min_rtt < math.MaxUint32
}

func tcpInfo(c *net.TCPConn) (info unix.TCPInfo, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return info, false
	}
	raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info, ok = *i, true
		}
	})
	return info, ok
}
