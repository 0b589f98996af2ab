package control

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// sentOn returns a function that returns how many bytes written to conn the far kernel has
// acknowledged (TCP_INFO), and how many were written, counted from the same start; 0 if unknown.
// The second may be too low by what is acknowledged meanwhile, and is never too high.
func sentOn(conn net.Conn) func() (acked, total uint64) {
	none := func() (uint64, uint64) { return 0, 0 }
	if c, ok := conn.(*tls.Conn); ok {
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
	return func() (acked, total uint64) {
		raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if err != nil {
				return
			}
			acked = info.Bytes_acked
			if queued, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
				total = acked + uint64(queued)
			}
		})
		return acked, total
	}
}
