package probe

import (
	"net"

	"golang.org/x/sys/unix"
)

// The bits of tcp_info.tcpi_options (linux/tcp.h).
const (
	infoTimestamps = 1
	infoSACK       = 2
	infoScale      = 4
)

// OptionsOf returns which TCP options both ends of a connection agreed on, and the largest segment
// that this end sends.
func OptionsOf(c net.Conn) *TCPOptions {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	var o *TCPOptions
	raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			o = &TCPOptions{
				Scale: info.Options&infoScale != 0, SACK: info.Options&infoSACK != 0, Timestamps: info.Options&infoTimestamps != 0,
				Segment: int(info.Snd_mss),
			}
		}
	})
	return o
}
