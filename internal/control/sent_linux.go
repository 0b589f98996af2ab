package control

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/rtt"
)

// sentOn returns a function that returns how many bytes written to conn the far kernel has
// acknowledged (TCP_INFO), how many were written, and what else the kernel knows of the path; the
// number of those written may be too low by what is acknowledged meanwhile, and is never too high.
func sentOn(conn net.Conn) func() sendState {
	none := func() sendState { return sendState{} }
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok { // a wrapper whose first bytes were already read
		conn = c.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return none
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return none
	}
	return func() (s sendState) {
		raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if err != nil {
				return
			}
			s.acked = info.Bytes_acked
			if queued, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
				s.total = s.acked + uint64(queued)
			}
			s.path, s.segments, s.repeated = rtt.OfInfo(info), uint64(info.Data_segs_out), uint64(info.Total_retrans)
		})
		return s
	}
}
