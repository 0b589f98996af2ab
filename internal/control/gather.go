package control

import (
	"encoding/binary"
	"net"
)

// gather joins what yamux writes in two pieces, the header of a data frame and its body, into one
// write and so one TLS record. It belongs to one session's sender: writes must not be concurrent.
type gather struct {
	net.Conn
	buf []byte // a held header, and room for its body
}

// The layout of a yamux header: version:u8 type:u8 flags:u16 stream:u32 length:u32; type 0 is data,
// type 2 a ping, and flag 1 a request.
const (
	muxHeaderLen = 12
	muxData      = 0
	muxPing      = 2
	muxSYN       = 1
)

// isPing reports whether b is the header of a ping that requests an answer.
func isPing(b []byte) bool {
	return len(b) == muxHeaderLen && b[1] == muxPing && binary.BigEndian.Uint16(b[2:])&muxSYN != 0
}

func (g *gather) Write(b []byte) (int, error) {
	if len(g.buf) == 0 && len(b) == muxHeaderLen && b[1] == muxData && binary.BigEndian.Uint32(b[8:]) > 0 {
		g.buf = append(g.buf, b...) // the body is the next write
		return len(b), nil
	}
	if len(g.buf) == 0 {
		return g.Conn.Write(b)
	}
	g.buf = append(g.buf, b...)
	n, err := g.Conn.Write(g.buf)
	g.buf = g.buf[:0]
	if cap(g.buf) > 64<<10 {
		g.buf = nil
	}
	return min(max(n-muxHeaderLen, 0), len(b)), err
}
