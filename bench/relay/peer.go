package relay

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// The first bytes on a connection are an order to the server:
//
//	opSink  count to the end of the stream, then answer with 8 bytes, the count
//	opEcho  size:u32, then messages of that size, each of which is sent back
//	opRelay length:u32 proxy:str ticket: dial the proxy, show the ticket, and be the server there
const (
	opSink  = 'S'
	opEcho  = 'E'
	opRelay = 'R'
)

const message = 1 << 20 // bytes; message size of the streams, and the server's buffer

// serveConn is the server's side of one connection.
func serveConn(c *net.TCPConn) error {
	defer c.Close()
	var op [5]byte
	if _, err := io.ReadFull(c, op[:1]); err != nil {
		return err
	}
	if op[0] == opSink {
		return sink(c)
	}
	if _, err := io.ReadFull(c, op[1:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(op[1:]))
	switch {
	case op[0] == opEcho && n <= message:
		return echo(c, make([]byte, n))
	case op[0] == opRelay && n <= 64<<10:
		order := make([]byte, n)
		if _, err := io.ReadFull(c, order); err != nil {
			return err
		}
		return serveRelayed(order)
	}
	return fmt.Errorf("operation %q with %d bytes", op[0], n)
}

func sink(c *net.TCPConn) error {
	buf, total := make([]byte, message), uint64(0)
	for {
		n, err := c.Read(buf)
		total += uint64(n)
		if err == io.EOF {
			_, err = c.Write(binary.BigEndian.AppendUint64(nil, total))
			return err
		}
		if err != nil {
			return err
		}
	}
}

func echo(c *net.TCPConn, buf []byte) error {
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
}

// serveRelayed connects to a proxy as the target of a link would.
func serveRelayed(order []byte) error {
	n := int(order[0])
	if len(order) < 1+n {
		return fmt.Errorf("an order of %d bytes", len(order))
	}
	c, err := carrier.DialTCP(context.Background(), string(order[1:1+n]), carrier.HTTPProxy{})
	if err != nil {
		return err
	}
	if _, err := c.Write(order[1+n:]); err != nil {
		return err
	}
	return serveConn(c)
}
