package stream

import (
	"net"

	"github.com/isthmus-grid/isthmus/internal/ipc/spin"
)

// Conn is a connection as a carrier needs it. ReadVec fills the buffers in order and WriteVec
// writes all of them, each in one system call where the system can; neither keeps or changes bufs.
type Conn interface {
	net.Conn
	ReadVec(bufs ...[]byte) (int, error)
	WriteVec(bufs ...[]byte) (int, error)
}

// ConnOf returns c as a Conn: c itself if it is one, and for a socket one that spins before it
// sleeps. The caller must not use c in parallel.
func ConnOf(c net.Conn) Conn {
	if v, ok := c.(Conn); ok {
		return v
	}
	if s, err := spin.New(c, spin.Options{}); err == nil {
		return s
	}
	return plain{c}
}

// plain is a connection without vectored I/O, such as a QUIC stream.
type plain struct{ net.Conn }

// NetConn returns the connection below, for socket options.
func (c plain) NetConn() net.Conn { return c.Conn }

func (c plain) ReadVec(bufs ...[]byte) (int, error) {
	for _, b := range bufs {
		if len(b) > 0 {
			return c.Read(b)
		}
	}
	return 0, nil
}

// joined is the size up to which WriteVec copies small buffers together.
const joined = 16 << 10

func (c plain) WriteVec(bufs ...[]byte) (total int, err error) {
	var small []byte
	flush := func() error {
		if len(small) == 0 {
			return nil
		}
		n, err := c.Write(small)
		total += n
		small = small[:0]
		return err
	}
	for _, b := range bufs {
		if len(small)+len(b) <= joined {
			small = append(small, b...)
			continue
		}
		if err := flush(); err != nil {
			return total, err
		}
		n, err := c.Write(b)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, flush()
}
