package carrier

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const withScaling = 4 // TCPI_OPT_WSCALE of include/uapi/linux/tcp.h

// Unscaled reports whether c is a TCP connection without window scaling (RFC 7323, section 2)
// although this host offers it. Without TCP_INFO that is unknown, and it returns false.
func Unscaled(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info != nil && info.Options&withScaling == 0 && asksForScaling()
}

func asksForScaling() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_window_scaling")
	return err == nil && len(b) > 0 && b[0] != '0'
}
