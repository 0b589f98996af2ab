package probe

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// forbidFragments makes datagrams go out unfragmented, whatever this host knows about the path, and
// forbids routers to fragment them.
func forbidFragments(rc syscall.RawConn) error {
	var set error
	err := rc.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	})
	return errors.Join(err, set)
}

// reportedMTU returns the path MTU that routers reported for c's path, if it is less than own;
// otherwise 0.
func reportedMTU(c *net.UDPConn, own int) int {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	mtu := 0
	rc.Control(func(fd uintptr) {
		if v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU); err == nil && v < own {
			mtu = v
		}
	})
	return mtu
}
