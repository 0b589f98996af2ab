package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/rtt"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// The control protocol versions that this build speaks.
const (
	OldestVersion = 1
	NewestVersion = 1
)

// Software names this build to its peers, for their logs.
const Software = "isthmus/0.1"

// errStalled means that a connection was established but its handshake did not complete, and nobody said why.
var errStalled = errors.New("the control hand-shake did not end")

// handshakeTimeout bounds everything before the first call of a session.
const handshakeTimeout = 10 * time.Second

// keepAlive is the interval of yamux's keepalive pings from each end. Their answers may take muxTimeout, which is for a
// process that never runs in time: the pulse detects a dead path, by its round trip and its losses.
const (
	keepAlive  = 5 * time.Second
	muxTimeout = 30 * time.Second
)

// streamWindow is the receive window for a stream that carries files: 60 ms x 1 Gb/s. The default
// of 256 KiB would limit a session across a continent to 35 Mb/s. callWindow is yamux's window
// where a stream carries calls: it holds bytes that gRPC has not read yet, and which are in no
// budget.
const (
	streamWindow = 8 << 20
	callWindow   = 1 << 20
)

// maxBacklog bounds the streams of a session that the peer opened and that were not accepted yet,
// which takes microseconds. Further ones are reset.
const maxBacklog = 16

// Session is one control connection. Calls go both ways on it.
type Session struct {
	peer  Proof
	creds *Credentials // this end's
	visit bool
	conn  net.Conn // TLS
	mux   *yamux.Session
	rpc   *grpc.ClientConn
	log   *slog.Logger
	pulse *pulse

	accounts   *accounts    // that count the peer's calls
	overLogged atomic.Int64 // Unix time of the last log line about the peer's budget
	excess     chan error   // holds the error that must end the session, once the peer exceeds its budget too far

	// has reports whether an address is one of this host; nil where this end does not check.
	has func(netip.Addr) bool

	dialled  bool   // by this end
	instance uint16 // of the peer's process, as it says; 0 of older versions

	claimed   sync.Once // for Endpoint.Claim
	claimErr  error
	contested atomic.Bool // the peer refused this end because another host has its certificate

	mu    sync.Mutex // guards cause
	cause error      // why this end ended the session; nil if the other end did
}

// Peer returns the identity of the other end.
func (s *Session) Peer() Identity { return s.peer.Identity }

// Proof returns the content of the peer's certificate at the start of the session.
func (s *Session) Proof() Proof { return s.peer }

// Account returns the one account for which the peer may act, by its certificate (AccountOf); ""
// for any of its node.
func (s *Session) Account() string { return AccountOf(s.peer.Leaf) }

// Visiting reports whether the peer only makes calls (DialConfig.Visit): it holds the daemon's
// certificate without acting as the daemon.
func (s *Session) Visiting() bool { return s.visit }

// Prepare makes the session ready for calls to the peer, without waiting: the first call of a session
// takes a round trip more than others, and the peer's processes may wait for it.
func (s *Session) Prepare() { s.rpc.Connect() }

// Conn returns the connection for calls to the other end. It is valid until the session ends; calls
// then fail with overlay.ErrNoSession (see FromStatus), which also is an overlay.ErrUnreachable.
func (s *Session) Conn() *grpc.ClientConn { return s.rpc }

// RemoteAddr returns the address of the other end, as seen by this one.
func (s *Session) RemoteAddr() netip.AddrPort {
	if a, ok := s.conn.RemoteAddr().(*net.TCPAddr); ok {
		ap := a.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// LocalAddr returns the address of this end of the connection.
func (s *Session) LocalAddr() netip.AddrPort {
	if a, ok := s.conn.LocalAddr().(*net.TCPAddr); ok {
		ap := a.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// RTT returns the session's smoothed round trip as measured by the kernel (TCP_INFO), up to an HTTP
// proxy if the peer connects through one; 0 if unknown.
func (s *Session) RTT() time.Duration { return rtt.Of(s.conn).SRTT }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.mux.CloseChan() }

// Err returns why the session ended. It is meaningless before the end.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		return fmt.Errorf("the session with %v ended", s.Peer())
	}
	return fmt.Errorf("the session with %v ended: %w", s.Peer(), s.cause)
}

var errAddressGone = errors.New("no longer an address of this host")

// Close ends the session; calls in flight fail. It may be called repeatedly.
func (s *Session) Close() error {
	err := s.mux.Close() // first: calls then fail because the session has ended
	s.rpc.Close()
	s.conn.Close()
	return err
}

// end is Close with a reason.
func (s *Session) end(cause error) {
	s.mu.Lock()
	s.cause = cause
	s.mu.Unlock()
	s.Close()
}

// featureVisit, a bit of ControlHello.Features, marks the sender as a visitor. A peer that does not
// know it treats a visitor as the daemon that holds the certificate.
const featureVisit = 1 << 0

// instanceShift is where ControlHello.Features has a number that the sender's process has drawn: a
// daemon that connects again is told from another host's with the same certificate by it.
const instanceShift = 16

// peerHello is the result of the handshake.
type peerHello struct {
	Proof
	features uint32
}

// handshake performs everything on a new TLS connection that precedes yamux: certificates,
// versions, and messages of refusal. client is the side that dialled. It closes conn when it fails.
func handshake(ctx context.Context, conn *tls.Conn, verify func(tls.ConnectionState) (Proof, error), by Identity, features uint32) (peerHello, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	id, err := exchange(ctx, conn, verify, by, features)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return peerHello{}, stalled(ctx, err)
	}
	return id, nil
}

// stalled returns the error of a handshake whose time was over when ctx ended, or which the other end
// broke off without a message: its time is over first, since it began to wait first.
func stalled(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w within %v (%w)", errStalled, handshakeTimeout, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: the connection was closed without a message (%w)", errStalled, err)
	}
	return err
}

func exchange(ctx context.Context, conn *tls.Conn, verify func(tls.ConnectionState) (Proof, error), by Identity, features uint32) (peerHello, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return peerHello{}, fmt.Errorf("TLS: %w", err)
	}
	id, err := verify(conn.ConnectionState())
	if err != nil {
		refuse(conn, by, overlay.ErrForbidden, err)
		return peerHello{}, fmt.Errorf("%w: %w", overlay.ErrForbidden, err)
	}
	hello := wire.Append(nil, &wire.ControlHello{Oldest: OldestVersion, Newest: NewestVersion, Features: features, Software: Software})
	if _, err := conn.Write(hello); err != nil {
		return peerHello{}, err
	}
	frame, err := wire.Read(conn)
	if err != nil {
		err = fmt.Errorf("waiting for the hello of %v: %w", id.Identity, err)
		if garbled(err) {
			refuse(conn, by, err, err)
		}
		return peerHello{}, err
	}
	switch f := frame.(type) {
	case *wire.Refuse:
		return peerHello{}, f.Err()
	case *wire.ControlHello:
		if f.Newest < OldestVersion || f.Oldest > NewestVersion {
			err := fmt.Errorf("%w: %v (%s) speaks control versions %d to %d, %v (%s) speaks %d to %d; upgrade the older one",
				wire.ErrVersion, id.Identity, f.Software, f.Oldest, f.Newest, by, Software, OldestVersion, NewestVersion)
			refuse(conn, by, wire.ErrVersion, err)
			return peerHello{}, err
		}
		return peerHello{id, f.Features}, nil
	default:
		err := fmt.Errorf("%w: a %v in place of a control hello", wire.ErrType, frame.Type())
		refuse(conn, by, err, err)
		return peerHello{}, err
	}
}

// garbled reports whether the peer's message was not understood, so that the peer must be told.
func garbled(err error) bool {
	for _, class := range []error{wire.ErrMagic, wire.ErrVersion, wire.ErrType, wire.ErrMalformed} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// refuse sends the peer the reason, and waits for it to close the connection, since closing with
// unread input would reset the connection and lose the message.
func refuse(conn *tls.Conn, by Identity, class, reason error) {
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	conn.Write(wire.Append(nil, &wire.Refuse{Code: wire.CodeOf(class), By: by.String(), Text: reason.Error()}))
	conn.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(conn, 64<<10))
}

// start runs yamux and gRPC on a connection after its handshake. The session owns the connection
// from then on. idle is as in DialConfig.AskIdle.
func (e *Endpoint) start(conn net.Conn, id peerHello, client bool, idle time.Duration) (*Session, error) {
	cfg := yamux.DefaultConfig()
	cfg.MaxStreamWindowSize = e.window
	cfg.KeepAliveInterval = keepAlive
	cfg.ConnectionWriteTimeout = muxTimeout
	cfg.AcceptBacklog = maxBacklog
	cfg.StreamCloseTimeout = 30 * time.Second
	cfg.LogOutput = nil
	cfg.Logger = slog.NewLogLogger(e.log.With("peer", id.String()).Handler(), slog.LevelDebug)
	open := yamux.Server
	if client {
		open = yamux.Client
	}
	pulse := newPulse(conn, idle)
	mux, err := open(&gather{Conn: breaking{pulseConn{conn, pulse}}}, cfg)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := &Session{peer: id.Proof, creds: e.creds, visit: id.features&featureVisit != 0, conn: conn, mux: mux, log: e.log, pulse: pulse, accounts: e.accepted, excess: make(chan error, 1),
		dialled: client, instance: uint16(id.features >> instanceShift)}
	if client {
		s.has, s.accounts = e.has, e.dialled
	}
	s.rpc, err = grpc.NewClient("passthrough:///"+id.Role.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // yamux runs inside TLS
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			c, err := mux.Open()
			if err != nil {
				return nil, err
			}
			return newMetered(c, false, e.newStreamBudget(s, nil), nil), nil
		}), grpc.WithMaxHeaderListSize(maxHeader), Bounded(),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(streamWindow),
		grpc.WithUnaryInterceptor(s.unary), grpc.WithStreamInterceptor(s.stream),
		grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
	)
	if err != nil {
		mux.Close()
		conn.Close()
		return nil, err
	}
	return s, nil
}

// newStreamBudget returns a new budget on the peer's account; open is nil where this end calls.
func (e *Endpoint) newStreamBudget(s *Session, open *limit.Counter[string]) *streamBudget {
	return newPurse(s.Peer().String(), e.Identity().String(), s.accounts, open, func(err error, end bool) { e.exceeded(s, err, end) })
}

// stream is one yamux stream of a session, with the session, which handlers retrieve by SessionOf.
type stream struct {
	*metered
	session *Session
}

// sessionInfo is the credentials.AuthInfo of calls on a session.
type sessionInfo struct {
	credentials.CommonAuthInfo
	*stream
}

func (i sessionInfo) meter() *metered { return i.metered }

// AuthType implements credentials.AuthInfo.
func (sessionInfo) AuthType() string { return "isthmus-session" }

// streamCredentials passes the session of a stream to gRPC.
type streamCredentials struct{}

func (streamCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	st, ok := c.(*stream)
	if !ok {
		return nil, nil, fmt.Errorf("control: a connection of type %T outside any session", c)
	}
	return c, sessionInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, st}, nil
}

func (streamCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("control: server credentials used by a client")
}

func (streamCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "isthmus-session"}
}
func (c streamCredentials) Clone() credentials.TransportCredentials { return c }
func (streamCredentials) OverrideServerName(string) error           { return nil }

// SessionOf returns the session of the call that ctx belongs to. It panics outside a handler of an
// Endpoint.
func SessionOf(ctx context.Context) *Session {
	p, ok := peer.FromContext(ctx)
	if !ok {
		panic("control.SessionOf: not in a call")
	}
	return p.AuthInfo.(sessionInfo).session
}
