// Package control is the control plane's ground: mutual TLS 1.3 between
// daemons that know each other by role and name, a yamux session on it, and
// gRPC in both directions on that, so that a broker can call a frontal which
// nobody can dial. It also carries the errors and values of package overlay
// across calls.
//
// It knows no site, job or technique; what the calls mean is the daemons'
// business. Its state is the set of open sessions, each owned by the Endpoint
// method that made it.
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
	"github.com/isthmus-grid/isthmus/overlay"
)

// Endpoint is one daemon's side of all its control sessions, dialled and
// accepted. One gRPC server answers the calls of every peer. Safe for
// concurrent use.
type Endpoint struct {
	creds *Credentials
	log   *slog.Logger
	rpc   *grpc.Server
	in    chan net.Conn // streams opened by peers, to rpc
	done  chan struct{} // closed by Close
	once  sync.Once
	serve sync.WaitGroup
	has   func(netip.Addr) bool // hasAddress, but for tests

	window            uint32           // of a yamux stream
	half              *accept.HalfOpen // callers that have not proved yet who they are
	accepted, dialled *accounts        // of peers that came, and of those that were dialled

	// Refused, if not nil, is told of every caller that Serve turned away: from
	// where it called, and why. Set it before Serve; it must not wait.
	Refused func(from net.Addr, err error)

	// OverBudget, if not nil, is told of every call that was refused, and every
	// session that was ended, because the peer is over its Budget. Set it before
	// Serve; it must not wait.
	OverBudget func(s *Session, err error)

	// Data, if not nil, is given connections that carry data frames, after the TLS
	// hand-shake; it owns them. Set it before Serve.
	Data  func(ctx context.Context, conn *tls.Conn)
	trust Trust
}

// NewEndpoint returns an endpoint that answers the services which register
// adds. Close it when all its sessions are over.
func NewEndpoint(creds *Credentials, log *slog.Logger, register func(grpc.ServiceRegistrar)) *Endpoint {
	e := &Endpoint{
		creds: creds,
		log:   log,
		in:    make(chan net.Conn),
		done:  make(chan struct{}),
		has:   hasAddress,

		window:   callWindow,
		accepted: newAccounts(StandardBudget), dialled: newAccounts(dialledBudget),
	}
	e.rpc = grpc.NewServer(append(serverOptions(), grpc.Creds(streamCredentials{}), grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(streamWindow))...)
	e.half = accept.NewHalfOpen(standardHalfOpen, e.turnedAway)
	controlpb.RegisterTrustServer(e.rpc, trustService{e: e})
	if register != nil {
		register(e.rpc)
	}
	return e
}

// standardHalfOpen bounds the callers that have not proved yet who they are,
// where nobody set another bound.
var standardHalfOpen = accept.Bounds{Total: 1024, PerSource: 512}

// SetHalfOpen has the endpoint share its bound of callers that have not proved
// yet who they are. Whom h turns away it tells itself. Call it before Serve.
func (e *Endpoint) SetHalfOpen(h *accept.HalfOpen) { e.half = h }

// turnedAway tells of a caller.
func (e *Endpoint) turnedAway(from net.Addr, err error) {
	e.log.Warn("control session refused", "from", from.String(), "error", err)
	if e.Refused != nil {
		e.Refused(from, err)
	}
}

// Identity returns who this endpoint is.
func (e *Endpoint) Identity() Identity { return e.creds.id }

// startServing starts the gRPC server with the first session: a constructor
// starts nothing.
func (e *Endpoint) startServing() {
	e.once.Do(func() { e.serve.Go(func() { e.rpc.Serve(streamListener{e}) }) })
}

// Close ends all sessions and returns when nothing of the endpoint runs.
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

// streamListener makes the streams of all sessions look like the accepted
// connections of one listener.
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

// run passes the streams that the peer opens to the gRPC server, until the
// session or ctx ends, and watches over the session. It closes the session.
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

// stream takes a stream that the peer opened on its account.
func (e *Endpoint) stream(s *Session, c net.Conn) (net.Conn, error) {
	who, streams := s.Peer().String(), s.accounts.streams
	if err := streams.Take(who, 1); err != nil {
		return nil, err
	}
	return &stream{session: s, metered: newMetered(c, true, e.newStreamBudget(s, s.accounts.open), func() { streams.Give(who, 1) })}, nil
}

// Serve accepts sessions on ln until ctx ends or ln fails, and closes ln. A
// peer whose certificate holds is then judged by admit, whose refusal it is
// told in words. For each session joined runs, if not nil; its context ends
// with the session. Serve returns when every session it accepted has ended
// and every joined has returned.
func (e *Endpoint) Serve(ctx context.Context, ln net.Listener, admit func(Identity) error, joined func(context.Context, *Session)) error {
	e.startServing()
	outer := ctx // ends before what is derived from it, ln perhaps among that
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

// accept makes a session of a connection and serves it to its end. It gives
// the place back when the peer has proved who it is.
func (e *Endpoint) accept(ctx context.Context, c net.Conn, place *limit.Place[accept.Source], admit func(Identity) error, joined func(context.Context, *Session)) {
	e.refresh()
	conn := tls.Server(c, e.creds.serverTLS(e.trust.Enrol != nil, e.Data != nil))
	if (e.trust.Enrol != nil || e.Data != nil) && e.serveOther(ctx, conn, place.Leave) {
		place.Leave()
		return
	}
	who := "" // on whose account the session is
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
		return // it was closed to make room for another source, which is told already
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
	if joined != nil {
		wg.Go(func() { joined(ctx, s) })
	}
	e.run(ctx, s)
}

// DialConfig says where a session goes and who must be there.
type DialConfig struct {
	Addr string // host:port
	Role Role   // of the daemon expected there

	// Visit says that this session only asks: whoever accepts it does not take
	// it for the daemon whose certificate it shows, nor end that one's session.
	Visit bool

	// AskIdle is the silence after which the peer is asked whether it is there though
	// no call waits for it, where somebody else could be turned to meanwhile; 0 means
	// 5.5 s. One that then says nothing is left within 2.5 s.
	AskIdle time.Duration

	// Dial opens the TCP connection, or one through an HTTP proxy; nil dials
	// Addr directly.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Longest is the longest that Keep waits between two tries, within half of
	// it either way; 0 means 2 s.
	Longest time.Duration

	// Down is told by Keep why each try failed and why a session ended, before
	// it waits for the next try; for errors that name the cause. It may be nil.
	Down func(err error)
}

func (cfg DialConfig) features() uint32 {
	if cfg.Visit {
		return featureVisit
	}
	return 0
}

// Dial makes one session, which lives until ctx ends, either end closes it or
// the path dies. The session serves calls of the peer meanwhile.
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
	dial := cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
			defer cancel()
			c, err := carrier.DialTCP(ctx, addr, carrier.HTTPProxy{})
			if err != nil {
				return nil, err // not a nil *net.TCPConn in a net.Conn
			}
			return c, nil
		}
	}
	c, err := dial(ctx, cfg.Addr)
	if err != nil {
		return fail(err)
	}
	host, _, err := net.SplitHostPort(cfg.Addr)
	if err != nil || net.ParseIP(host) != nil {
		host = "" // SNI carries names only
	}
	e.refresh()
	conn := tls.Client(c, e.creds.clientTLS(cfg.Role, host))
	id, err := handshake(ctx, conn, func(state tls.ConnectionState) (Proof, error) {
		return e.creds.verify(rawChain(state)) // again, since a list may have come
	}, e.creds.id, cfg.features())
	if err != nil {
		return fail(err)
	}
	s, err := e.start(conn, id, true, cfg.AskIdle)
	if err != nil {
		return fail(err)
	}
	return s, nil
}

// Keep keeps one session up until ctx ends: it dials, runs up for the new
// session, and dials again when the session ended. The wait between tries
// doubles from 100 ms to cfg.Longest, with jitter, and starts over after a
// session that up accepted. An error of up closes the session. Keep returns nil
// when ctx ended and up has returned.
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
		if tell {
			e.log.Warn("no control session", "with", cfg.Role.String(), "address", cfg.Addr, "error", err, "retry_in", wait.String())
		}
		if accepted && errors.Is(err, errMoved) {
			continue // which is no fault of the peer's, nor have its others moved
		}
		if !sleep(ctx, wait/2+rand.N(wait)) {
			return nil
		}
	}
}

func (e *Endpoint) keepOnce(ctx context.Context, cfg DialConfig, up func(context.Context, *Session) error) (accepted bool, err error) {
	s, err := e.connect(ctx, cfg)
	if err != nil {
		return false, err
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
	if err := <-result; err != nil && !errors.Is(err, context.Canceled) {
		return false, err
	}
	return true, s.Err()
}

// smallNext reports whether the next connection is to have small packets, after one that
// had them, or not, ended by err: where connections come about and then carry nothing,
// larger packets may vanish on the way. If small ones do so too, that is not why.
func smallNext(small bool, err error) bool {
	var silent *SilentError
	return !small && (errors.Is(err, errStalled) || errors.As(err, &silent) && !silent.Alive)
}

// sleep waits for d and reports whether ctx is still going on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dialClass tells the ways in which a session cannot be made apart; nil if
// the error has a class already or is none of them.
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
