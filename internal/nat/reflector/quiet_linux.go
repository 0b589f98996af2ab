package reflector

import (
	"context"
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenQuiet listens on a port whose queue holds two connections. Linux silently drops SYNs while
// it is full.
func listenQuiet() (net.Listener, error) {
	lc := net.ListenConfig{Control: sharePort, KeepAlive: -1}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), "tcp4", ":0")
	if err != nil {
		return nil, err
	}
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err == nil {
		var again error
		err = raw.Control(func(fd uintptr) { again = unix.Listen(int(fd), 1) }) // the queue holds one more than that
		err = errors.Join(err, again)
	}
	if err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// sharePort allows calls from a listener's port.
func sharePort(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, set)
}
