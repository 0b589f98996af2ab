package link

import (
	"net"

	"golang.org/x/sys/unix"
)

// setCongestion makes c use a congestion control, if the system permits it, and returns the one in
// use.
func setCongestion(c *net.TCPConn, want string) (inUse string, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return "", err
	}
	failed := raw.Control(func(fd uintptr) {
		unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, want) // the result is read next
		inUse, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	if failed != nil {
		return "", failed
	}
	return inUse, err
}
