package control

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// asksToEnrol reads a client's first message from c, and reports whether it wants the protocol for
// enrolment. From the connection that it returns all of that can be read once more. Nothing is sent. If ctx
// ends first, c is closed.
func asksToEnrol(ctx context.Context, c net.Conn) (net.Conn, bool) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	enrols := false
	r := &peeking{Conn: c}
	tls.Server(r, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		enrols = slices.Contains(hello.SupportedProtos, EnrolALPN)
		return nil, errors.New("this was all that was to be known")
	}}).HandshakeContext(ctx)
	return carrier.Unread(c, r.read.Bytes()), enrols
}

// peeking is a connection that keeps what is read from it, and sends nothing.
type peeking struct {
	net.Conn
	read bytes.Buffer
}

// Read implements net.Conn.
func (r *peeking) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read.Write(p[:n])
	return n, err
}

// Write implements net.Conn.
func (r *peeking) Write(p []byte) (int, error) { return len(p), nil }
