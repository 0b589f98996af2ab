package stream

import (
	"net"

	"golang.org/x/sys/unix"
)

// boundUnsent makes the kernel accept no more than about most bytes of written data that it cannot
// send yet; 0 leaves it to the kernel. Without a TCP socket underneath there is nothing to do; if
// setting the option fails the carrier works, only less evenly.
func boundUnsent(c net.Conn, most int) {
	s := SocketOf(c)
	if s == nil {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, most) })
	}
}
