package connhelper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// socketPair returns the two ends of a new pair of connected sockets.
func socketPair() (a, b *net.UnixConn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	a, err = socketOf(fds[0])
	b, err2 := socketOf(fds[1])
	if err = errors.Join(err, err2); err != nil {
		for _, c := range []*net.UnixConn{a, b} {
			if c != nil {
				c.Close()
			}
		}
		return nil, nil, err
	}
	return a, b, nil
}

// socketOf takes ownership of a descriptor.
func socketOf(fd int) (*net.UnixConn, error) {
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "socketpair")
	defer f.Close() // FileConn duplicates it
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}
