package sealed

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
)

var (
	// ErrPlain is the handshake's error when the received data is not TLS.
	ErrPlain = errors.New("the peer does not speak TLS")

	// ErrTruncated is Read's error when the carrier ended without the peer's close_notify: an
	// attacker on the way may have cut it. It is an io.ErrUnexpectedEOF.
	ErrTruncated = fmt.Errorf("the carrier ended without the peer's goodbye: %w", io.ErrUnexpectedEOF)
)

// Conn is an encrypted carrier, a net.Conn. One goroutine may read while another writes, and any
// may close or set deadlines.
type Conn struct {
	conn  net.Conn
	state tls.ConnectionState
	peer  jobkey.Member
	r     reader
	w     writer
}

var _ net.Conn = (*Conn)(nil)

// closeWait bounds how long Close tries to send the alert to a peer that does not read, over a
// carrier without TryWrite.
const closeWait = 200 * time.Millisecond

// Peer returns the authenticated identity of the other end.
func (c *Conn) Peer() jobkey.Member { return c.peer }

// NetConn returns the underlying connection. Reading or writing it breaks the encrypted one.
func (c *Conn) NetConn() net.Conn { return c.conn }

// CipherSuite returns the name of the suite in use, as IANA registers it.
func (c *Conn) CipherSuite() string { return tls.CipherSuiteName(c.state.CipherSuite) }

// Exporter returns n bytes that only the two ends of this connection can compute: the exporter of
// RFC 8446, section 7.5. They differ for every label, context and connection. What they are mixed
// into is bound to this connection.
func (c *Conn) Exporter(label string, context []byte, n int) ([]byte, error) {
	b, err := c.state.ExportKeyingMaterial(label, context, n)
	if err != nil {
		return nil, fmt.Errorf("sealed: exporter: %w", err)
	}
	return b, nil
}

// Read reads at least one byte, and as many as have arrived, up to len(p). It may use all of p as
// scratch space. At the peer's close_notify it returns io.EOF; ErrTruncated if the carrier ends
// without; overlay.ErrForbidden if the peer, after the handshake, does not accept this process; and
// an error about a broken seal if anything was changed on the way. These errors are permanent. A
// passed deadline is not: no data is lost.
func (c *Conn) Read(p []byte) (int, error) { return c.r.read([][]byte{p}) }

// ReadVec reads as Read does into several buffers, one after the other. It may return before the
// last is full, or used at all.
func (c *Conn) ReadVec(bufs ...[]byte) (int, error) { return c.r.read(bufs) }

// Write seals and writes p and keeps nothing of it. After an error, including a passed deadline,
// nothing more can be written: what the peer has received may end within a record. The count is
// then of bytes that certainly were written.
func (c *Conn) Write(p []byte) (int, error) { return c.w.write([][]byte{p}) }

// WriteVec writes, as Write does, several buffers one after the other, as if they were one. It
// changes neither them nor bufs.
func (c *Conn) WriteVec(bufs ...[]byte) (int, error) { return c.w.write(bufs) }

// TryWriteVec writes several buffers, as WriteVec does, if the carrier takes all without blocking,
// and returns how many bytes it wrote: 0 without an error if the carrier does not, if there are
// more than 16 KiB, if the carrier has no TryWrite, if another write is under way or if the keys
// must be changed. The peer may then have part of a record, so the caller must write the same bytes
// next, again by TryWriteVec or as the first of another write; anything else is an error. A
// TryWriteVec that continues in this way takes at most what the previous one was given.
func (c *Conn) TryWriteVec(bufs ...[]byte) (int, error) { return c.w.try(bufs) }

// CloseWrite tells the peer that nothing more follows, and ends the sending side of the underlying
// connection if it supports that. It waits for a Write that is under way. Reading continues.
func (c *Conn) CloseWrite() error {
	if err := c.w.sendAlert(alert(c.r.farewell.Load())); err != nil {
		return fmt.Errorf("sealed: close for writing: %w", err)
	}
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close ends the connection and all calls on it. It sends close_notify to the peer, or the alert
// for the peer's protocol violation, if the carrier takes it without blocking and no Write is under
// way. Over a carrier without TryWrite it tries for a fifth of a second.
func (c *Conn) Close() error {
	c.w.closeWith(alert(c.r.farewell.Load())) // best effort; the peer may be gone
	return c.conn.Close()
}

// LocalAddr returns the local address of the underlying connection.
func (c *Conn) LocalAddr() net.Addr { return c.conn.LocalAddr() }

// RemoteAddr returns the remote address of the underlying connection.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// SetReadDeadline bounds Read and ReadVec, which can be called again later.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// SetWriteDeadline bounds writes. A write that it interrupts is the last.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }
