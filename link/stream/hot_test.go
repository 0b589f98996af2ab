package stream

import (
	"io"
	"net"
	"testing"

	"github.com/isthmus-grid/isthmus/wire"
)

// mirror is a connection whose other end returns everything written as data of the peer, which
// takes everything at once.
type mirror struct {
	net.Conn
	off, sent uint64
	size      int
}

func (m *mirror) WriteVec(bufs ...[]byte) (n int, err error) {
	for _, b := range bufs {
		n += len(b)
	}
	m.sent += uint64(m.size)
	return n, nil
}

func (m *mirror) ReadVec(bufs ...[]byte) (int, error) {
	h := wire.LinkHeader{Kind: wire.LinkData, Length: uint32(m.size), Offset: m.off, Ack: m.sent}
	h.Put(bufs[0])
	m.off += uint64(m.size)
	return wire.LinkHeaderLen + m.size, nil
}

func (*mirror) Close() error { return nil }

// BenchmarkOwnWork is the cost of a round trip of a small message without the system calls.
func BenchmarkOwnWork(b *testing.B) {
	s := New(Options{Peer: "a mirror", Lost: func(*Carrier, error, int) error { return io.EOF }, Silent: func(bool) {}, Ended: func() {}})
	if _, err := s.Attach(&mirror{size: 16}, nil, 0, 0); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Fail(net.ErrClosed); s.Wait() })
	msg, in := make([]byte, 16), make([]byte, 16)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Write(msg); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(s, in); err != nil {
			b.Fatal(err)
		}
	}
}
