package encap

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// ErrHandshake means that the handshake of an encapsulation failed.
var ErrHandshake = errors.New("handshake failed")

// Accepted is a connection whose form is known.
type Accepted struct {
	Stream carrier.Stream // the inner stream; a *net.TCPConn for the plain form
	First  io.Reader      // to read the first frame from: one byte of a plain connection was read already
	Form   Form
}

// Accept reads the first byte of c and performs the handshakes that it announces. cfg is nil where
// TLS is not accepted. The caller has set a deadline on c, which bounds everything, and still owns
// c after an error.
func Accept(c *net.TCPConn, cfg *tls.Config) (Accepted, error) {
	first, err := firstByte(c)
	if err != nil {
		return Accepted{}, err
	}
	switch {
	case first[0] == firstTLS && cfg != nil:
		return acceptTLS(carrier.Unread(c, first), cfg)
	case first[0] == firstHTTP:
		s, err := acceptWebSocket(carrier.Unread(c, first))
		return Accepted{s, s, WebSocket}, err
	}
	return Accepted{c, io.MultiReader(bytes.NewReader(first), c), Plain}, nil
}

func acceptTLS(c *carrier.UnreadConn, cfg *tls.Config) (Accepted, error) {
	t := secured{tls.Server(c, cfg)}
	if err := t.Handshake(); err != nil {
		return Accepted{}, fmt.Errorf("TLS %w: %w", ErrHandshake, err)
	}
	first, err := firstByte(t)
	if err != nil {
		return Accepted{}, err
	}
	inside := carrier.Unread(t, first)
	if first[0] != firstHTTP {
		return Accepted{inside, inside, TLS}, nil
	}
	s, err := acceptWebSocket(inside)
	return Accepted{s, s, WebSocketTLS}, err
}

func firstByte(c net.Conn) ([]byte, error) {
	first := make([]byte, 1)
	_, err := io.ReadFull(c, first)
	return first, err
}

// secured is a connection inside TLS.
type secured struct{ *tls.Conn }

// SetKeepAlive turns the keep-alive of the TCP connection on or off.
func (s secured) SetKeepAlive(on bool) error {
	if tcp := carrier.Socket(s.Conn); tcp != nil {
		return tcp.SetKeepAlive(on)
	}
	return nil
}
