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
	// ErrPlain is the handshake's error when what comes is not TLS.
	ErrPlain = errors.New("the peer does not speak TLS")

	// ErrTruncated is Read's error when the carrier ended, but the peer did not
	// say that this is the end: somebody on the way may have cut it. It is an
	// io.ErrUnexpectedEOF.
	ErrTruncated = fmt.Errorf("the carrier ended without the peer's goodbye: %w", io.ErrUnexpectedEOF)
)

// Conn is an encrypted carrier, a net.Conn. One goroutine may read while
// another writes, and any may close or set deadlines.
type Conn struct {
	conn  net.Conn
	state tls.ConnectionState
	peer  jobkey.Member
	r     reader
	w     writer
}

var _ net.Conn = (*Conn)(nil)

// closeWait bounds how long Close tries to say goodbye to a peer that does not
// read, over a carrier that cannot be asked what it has room for.
const closeWait = 200 * time.Millisecond

// Peer returns who the other end has proven to be.
func (c *Conn) Peer() jobkey.Member { return c.peer }

// NetConn returns the connection underneath. Bytes read or written there break
// the encrypted one.
func (c *Conn) NetConn() net.Conn { return c.conn }

// CipherSuite returns the name of the suite in use, as IANA registers it.
func (c *Conn) CipherSuite() string { return tls.CipherSuiteName(c.state.CipherSuite) }

// Exporter returns n bytes that both ends of this connection, and nobody else,
// can compute: the exporter of RFC 8446, section 7.5. They differ for every
// label, context and connection. What they are mixed into is bound to this
// connection.
func (c *Conn) Exporter(label string, context []byte, n int) ([]byte, error) {
	b, err := c.state.ExportKeyingMaterial(label, context, n)
	if err != nil {
		return nil, fmt.Errorf("sealed: exporter: %w", err)
	}
	return b, nil
}

// Read reads at least one byte, and as many as have come, up to len(p). All of
// p may be written to. At the peer's goodbye it returns io.EOF; ErrTruncated
// if the carrier ends without; overlay.ErrForbidden if the peer, after the
// handshake, does not accept this process; and an error about a broken seal if
// anything was changed on the way. These last. A passed deadline does not:
// nothing is lost by it.
func (c *Conn) Read(p []byte) (int, error) { return c.r.read([][]byte{p}) }

// ReadVec reads as Read does into several buffers, one after the other. It may
// return before the last is full, or begun.
func (c *Conn) ReadVec(bufs ...[]byte) (int, error) { return c.r.read(bufs) }

// Write seals and writes p and keeps nothing of it. After an error, a passed
// deadline included, nothing more can be written: what the peer has got may
// end within a record. The count is then of bytes that certainly were written.
func (c *Conn) Write(p []byte) (int, error) { return c.w.write([][]byte{p}) }

// WriteVec writes, as Write does, several buffers one after the other, as if
// they were one. It changes neither them nor bufs.
func (c *Conn) WriteVec(bufs ...[]byte) (int, error) { return c.w.write(bufs) }

// TryWriteVec writes several buffers, as WriteVec does, if the carrier takes all
// without waiting, and returns how many bytes that were: none if it does not, which
// is no error; also where there are more than 16 KiB, the carrier cannot be asked (it
// has no TryWrite), another write is under way or keys are to be changed. Part of a
// record may be with the peer then, and so what was not taken must be written
// next, again by TryWriteVec or as the first of what a write writes; anything else
// is an error. A TryWriteVec that goes on like this takes at most what the one
// before was given.
func (c *Conn) TryWriteVec(bufs ...[]byte) (int, error) { return c.w.try(bufs) }

// CloseWrite tells the peer that nothing more will come, and ends the sending
// side of the connection underneath if that can be done there. It waits for a
// Write that is under way. Reading goes on.
func (c *Conn) CloseWrite() error {
	if err := c.w.sendAlert(alert(c.r.farewell.Load())); err != nil {
		return fmt.Errorf("sealed: close for writing: %w", err)
	}
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close ends the connection and all calls on it. It says goodbye to the peer,
// or why it leaves if the peer broke the protocol, if the carrier takes that
// without waiting, and no Write is under way. A carrier that cannot be asked has a
// fifth of a second for it.
func (c *Conn) Close() error {
	c.w.closeWith(alert(c.r.farewell.Load())) // a courtesy; the peer may be gone
	return c.conn.Close()
}

// LocalAddr returns the address of the connection underneath.
func (c *Conn) LocalAddr() net.Addr { return c.conn.LocalAddr() }

// RemoteAddr returns the peer's address as the connection underneath has it.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// SetReadDeadline bounds Read and ReadVec, which can be called again later.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// SetWriteDeadline bounds writes. One that it interrupts is the last.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }
