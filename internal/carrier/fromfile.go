package carrier

import (
	"net"
	"os"
	"syscall"
)

// FromFile returns the connection of a descriptor as net.FileConn does: f is the caller's and stays open.
// A connection that its peer has reset meanwhile has no remote address, where others have one that may be
// printed; that is the error ECONNRESET.
func FromFile(f *os.File) (net.Conn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if c.RemoteAddr() == nil {
		c.Close()
		return nil, os.NewSyscallError("getpeername", syscall.ECONNRESET)
	}
	return c, nil
}
