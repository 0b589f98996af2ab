package stream

import (
	"net"

	"golang.org/x/sys/unix"
)

// boundUnsent has the kernel take no more than about most bytes of what is written
// that it cannot send yet; 0 leaves it to the kernel. Without a socket below there is
// nothing to do, and if it fails the carrier works all the same, only less evenly.
func boundUnsent(c net.Conn, most int) {
	s := SocketOf(c)
	if s == nil {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, most) })
	}
}
