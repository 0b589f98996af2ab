package control

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ackedBy returns a function that tells how many bytes of what was written to
// conn the far kernel has acknowledged (TCP_INFO); 0 when that cannot be told.
func ackedBy(conn net.Conn) func() uint64 {
	none := func() uint64 { return 0 }
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
	return func() (n uint64) {
		raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				n = info.Bytes_acked
			}
		})
		return n
	}
}
