package control

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// The required parts of HTTP/2 (RFC 9113): the frame header, and some types.
const (
	frameHeader   = 9  // length[3] type flags stream[4]
	clientPreface = 24 // bytes that a client sends before its first frame
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	flagEndStream = 1
	flagPadded    = 8
)

// errPadded ends a connection: gRPC does not pad, and messages is not prepared for padding.
var errPadded = errors.New("a padded frame")

// frames finds the frames in one direction of an HTTP/2 connection. It validates nothing: gRPC
// does.
type frames struct {
	skip   int // bytes until the next header
	header [frameHeader]byte
	have   int  // bytes of the header
	begun  bool // a header has been seen
}

// scan calls found for each frame whose header ends in b, and body, if not nil, for each part of a
// DATA frame.
func (f *frames) scan(b []byte, found func(kind, flags byte, stream uint32, length int) error, body func(stream uint32, b []byte)) error {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			if f.header[3] == frameData && f.begun && body != nil {
				body(f.stream(), b[:n])
			}
			f.skip -= n
			b = b[n:]
			continue
		}
		n := copy(f.header[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have < frameHeader {
			return nil
		}
		f.have, f.begun = 0, true
		h := f.header
		f.skip = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if err := found(h[3], h[4], f.stream(), f.skip); err != nil {
			return err
		}
	}
	return nil
}

func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.header[5:]) & (1<<31 - 1) }

// messages finds the gRPC messages of a call: each is a flag, a length of four bytes and that many
// bytes.
type messages struct {
	prefix [5]byte
	have   int    // bytes of the prefix
	left   uint32 // bytes of the message still to come
	cost   int    // of the incomplete message
	whole  []int  // costs of complete, unread messages, oldest first
}

func (m *messages) scan(b []byte) {
	for len(b) > 0 {
		if m.have < len(m.prefix) {
			n := copy(m.prefix[m.have:], b)
			m.have += n
			m.cost += n
			b = b[n:]
			if m.have < len(m.prefix) {
				return
			}
			m.left = binary.BigEndian.Uint32(m.prefix[1:])
		}
		n := int(min(int64(m.left), int64(len(b))))
		m.left -= uint32(n)
		m.cost += n
		b = b[n:]
		if m.left == 0 {
			m.whole = append(m.whole, m.cost)
			m.have, m.cost = 0, 0
		}
	}
}

// read removes the first message and returns its cost, 0 if there is none.
func (m *messages) read() (cost int) {
	if len(m.whole) > 0 {
		cost, m.whole = m.whole[0], m.whole[1:]
	}
	return cost
}

// metered is a stream of a session, carrying HTTP/2, that counts the peer's frames. One goroutine
// at a time may call Read, and one Write.
type metered struct {
	net.Conn
	from    io.Reader // the connection, buffered
	purse   *streamBudget
	calls   bool   // the peer calls and this end serves
	last    uint32 // the call of the last header; for the reading goroutine
	in, out frames
	closing sync.Once
	closed  func()
}

// newMetered returns c metered. calls means that the peer calls and this end serves; otherwise the
// reverse. The first Close calls closed.
func newMetered(c net.Conn, calls bool, p *streamBudget, closed func()) *metered {
	m := &metered{Conn: c, from: c, purse: p, calls: calls, closed: closed}
	if calls {
		m.from = bufio.NewReaderSize(c, 32<<10) // like gRPC's own buffer
		m.in.skip = clientPreface
	} else {
		m.out.skip = clientPreface
	}
	return m
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.from.Read(b)
	body := m.purse.body
	if !m.calls {
		body = nil
	}
	over := m.in.scan(b[:n], func(kind, flags byte, stream uint32, length int) error {
		switch {
		case kind == frameData && flags&flagPadded != 0 && m.calls:
			return errPadded
		case kind == frameData:
			return m.purse.received(stream, length)
		case kind == frameReset, kind == frameHeaders && flags&flagEndStream != 0 && !m.calls:
			m.purse.streamEnded(stream)
		case kind == frameHeaders && m.calls:
			m.last = stream
			return m.purse.opened(stream)
		}
		return nil
	}, body)
	if over != nil {
		if over != errClosed { // otherwise it was reported already
			m.purse.exceed(over, true)
		}
		return 0, over
	}
	return n, err
}

func (m *metered) Write(b []byte) (int, error) {
	// Before the bytes are sent: the peer's answer may arrive before Write returns.
	over := m.out.scan(b, func(kind, flags byte, stream uint32, length int) error {
		switch {
		case kind == frameHeaders && !m.calls:
			return m.purse.opened(stream)
		case kind == frameReset, m.calls && flags&flagEndStream != 0 && (kind == frameHeaders || kind == frameData):
			m.purse.streamEnded(stream)
		}
		return nil
	}, nil)
	if over != nil {
		return 0, over
	}
	return m.Conn.Write(b)
}

func (m *metered) Close() error {
	m.closing.Do(func() {
		m.purse.close()
		if m.closed != nil {
			m.closed()
		}
	})
	return m.Conn.Close()
}
