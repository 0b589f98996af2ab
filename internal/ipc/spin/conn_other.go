//go:build !linux

package spin

import (
	"net"
	"syscall"
)

// state is what a connection keeps besides the one it wraps.
type state struct {
	raw  syscall.RawConn
	idle func()
}

func (s *state) init(_ net.Conn, raw syscall.RawConn, o Options) { s.raw, s.idle = raw, o.Idle }

func (s *state) stopPolling() {}

// Read reads into p as net.Conn does.
func (c *Conn) Read(p []byte) (int, error) {
	if c.idle != nil {
		c.idle()
	}
	return c.Conn.Read(p)
}

// ReadVec reads into the first of bufs that is not empty.
func (c *Conn) ReadVec(bufs ...[]byte) (int, error) {
	for _, b := range bufs {
		if len(b) > 0 {
			return c.Read(b)
		}
	}
	return c.Conn.Read(nil)
}

// WriteVec writes all of bufs, one after the other, and returns how many bytes
// it wrote.
func (c *Conn) WriteVec(bufs ...[]byte) (int, error) {
	all := append(net.Buffers(nil), bufs...)
	n, err := all.WriteTo(c.Conn)
	return int(n), err
}

// TryWrite writes what the socket accepts of p without waiting, and returns that number of bytes.
// Fewer than all of p is not an error.
func (c *Conn) TryWrite(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	rawErr := c.raw.Write(func(fd uintptr) bool {
		for {
			n, err = syscall.Write(int(fd), p)
			if err != syscall.EINTR {
				return true
			}
		}
	})
	switch {
	case rawErr != nil:
		return 0, c.failed("write", rawErr)
	case err == syscall.EAGAIN:
		return 0, nil
	case err != nil:
		return 0, c.failed("write", err)
	}
	return n, nil
}

// TryWriteVec is TryWrite for several buffers.
func (c *Conn) TryWriteVec(bufs ...[]byte) (total int, err error) {
	for _, b := range bufs {
		n, err := c.TryWrite(b)
		total += n
		if err != nil || n < len(b) {
			return total, err
		}
	}
	return total, nil
}
