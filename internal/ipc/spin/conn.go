package spin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Options set how a connection waits. The zero value is a good default.
type Options struct {
	// Budget bounds the spinning of a wait: 200 us if zero, none if negative, and never more than a
	// millisecond.
	Budget time.Duration

	// Idle, if not nil, is called within a Read or ReadVec that found nothing, or predicts that,
	// before it waits, once per call; the read checks again after it. It must not read from the
	// connection nor close it, because both would wait for the read. It should not wait for
	// anything else: two sides that wait for each other to read, in here, deadlock. TryWrite is
	// intended for it. Where sockets cannot be polled, it is called at the start of every read.
	Idle func()
}

// A Conn is a stream socket that spins before it sleeps. It keeps the contract of net.Conn, about
// goroutines, deadlines, Close and errors too, except that a deadline or a Close during a spin
// takes effect at its end, at most one budget later.
type Conn struct {
	net.Conn // for the methods that are not wrapped
	state    // the system-specific part of reads and writes
}

// New returns a spinning connection over c. c is a *net.TCPConn, or a *net.UnixConn of a stream
// socket, and must no longer be used directly, except for socket options. Closing the Conn closes
// c.
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

// Calm makes later reads sleep at once: their data is not urgent, and polling for it would only
// keep others from running. A read that is polling already is not affected.
func (c *Conn) Calm() { c.stopPolling() }

// CloseWrite shuts down the sending side, as that of the connection below does.
func (c *Conn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite() // TCP and Unix sockets have it
}

// NetConn returns the connection below, for socket options.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// failed returns err in the form of net.Conn's own methods: op is "read" or "write". The network of
// an error of the socket is "tcp" even if it was dialled as tcp4.
func (c *Conn) failed(op string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = os.NewSyscallError(op, errno)
	}
	var known *net.OpError
	if errors.As(err, &known) { // of the raw connection; it is a new value, so it may be modified
		known.Op = op
		return known
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
