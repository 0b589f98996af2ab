package carrier

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// LastAck returns how long ago the far end of a connection last acknowledged anything, new or not,
// with the kernel's precision of some milliseconds. It returns false where the kernel does not tell.
// The far end may be a relay or a middlebox that ends connections, not the peer.
func LastAck(c *net.TCPConn) (time.Duration, bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var info *unix.TCPInfo
	raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if info == nil {
		return 0, false
	}
	return time.Duration(info.Last_ack_recv) * time.Millisecond, true
}
