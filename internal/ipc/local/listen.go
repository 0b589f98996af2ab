package local

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// ListenUnix creates the Unix socket for local processes. It removes a socket that a dead daemon
// left behind, but not one that answers.
func ListenUnix(path string, mode fs.FileMode) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: "unix"}
	ln, err := net.ListenUnix("unix", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		if c, dialErr := net.DialUnix("unix", nil, addr); dialErr == nil {
			c.Close()
			return nil, fmt.Errorf("socket %s: another daemon serves it already", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("socket %s: a dead daemon left it and it cannot be removed: %w", path, err)
		}
		ln, err = net.ListenUnix("unix", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		ln.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return ln, nil
}
