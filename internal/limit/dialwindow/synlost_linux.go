package dialwindow

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// synLost reports whether the first SYN of a new connection, or its answer, was lost. took is how
// long the dial took.
func synLost(c any, took time.Duration) bool {
	if tcp, ok := c.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			var info *unix.TCPInfo
			raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
			if info != nil {
				return wasLost(int(info.Total_retrans), time.Duration(info.Rtt)*time.Microsecond, took)
			}
		}
	}
	return took >= lateAfter
}
