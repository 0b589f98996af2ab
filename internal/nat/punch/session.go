package punch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/ice/v4"
	"github.com/quic-go/quic-go"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Sizes and times of QUIC.
const (
	// A path of 1 Gb/s and 60 ms holds 7.5 MB; a window that starts there needs no time to grow,
	// and twice that lets a reader fall behind a little.
	firstWindow = 8 << 20
	maxWindow   = 16 << 20

	// An unread stream must not block the others, so the connection's window has room for the
	// windows of all of them.
	allWindows = 2 * maxStreams * maxWindow

	idleTimeout = 30 * time.Second
	keepAlive   = 10 * time.Second // well below the 30 s after which NATs forget a UDP mapping
)

// quicConfig returns the configuration of QUIC. It begins with the smallest packets that RFC 9000
// (section 14) requires a path to carry, because the path may drop larger ones silently, and finds
// larger ones by itself (section 14.3). With small set they never grow.
func quicConfig(small bool) *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           DefaultTimeout,
		MaxIdleTimeout:                 idleTimeout,
		KeepAlivePeriod:                keepAlive,
		InitialStreamReceiveWindow:     firstWindow,
		InitialConnectionReceiveWindow: allWindows,
		MaxStreamReceiveWindow:         maxWindow,
		MaxConnectionReceiveWindow:     allWindows,
		MaxIncomingStreams:             maxStreams,
		MaxIncomingUniStreams:          4 * maxStreams, // marks, of streams of both ends and of earlier ones
		InitialPacketSize:              minDatagram,
		DisablePathMTUDiscovery:        small,
	}
}

// minDatagram is the minimum UDP payload of QUIC, 1200 bytes.
const minDatagram = 1200

// A session is the part of Connect that talks to the peer.
type session struct {
	attempt *Attempt
	run     run
	peer    Description
	targets []Candidate
}

// joined is the connection with its first stream.
type joined struct {
	quic   *quic.Conn
	stream *quic.Stream
	setup  Setup
}

// connect checks the pairs of addresses and then opens QUIC on the chosen one. The result still
// shares the transport with the attempt.
func (s *session) connect() (joined, error) {
	if err := s.run.ice.addRemote(s.targets); err != nil {
		return joined{}, err
	}
	if s.attempt.cfg.Controlling {
		return s.dial(s.run.ctx)
	}
	return s.accept(s.run.ctx)
}

// dial is connect for the controlling end.
func (s *session) dial(ctx context.Context) (joined, error) {
	began, side := time.Now(), s.run.ice
	if _, err := side.agent.Dial(ctx, s.peer.Ufrag, s.peer.Password); err != nil {
		return joined{}, s.checksFailed(ctx, began, err)
	}
	checked := time.Now()
	to, ok := side.selected()
	if !ok {
		return joined{}, s.checksFailed(ctx, began, net.ErrClosed)
	}
	conn, err := s.run.transport.Dial(ctx, net.UDPAddrFromAddrPort(to), s.attempt.identity.config(s.peer.Fingerprint), quicConfig(s.attempt.cfg.SmallPackets))
	if err != nil {
		return joined{}, s.quicFailed(ctx, to, err)
	}
	stream, err := conn.OpenStreamSync(ctx)
	if err == nil {
		_, err = stream.Write([]byte{hello})
	}
	if err != nil {
		conn.CloseWithError(codeAbort, "")
		return joined{}, s.quicFailed(ctx, to, err)
	}
	return joined{conn, stream, Setup{Checks: checked.Sub(began), Handshake: time.Since(checked)}}, nil
}

// accept is connect for the other end. It waits for QUIC and not for ICE, which may still be
// waiting for an answer when QUIC has connected.
func (s *session) accept(ctx context.Context) (joined, error) {
	began, side := time.Now(), s.run.ice
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	refused := func(from netip.AddrPort, err error) {
		if to, ok := side.selected(); ok && to == from {
			cancel(err) // the peer itself; connections of other hosts do not matter
		}
	}
	listener, err := s.run.transport.Listen(listening(s.attempt.identity.config(s.peer.Fingerprint), refused), quicConfig(s.attempt.cfg.SmallPackets))
	if err != nil {
		return joined{}, s.quicFailed(ctx, netip.AddrPort{}, err)
	}
	defer listener.Close()
	if _, err := side.agent.StartAccept(s.peer.Ufrag, s.peer.Password); err != nil {
		return joined{}, s.checksFailed(ctx, began, err)
	}
	checked := sync.OnceValue(time.Now) // when a pair was chosen, or otherwise when QUIC connected
	side.agent.OnSelectedCandidatePairChange(func(_, _ ice.Candidate) { checked() })
	conn, err := listener.Accept(ctx)
	if err != nil {
		if to, ok := side.selected(); ok {
			return joined{}, s.quicFailed(ctx, to, err)
		}
		return joined{}, s.checksFailed(ctx, began, err)
	}
	stream, err := acceptStream(ctx, conn)
	if err != nil {
		conn.CloseWithError(codeAbort, "")
		return joined{}, s.quicFailed(ctx, addrPort(conn.RemoteAddr()), err)
	}
	return joined{conn, stream, Setup{Checks: checked().Sub(began), Handshake: time.Since(checked())}}, nil
}

// acceptStream accepts the peer's stream and reads its hello.
func acceptStream(ctx context.Context, conn *quic.Conn) (*quic.Stream, error) {
	stream, err := conn.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	var first [1]byte
	if _, err := stream.Read(first[:]); err != nil { // the byte is there, or the stream would not be
		return nil, err
	}
	if first[0] != hello {
		return nil, fmt.Errorf("the stream starts with %#x, not with %#x: %w", first[0], hello, overlay.ErrRefused)
	}
	return stream, nil
}

// selected returns the peer's address of the pair that ICE chose.
func (s *iceSide) selected() (netip.AddrPort, bool) {
	pair, err := s.agent.GetSelectedCandidatePair()
	if err != nil || pair == nil {
		return netip.AddrPort{}, false
	}
	addr, err := netip.ParseAddr(pair.Remote.Address())
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(pair.Remote.Port())), true
}

// checksFailed returns the error for a failure of ICE.
func (s *session) checksFailed(ctx context.Context, began time.Time, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("checks: no pair of addresses answered in %v (own: %s; peer's: %s): %w",
		time.Since(began).Round(time.Millisecond), list(s.attempt.own.Candidates), list(s.targets), classify(err))
}

// quicFailed returns the error for a failure of QUIC; to may be invalid.
func (s *session) quicFailed(ctx context.Context, to netip.AddrPort, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("QUIC with %v after the checks passed: %w", to, classify(err))
}
