package dialwindow

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// retransmitted reports whether the SYN of a new connection was sent more than once. The duration
// of the dial does not show that: a busy machine processes an answer late.
func retransmitted(c any, took time.Duration) bool {
	if tcp, ok := c.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			var info *unix.TCPInfo
			raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
			if info != nil {
				return info.Total_retrans > 0
			}
		}
	}
	return took >= lateAfter
}
