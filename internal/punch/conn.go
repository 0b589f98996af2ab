package punch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

// linger bounds how long Close waits for the peer to read what was sent.
const linger = 3 * time.Second

// Why a QUIC connection or a direction of the stream ends.
const (
	codeClosed = 0 // properly
	codeAbort  = 1
)

// Setup says how long the parts of Connect took at this end.
type Setup struct {
	Checks    time.Duration // ICE, until a pair of addresses was chosen
	Handshake time.Duration // QUIC, until the stream was there
	Total     time.Duration // both and, with LowTTL, the hold-off
}

// A Conn is the stream between the two ends. It behaves like a TCP connection:
// half-close, deadlines, reset. Its methods are safe for concurrent use.
//
// QUIC forgets what it has not delivered when its connection is closed, and so
// an end tells the other that it has read all: it opens a second, empty stream,
// the mark, once Read has returned io.EOF or Close was called.
type Conn struct {
	quic    *quic.Conn
	stream  *quic.Stream
	setup   Setup
	release func() // closes transport and socket

	writing   sync.Mutex // held by Write and by what ends writing; QUIC wants these apart
	mark      sync.Once
	closing   sync.Once
	releasing sync.Once
	closed    chan struct{} // closed when Close or Abort begins
}

func newConn(q *quic.Conn, s *quic.Stream, setup Setup) *Conn {
	return &Conn{quic: q, stream: s, setup: setup, closed: make(chan struct{})}
}

// Read reads from the stream. At the peer's CloseWrite or Close it returns
// io.EOF; when the peer is gone without that, an error that is
// syscall.ECONNRESET or a timeout, never io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.stream.Read(b)
	if err == io.EOF {
		c.sendMark()
		return n, io.EOF
	}
	return n, c.explain("read", err, syscall.ECONNRESET)
}

// Write writes to the stream. It returns when the data is in QUIC's hands, not
// when the peer has it.
func (c *Conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.stream.Write(b)
	return n, c.explain("write", err, syscall.EPIPE)
}

// CloseWrite ends this direction; the peer reads io.EOF after all that was
// written. It waits for a running Write.
func (c *Conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.explain("close", c.stream.Close(), syscall.EPIPE)
}

// Close ends both directions and releases the socket. It interrupts Read and
// Write, then waits until the peer has read all or closed too, at most 3
// seconds: what was not read by then is lost, and the peer's Read fails.
func (c *Conn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		close(c.closed)
		err = nil
		c.stream.SetWriteDeadline(time.Unix(1, 0)) // a blocked Write would hold the lock
		c.writing.Lock()
		c.stream.Close()
		c.writing.Unlock()
		c.stream.CancelRead(codeClosed)
		c.sendMark()
		ctx, cancel := context.WithTimeout(context.Background(), linger)
		defer cancel()
		c.quic.AcceptUniStream(ctx) // the peer's mark, or it is gone
		c.end(codeClosed)
	})
	return err
}

// Abort ends the connection at once, as a TCP reset does: the peer's Read and
// Write fail.
func (c *Conn) Abort() {
	c.closing.Do(func() { close(c.closed) })
	c.end(codeAbort) // of a Close that lingers, too
}

func (c *Conn) end(code quic.ApplicationErrorCode) {
	c.releasing.Do(func() {
		c.quic.CloseWithError(code, "")
		c.release()
	})
}

// sendMark tells the peer that this end reads no more. An error means that the
// connection is gone.
func (c *Conn) sendMark() {
	c.mark.Do(func() {
		if s, err := c.quic.OpenUniStream(); err == nil {
			s.Close()
		}
	})
}

// explain puts QUIC's errors into those of sockets. gone is what the peer's
// going away means to the caller.
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

// LocalAddr returns the socket's address.
func (c *Conn) LocalAddr() net.Addr { return c.quic.LocalAddr() }

// RemoteAddr returns the peer's address that works.
func (c *Conn) RemoteAddr() net.Addr { return c.quic.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.stream.SetDeadline(t) }

// SetReadDeadline bounds Read; a Read that it ends fails with
// os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.stream.SetReadDeadline(t) }

// SetWriteDeadline bounds Write.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.stream.SetWriteDeadline(t) }

// Setup returns how long Connect took.
func (c *Conn) Setup() Setup { return c.setup }

// GSO reports whether the kernel cuts large writes into packets for QUIC,
// which makes several times the rate.
func (c *Conn) GSO() bool { return c.quic.ConnectionState().GSO }
