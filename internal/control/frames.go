package control

import (
	"encoding/binary"
	"net"
	"sync"
)

// What is needed of HTTP/2 (RFC 9113): the header of a frame, and some types.
const (
	frameHeader   = 9  // length[3] type flags stream[4]
	clientPreface = 24 // bytes that a client sends before its first frame
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	flagEndStream = 1
)

// frames finds the frames in one direction of an HTTP/2 connection. It checks
// nothing: gRPC does.
type frames struct {
	skip   int // bytes until the next header
	header [frameHeader]byte
	have   int // bytes of the header
}

// scan calls found for each frame whose header ends in b.
func (f *frames) scan(b []byte, found func(kind, flags byte, stream uint32, length int) error) error {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
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
		f.have = 0
		h := f.header
		f.skip = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if err := found(h[3], h[4], binary.BigEndian.Uint32(h[5:])&(1<<31-1), f.skip); err != nil {
			return err
		}
	}
	return nil
}

// metered is a stream of a session, with HTTP/2 on it, that counts what the
// peer sends. Read is called by one goroutine at a time, and so is Write.
type metered struct {
	net.Conn
	purse   *purse
	calls   bool // the peer calls, this end answers
	in, out frames
	exceed  func(error) // told why the limit ends the session
	closing sync.Once
	closed  func()
}

// newMetered returns c metered. calls says that the peer calls and this end
// answers; else it is the other way round. exceed is told of an error of the
// purse, closed of the first Close.
func newMetered(c net.Conn, calls bool, p *purse, exceed func(error), closed func()) *metered {
	m := &metered{Conn: c, purse: p, calls: calls, exceed: exceed, closed: closed}
	if calls {
		m.in.skip = clientPreface
	} else {
		m.out.skip = clientPreface
	}
	return m
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	over := m.in.scan(b[:n], func(kind, flags byte, stream uint32, length int) error {
		switch {
		case kind == frameData:
			return m.purse.received(stream, length)
		case kind == frameReset, kind == frameHeaders && flags&flagEndStream != 0 && !m.calls:
			m.purse.over(stream)
		case kind == frameHeaders && m.calls:
			return m.purse.opened(stream)
		}
		return nil
	})
	if over != nil {
		m.exceed(over)
		return 0, over
	}
	return n, err
}

func (m *metered) Write(b []byte) (int, error) {
	// Before the bytes leave: the peer's answer may come before Write returns.
	over := m.out.scan(b, func(kind, flags byte, stream uint32, length int) error {
		switch {
		case kind == frameHeaders && !m.calls:
			return m.purse.opened(stream)
		case kind == frameReset, m.calls && flags&flagEndStream != 0 && (kind == frameHeaders || kind == frameData):
			m.purse.over(stream)
		}
		return nil
	})
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
