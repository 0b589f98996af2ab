package control

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RTT returns the session's smoothed round trip as measured by the kernel (TCP_INFO), up to an HTTP
// proxy if the peer connects through one; 0 if unknown.
func (s *Session) RTT() (rtt time.Duration) {
	conn := s.conn
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok { // a wrapper whose first bytes were already read
		conn = c.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			rtt = time.Duration(info.Rtt) * time.Microsecond
		}
	})
	return rtt
}
