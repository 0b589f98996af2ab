package punch

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/pion/ice/v4"
	"github.com/quic-go/quic-go"
)

// A sharedSocket is ICE's view of the socket that QUIC owns: it receives datagrams that are not
// QUIC (STUN's first byte never looks like QUIC's), and sends anything. Closing it, and deadlines,
// do not affect the socket itself.
type sharedSocket struct {
	transport *quic.Transport
	local     net.Addr
	ctx       context.Context
	cancel    context.CancelFunc
	failure   atomic.Pointer[error] // of the latest failed write
}

func newSharedSocket(t *quic.Transport) *sharedSocket {
	s := &sharedSocket{transport: t, local: t.Conn.LocalAddr()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	// The transport keeps no datagram for ICE before the first call.
	past, cancel := context.WithCancel(s.ctx)
	cancel()
	t.ReadNonQUICPacket(past, nil)
	return s
}

func (s *sharedSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := s.transport.ReadNonQUICPacket(s.ctx, b)
	if err != nil {
		return 0, nil, net.ErrClosed // of the context or of the transport
	}
	return n, from, nil
}

func (s *sharedSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	n, err := s.transport.WriteTo(b, to)
	if err != nil {
		s.failure.Store(&err)
	}
	return n, err
}

// Close ends ReadFrom.
func (s *sharedSocket) Close() error {
	s.cancel()
	return nil
}

func (s *sharedSocket) LocalAddr() net.Addr              { return s.local }
func (s *sharedSocket) SetDeadline(time.Time) error      { return nil }
func (s *sharedSocket) SetReadDeadline(time.Time) error  { return nil }
func (s *sharedSocket) SetWriteDeadline(time.Time) error { return nil }

// A mux gives ICE the shared socket, under the candidate addresses only: a wildcard socket would
// have all addresses of the host.
type mux struct {
	*ice.UniversalUDPMuxDefault
	addrs []net.Addr
}

// GetListenAddresses returns the addresses for host candidates.
func (m *mux) GetListenAddresses() []net.Addr { return m.addrs }
