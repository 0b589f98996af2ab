//go:build unix

package probe

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// share lets a listener and dialling sockets of this process share one port.
func share(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) {
		set = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	})
	return errors.Join(err, set)
}
