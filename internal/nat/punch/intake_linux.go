package punch

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"
)

// joinDatagrams makes the kernel deliver datagrams of one sender and one size in one piece. Where
// it cannot, each arrives separately.
func joinDatagrams(socket *net.UDPConn) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) })
}

// joinedSize returns the size of each datagram of a row but the last, or 0 if there is only one.
func joinedSize(control []byte) int {
	for len(control) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return 0
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO && len(data) >= 4 {
			return int(binary.NativeEndian.Uint32(data))
		}
		control = rest
	}
	return 0
}
