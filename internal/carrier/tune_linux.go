package carrier

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// tuneSystem sets the options that only Linux has.
func tuneSystem(c *net.TCPConn, t Tuning) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		for _, name := range t.Congestion {
			if unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) == nil {
				break
			}
		}
		if t.UserTimeout > 0 {
			serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(t.UserTimeout.Milliseconds()))
		}
	})
	return errors.Join(err, serr)
}
