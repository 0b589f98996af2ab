// Package control is the base of the control plane: mutual TLS 1.3 between daemons that are
// identified by role and name, a yamux session over it, and gRPC in both directions over that, so
// that a broker can call a frontal that cannot be dialled. It also carries the errors and values of
// package overlay across calls.
//
// It knows no site, job or technique; the daemons give the calls their meaning. Its state is the
// set of open sessions, each owned by the Endpoint method that made it.
package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Endpoint is one daemon's side of all its control sessions, dialled and accepted. One gRPC server
// serves the calls of every peer. Safe for concurrent use.
type Endpoint struct {
	creds *Credentials
	log   *slog.Logger
	rpc   *grpc.Server
	in    chan net.Conn // streams opened by peers, to rpc
	done  chan struct{} // closed by Close
	once  sync.Once
	serve sync.WaitGroup
	has   func(netip.Addr) bool // carrier.HasAddress, except in tests

	instance uint16 // of this process
	claims   claims // of peers

	window            uint32           // of a yamux stream
	half              *accept.HalfOpen // callers that have not authenticated yet
	accepted, dialled *accounts        // of peers that connected, and of those that were dialled

	// Refused, if not nil, is called for every caller that Serve refused: with its address, and the
	// reason. Set it before Serve; it must not block.
	Refused func(from net.Addr, err error)

	// OverBudget, if not nil, is called for every call that was refused, and every session that was
	// ended, because the peer exceeded its Budget. Set it before Serve; it must not block.
	OverBudget func(s *Session, err error)

	// Data, if not nil, is called with connections that carry data frames, after the TLS handshake;
	// it owns them. Set it before Serve.
	Data  func(ctx context.Context, conn *tls.Conn)
	trust Trust
}

// NewEndpoint returns an endpoint that serves the services that register adds. Close it when all
// its sessions are over.
func NewEndpoint(creds *Credentials, log *slog.Logger, register func(grpc.ServiceRegistrar)) *Endpoint {
	e := &Endpoint{
		creds: creds,
		log:   log,
		in:    make(chan net.Conn),
		done:  make(chan struct{}),
		has:   carrier.HasAddress,

		instance: uint16(1 + rand.N(1<<16-1)),

		window:   callWindow,
		accepted: newAccounts(StandardBudget), dialled: newAccounts(dialledBudget),
	}
	var offered services
	controlpb.RegisterTrustServer(Counted(&offered), trustService{e: e})
	if register != nil {
		register(Counted(&offered))
	}
	e.rpc = grpc.NewServer(append(serverOptions(), grpc.Creds(streamCredentials{}), grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(streamWindow), grpc.MaxRecvMsgSize(offered.longest()))...)
	for _, s := range offered {
		e.rpc.RegisterService(s.desc, s.impl)
	}
	e.half = accept.NewHalfOpen(standardHalfOpen, e.turnedAway)
	return e
}

// standardHalfOpen is the default bound on callers that have not authenticated yet.
var standardHalfOpen = accept.Bounds{Total: 1024, PerSource: 512}

// SetHalfOpen makes the endpoint share a bound on callers that have not authenticated yet. h itself
// reports the callers that it turns away. Call it before Serve.
func (e *Endpoint) SetHalfOpen(h *accept.HalfOpen) { e.half = h }

// turnedAway reports a refused caller.
func (e *Endpoint) turnedAway(from net.Addr, err error) {
	e.log.Warn("control session refused", "from", from.String(), "error", err)
	if e.Refused != nil {
		e.Refused(from, err)
	}
}

// Identity returns this endpoint's identity.
func (e *Endpoint) Identity() Identity { return e.creds.id }

// startServing starts the gRPC server with the first session: a constructor starts nothing.
func (e *Endpoint) startServing() {
	e.once.Do(func() { e.serve.Go(func() { e.rpc.Serve(streamListener{e}) }) })
}

// Close ends all sessions and returns when nothing of the endpoint is running.
func (e *Endpoint) Close() {
	select {
	case <-e.done:
	default:
		close(e.done)
	}
	e.once.Do(func() {})
	e.rpc.Stop()
	e.serve.Wait()
}

// streamListener presents the streams of all sessions as the accepted connections of one listener.
type streamListener struct{ e *Endpoint }

func (l streamListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.e.in:
		return c, nil
	case <-l.e.done:
		return nil, net.ErrClosed
	}
}
func (l streamListener) Close() error   { return nil }
func (l streamListener) Addr() net.Addr { return &net.UnixAddr{Name: "control", Net: "yamux"} }

// run passes the streams that the peer opens to the gRPC server, until the session or ctx ends, and
// monitors the session. It closes the session.
func (e *Endpoint) run(ctx context.Context, s *Session) {
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(s.watch)
	watch.Go(s.tellRevocations)
	defer context.AfterFunc(ctx, func() { s.Close() })()
	defer s.Close()
	for {
		c, err := s.mux.Accept()
		if err != nil {
			return
		}
		st, err := e.stream(s, c)
		if err != nil {
			c.Close()
			e.exceeded(s, err, true)
			return
		}
		select {
		case e.in <- st:
		case <-e.done:
			st.Close()
			return
		}
	}
}

// stream accounts for a stream that the peer opened.
func (e *Endpoint) stream(s *Session, c net.Conn) (net.Conn, error) {
	who, streams := s.Peer().String(), s.accounts.streams
	if err := streams.Take(who, 1); err != nil {
		return nil, err
	}
	return &stream{session: s, metered: newMetered(c, true, e.newStreamBudget(s, s.accounts.open), func() { streams.Give(who, 1) })}, nil
}

// Serve accepts sessions on ln until ctx ends or ln fails, and closes ln. admit then decides about
// a peer whose certificate is valid; the peer receives its refusal as a message. joined, if not
// nil, runs for each session; its context ends with the session. Serve returns when every accepted
// session has ended and every joined has returned.
func (e *Endpoint) Serve(ctx context.Context, ln net.Listener, admit func(Identity) error, joined func(context.Context, *Session)) error {
	e.startServing()
	outer := ctx // ends before what is derived from it, possibly including ln
	ctx, cancel := context.WithCancel(ctx)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	err := accept.Each(outer, e.log, ln.Addr(), ln.Accept, func(c net.Conn) {
		place, err := e.half.Enter(c)
		if err != nil {
			c.Close()
			return
		}
		sessions.Go(func() { e.accept(ctx, c, place, admit, joined) })
	})
	if err != nil {
		return fmt.Errorf("control: accepting sessions on %v: %w", ln.Addr(), err)
	}
	return nil
}

// accept makes a session of a connection and serves it to its end. It releases the place when the
// peer has authenticated.
func (e *Endpoint) accept(ctx context.Context, c net.Conn, place *limit.Place[accept.Source], admit func(Identity) error, joined func(context.Context, *Session)) {
	e.refresh()
	if e.trust.PassEnrol != nil {
		var enrols bool
		if c, enrols = asksToEnrol(ctx, c); enrols {
			e.trust.PassEnrol(ctx, c)
			c.Close()
			place.Leave()
			return
		}
	}
	conn := tls.Server(c, e.creds.serverTLS(e.trust.Enrol != nil, e.Data != nil))
	if (e.trust.Enrol != nil || e.Data != nil) && e.serveOther(ctx, conn, place.Leave) {
		place.Leave()
		return
	}
	who := "" // account of the session
	defer func() {
		if who != "" {
			e.accepted.sessions.Give(who, 1)
		}
	}()
	id, err := handshake(ctx, conn, func(state tls.ConnectionState) (Proof, error) {
		p, err := e.creds.verify(rawChain(state))
		if err == nil && admit != nil {
			err = admit(p.Identity)
		}
		if err == nil {
			if err = e.accepted.sessions.Take(p.Identity.String(), 1); err == nil {
				who = p.Identity.String()
			}
		}
		return p, err
	}, e.creds.id, 0)
	if !place.Leave() {
		conn.Close()
		return // it was closed to make room for another source, which has been reported already
	}
	if err != nil {
		e.turnedAway(c.RemoteAddr(), err)
		return
	}
	s, err := e.start(conn, id, false, 0)
	if err != nil {
		e.log.Error("control session", "peer", id.String(), "error", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer e.claims.release(s)
	if joined != nil {
		wg.Go(func() { joined(ctx, s) })
	}
	e.run(ctx, s)
}

// DialConfig is where a session connects to and which peer it expects there.
type DialConfig struct {
	Addr string // host:port
	Role Role   // of the expected daemon

	// Visit marks a session that only makes calls: the accepting daemon does not treat it as the
	// session of the daemon that holds the certificate, and does not end that one's session.
	Visit bool

	// AskIdle is the silence after which the peer is pinged even if no call is waiting, where
	// another peer could be used instead; 0 means 5.5 s. A peer that then does not respond is
	// dropped within 2.5 s.
	AskIdle time.Duration

	HTTPProxy carrier.HTTPProxy // on the way there, if it has an address
	Small     bool              // see carrier.DialOptions

	// Reached, if not nil, is called for each connection, before its TLS handshake; several addresses
	// of one name may accept at a time.
	Reached func()

	// Dial, if not nil, opens the connection, in place of HTTPProxy, Small and Reached.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Longest is the longest wait of Keep between two tries, varied by up to half of it either way;
	// 0 means 2 s.
	Longest time.Duration

	// Down is called by Keep with the reason for each failed try and each session's end, before it
	// waits for the next try. It may be nil.
	Down func(err error)
}

func (e *Endpoint) features(cfg DialConfig) uint32 {
	f := uint32(e.instance) << instanceShift
	if cfg.Visit {
		f |= featureVisit
	}
	return f
}

// Dial opens one session, which lives until ctx ends, either end closes it or the path dies.
// Meanwhile the session serves the peer's calls.
func (e *Endpoint) Dial(ctx context.Context, cfg DialConfig) (*Session, error) {
	s, err := e.connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	e.startServing()
	e.serve.Go(func() { e.run(ctx, s) })
	return s, nil
}

func (e *Endpoint) connect(ctx context.Context, cfg DialConfig) (*Session, error) {
	fail := func(err error) (*Session, error) {
		err = WithoutAddress(err, cfg.Addr)
		if class := dialClass(err); class != nil {
			return nil, fmt.Errorf("%v at %s: %w: %w", cfg.Role, cfg.Addr, class, err)
		}
		return nil, fmt.Errorf("%v at %s: %w", cfg.Role, cfg.Addr, err)
	}
	conn, err := e.open(ctx, cfg)
	if err != nil {
		return fail(err)
	}
	id, err := handshake(ctx, conn, func(state tls.ConnectionState) (Proof, error) {
		return e.creds.verify(rawChain(state)) // again, since a revocation list may have arrived
	}, e.creds.id, e.features(cfg))
	if err != nil {
		return fail(err)
	}
	s, err := e.start(conn, id, true, cfg.AskIdle)
	if err != nil {
		return fail(err)
	}
	return s, nil
}

// open opens a connection on which TLS has a handshake or is to have one. Where the name in cfg.Addr
// has several addresses, the handshake belongs to the attempts, so that none that accepts and stays
// silent stands in the way of the others. What follows it is done on one connection alone: the peer
// then counts it as a session.
func (e *Endpoint) open(ctx context.Context, cfg DialConfig) (*tls.Conn, error) {
	host, _, err := net.SplitHostPort(cfg.Addr)
	if err != nil || net.ParseIP(host) != nil {
		host = "" // SNI carries names only
	}
	e.refresh()
	client := e.creds.clientTLS(cfg.Role, host)
	if cfg.Dial != nil {
		c, err := cfg.Dial(ctx, cfg.Addr)
		if err != nil {
			return nil, err
		}
		return tls.Client(c, client), nil
	}
	return carrier.Dial(ctx, cfg.Addr, carrier.DialOptions{Via: cfg.HTTPProxy, Small: cfg.Small, Connect: handshakeTimeout}, func(ctx context.Context, c *net.TCPConn) (*tls.Conn, error) {
		if cfg.Reached != nil {
			cfg.Reached()
		}
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		conn := tls.Client(c, client)
		if err := conn.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, stalled(ctx, fmt.Errorf("TLS: %w", err))
		}
		return conn, nil
	})
}

// Keep keeps one session up until ctx ends: it dials, runs up for the new session, and dials again
// when the session has ended. The wait between tries doubles from 100 ms to cfg.Longest, with
// jitter, and starts over after a session that up accepted. It is some minutes after the peer has refused
// the session because another host presents the same certificate. An error of up closes the session. Keep
// returns nil when ctx has ended and up has returned.
func (e *Endpoint) Keep(ctx context.Context, cfg DialConfig, up func(context.Context, *Session) error) error {
	pauses := pauses{longest: cfg.Longest}
	small := false
	for {
		next := ctx
		if small {
			next = carrier.WithSmallPackets(ctx)
		}
		accepted, err := e.keepOnce(next, cfg, up)
		if ctx.Err() != nil {
			return nil
		}
		small = smallNext(small, err)
		if cfg.Down != nil {
			cfg.Down(err)
		}
		wait, tell := pauses.next(accepted, time.Now())
		if isContested(err) {
			wait = contestedPause
		}
		if tell {
			e.log.Warn("no control session", "with", cfg.Role.String(), "address", cfg.Addr, "error", err, "retry_in", wait.String())
		}
		if accepted && errors.Is(err, errAddressGone) {
			continue // not the peer's fault; its other peers have not moved
		}
		if sleep.For(ctx, wait/2+rand.N(wait)) != nil {
			return nil
		}
	}
}

func (e *Endpoint) keepOnce(ctx context.Context, cfg DialConfig, up func(context.Context, *Session) error) (accepted bool, err error) {
	s, err := e.connect(ctx, cfg)
	if err != nil {
		return false, err
	}
	if carrier.SmallPackets(ctx) {
		e.log.Warn("the control session has packets of 576 bytes and is slower, because the connection before it carried nothing in larger ones", "with", cfg.Role.String(), "address", cfg.Addr,
			"remedy", "let ICMP \"fragmentation needed\" (type 3, code 4; ICMPv6 type 2) pass the firewalls on the path, or set profile.mtu of the site behind the smaller MTU")
	}
	e.startServing()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	result := make(chan error, 1)
	wg.Go(func() {
		err := up(ctx, s)
		result <- err
		if err != nil {
			s.Close()
		}
	})
	e.run(ctx, s)
	cancel()
	wg.Wait()
	err = <-result
	if s.contested.Load() {
		if err == nil {
			err = s.Err()
		}
		return false, &contestedError{err}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return false, err
	}
	return true, s.Err()
}

// smallNext reports whether the next connection must use small packets, after one that used them,
// or not, ended by err: if connections are established and then carry nothing, larger packets may
// be dropped on the path. If small ones are dropped too, that is not the cause.
func smallNext(small bool, err error) bool {
	var silent *SilentError
	return !small && (errors.Is(err, errStalled) || errors.As(err, &silent) && !silent.Alive)
}

// dialClass classifies why a session cannot be opened; nil if the error has a class already or has
// none.
func dialClass(err error) error {
	for _, class := range []error{overlay.ErrForbidden, overlay.ErrRefused, overlay.ErrTimeout, overlay.ErrUnreachable} {
		if errors.Is(err, class) {
			return nil
		}
	}
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return overlay.ErrTimeout
	case errors.As(err, &op):
		return overlay.ErrUnreachable
	}
	return nil
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
