package punch

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

// linger bounds how long Close waits for the peer to read what was sent.
const linger = 3 * time.Second

// Codes with which a QUIC connection or a direction of a stream ends.
const (
	codeClosed = 0 // regular end
	codeAbort  = 1
)

// Setup is how long the parts of Connect took at this end. All are zero for a stream of an existing
// tunnel.
type Setup struct {
	Checks    time.Duration // ICE, until a pair of addresses was chosen
	Handshake time.Duration // QUIC, until the stream was open
	Total     time.Duration // both and, with LowTTL, the hold-off
}

// A Conn is one stream of a Tunnel. It behaves like a TCP connection: half-close, deadlines, reset.
// Its methods are safe for concurrent use.
//
// QUIC discards undelivered data when its connection is closed, so each end notifies the other that
// it has read everything: it sends the stream's mark (marks.go) once Read has returned io.EOF or
// Close was called.
type Conn struct {
	tunnel *Tunnel
	stream *quic.Stream
	setup  Setup
	marked chan struct{} // closed when the peer reads no more

	writing sync.Mutex // held by Write and by calls that end writing; QUIC requires them to be serialised
	mark    sync.Once
	closing atomic.Bool   // Close or Abort has begun
	closed  chan struct{} // closed when closing is set
	leaving sync.Once
	left    chan struct{} // closed when the tunnel has removed this stream
}

// Read reads from the stream. At the peer's CloseWrite or Close it returns io.EOF; when the peer is
// gone without that, an error that is syscall.ECONNRESET or a timeout, never io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.stream.Read(b)
	if err == io.EOF {
		c.sendMark()
		return n, io.EOF
	}
	return n, c.explain("read", err, syscall.ECONNRESET)
}

// Write writes to the stream. It returns when QUIC has the data, not when the peer has it.
func (c *Conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.stream.Write(b)
	return n, c.explain("write", err, syscall.EPIPE)
}

// CloseWrite ends this direction; the peer reads io.EOF after all that was written. It waits for a
// running Write.
func (c *Conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.explain("close", c.stream.Close(), syscall.EPIPE)
}

// Close ends both directions and leaves the tunnel, which ends with its last stream unless it is
// kept (Tunnel.Keep). It interrupts Read and Write, then waits until the peer has read everything
// or closed too, at most 3 seconds: what was not read by then is lost if the tunnel ends, and the
// peer's Read fails.
func (c *Conn) Close() error {
	if !c.beginClosing() {
		return net.ErrClosed
	}
	c.stream.SetWriteDeadline(time.Unix(1, 0)) // a blocked Write would hold the lock
	c.writing.Lock()
	c.stream.Close()
	c.writing.Unlock()
	c.stream.CancelRead(codeClosed)
	c.sendMark()
	bound := time.NewTimer(linger)
	defer bound.Stop()
	select {
	case <-c.marked:
	case <-c.left: // by Abort
	case <-c.tunnel.Done():
	case <-bound.C:
	}
	c.leave(codeClosed)
	return nil
}

// Abort ends the stream at once, as a TCP reset does: the peer's Read and Write fail. It also ends
// a pending Close.
func (c *Conn) Abort() {
	c.beginClosing()
	c.stream.CancelWrite(codeAbort)
	c.stream.CancelRead(codeAbort)
	c.leave(codeAbort)
}

// beginClosing reports whether this is the first call.
func (c *Conn) beginClosing() bool {
	if !c.closing.CompareAndSwap(false, true) {
		return false
	}
	close(c.closed)
	return true
}

func (c *Conn) leave(code quic.ApplicationErrorCode) {
	c.leaving.Do(func() {
		close(c.left)
		c.tunnel.forget(c.stream.StreamID())
		c.tunnel.leave(code)
	})
}

// sendMark notifies the peer that this end reads no more.
func (c *Conn) sendMark() {
	c.mark.Do(func() { c.tunnel.sendMark(c.stream.StreamID()) })
}

// explain converts QUIC's errors to those of sockets. gone is the error for a peer that has gone
// away.
func (c *Conn) explain(op string, err error, gone syscall.Errno) error {
	if err == nil {
		return nil
	}
	select {
	case <-c.closed:
		return fmt.Errorf("punch: %s: %w", op, net.ErrClosed)
	default:
	}
	var app *quic.ApplicationError
	var stream *quic.StreamError
	var reset *quic.StatelessResetError
	if errors.As(err, &app) && app.Remote || errors.As(err, &stream) && stream.Remote || errors.As(err, &reset) {
		return fmt.Errorf("punch: %s: %w: closed by %v", op, gone, c.RemoteAddr())
	}
	return fmt.Errorf("punch: %s: %w", op, err)
}

// Tunnel returns the tunnel of the stream.
func (c *Conn) Tunnel() *Tunnel { return c.tunnel }

// LocalAddr returns the socket's address.
func (c *Conn) LocalAddr() net.Addr { return c.tunnel.quic.LocalAddr() }

// RemoteAddr returns the peer's address that works.
func (c *Conn) RemoteAddr() net.Addr { return c.tunnel.quic.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.stream.SetDeadline(t) }

// SetReadDeadline bounds Read; a Read that it ends fails with
// os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.stream.SetReadDeadline(t) }

// SetWriteDeadline bounds Write.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.stream.SetWriteDeadline(t) }

// Setup returns how long Connect took.
func (c *Conn) Setup() Setup { return c.setup }

// GSO reports whether the kernel splits large writes into packets for QUIC, which multiplies the
// rate.
func (c *Conn) GSO() bool { return c.tunnel.quic.ConnectionState().GSO }
