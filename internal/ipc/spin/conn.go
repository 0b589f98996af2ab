package spin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Options say how a connection waits. The zero value is a good one.
type Options struct {
	// Budget is how long a wait may spin: 200 us if zero, not at all if
	// negative, and never more than a millisecond.
	Budget time.Duration

	// Idle, if any, is called within a Read or ReadVec that found nothing, or
	// foresees it, before it waits, once per call; the read looks again after it. It must
	// not read from the connection nor close it, for both would wait for the
	// read. It should not wait for anything else: two sides that wait for each
	// other to read, in here, wait for ever. TryWrite is meant for it. Where
	// sockets cannot be polled it is called at the start of every read.
	Idle func()
}

// A Conn is a stream socket that spins before it sleeps. All of net.Conn's
// promises hold, about goroutines, deadlines, Close and errors too, but that a
// deadline or a Close during a spin takes effect at its end, at most one
// budget later.
type Conn struct {
	net.Conn // what is not wrapped, as it is
	state    // of the system's own way to read and write
}

// New returns c spinning. c is a *net.TCPConn, or a *net.UnixConn of a stream
// socket, and must no longer be used directly, except for
// socket options. Closing the Conn closes c.
func New(c net.Conn, o Options) (*Conn, error) {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil, fmt.Errorf("spin.New: %T: only TCP and Unix stream sockets can spin", c)
	}
	if network := c.LocalAddr().Network(); network == "unixgram" || network == "unixpacket" {
		return nil, fmt.Errorf("spin.New: a %s socket is no stream", network)
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("spin.New: %w", err)
	}
	s := &Conn{Conn: c}
	s.init(c, raw, o)
	return s, nil
}

// Calm has reads from now on sleep at once: their data is not waited for by anybody who is in
// a hurry, and what polls for it would only keep others from running. A read that
// polls already ends as it would have.
func (c *Conn) Calm() { c.stopPolling() }

// CloseWrite ends the sending side, as that of the connection below does.
func (c *Conn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite() // TCP and Unix sockets have it
}

// NetConn returns the connection below, for socket options.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// failed returns err as net.Conn's own methods do: op is "read" or "write".
// The network of an error of the socket is "tcp" even where it was dialled as tcp4.
func (c *Conn) failed(op string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = os.NewSyscallError(op, errno)
	}
	var known *net.OpError
	if errors.As(err, &known) { // of the raw connection; it is new, and ours
		known.Op = op
		return known
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
