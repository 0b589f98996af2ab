package carrier

import "net"

// Stream is a connection whose two directions end separately: a *net.TCPConn, or a stream inside
// one.
type Stream interface {
	net.Conn
	CloseWrite() error // the peer then reads an end of stream
}

// Socket returns the TCP socket that carries c, or nil.
func Socket(c net.Conn) *net.TCPConn {
	for {
		switch in := c.(type) {
		case *net.TCPConn:
			return in
		case interface{ NetConn() net.Conn }:
			c = in.NetConn()
		default:
			return nil
		}
	}
}

// Reset closes c with a reset, so that the peer knows that the stream was cut.
func Reset(c net.Conn) {
	if tcp := Socket(c); tcp != nil {
		tcp.SetLinger(0) // close sends a reset
		tcp.Close()
		return
	}
	c.Close()
}

// Unread returns c with bytes that were read from it put back.
func Unread(c net.Conn, b []byte) *UnreadConn { return &UnreadConn{c, b} }

// UnreadConn is a connection of which some bytes were read ahead.
type UnreadConn struct {
	net.Conn
	ahead []byte // owned by the reader
}

// NetConn returns the underlying connection.
func (c *UnreadConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *UnreadConn) Read(p []byte) (int, error) {
	if len(c.ahead) == 0 || len(p) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// CloseWrite ends only the sending side, if the connection can.
func (c *UnreadConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetKeepAlive turns TCP's own keep-alive on or off, if there is one.
func (c *UnreadConn) SetKeepAlive(on bool) error {
	if tcp, ok := c.Conn.(interface{ SetKeepAlive(bool) error }); ok {
		return tcp.SetKeepAlive(on)
	}
	if tcp := Socket(c.Conn); tcp != nil {
		return tcp.SetKeepAlive(on)
	}
	return nil
}

// deadStream is dead for the socket that carries c.
func deadStream(c Stream) error {
	if tcp := Socket(c); tcp != nil {
		return dead(tcp)
	}
	return nil
}
