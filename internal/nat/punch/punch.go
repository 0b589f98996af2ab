// Package punch opens a byte stream between two hosts over UDP where both are behind firewalls or
// NATs: ICE (RFC 8445) finds a pair of addresses that passes, QUIC (RFC 9000) then runs on the same
// socket and pair.
//
//	end A: New, Describe ──── description of A ───▶ Connect ─┐
//	                                                         ├─ one tunnel
//	end B: New, Describe ──── description of B ───▶ Connect ─┘
//
// The package knows no broker: the caller carries the two descriptions, and a description is the
// only thing that one end learns about the other. It must be carried over a secure channel, because
// it holds the credentials and the certificate fingerprint by which the ends recognise each other.
// No third host ever gets a packet: this end sends only to the given STUN servers and to addresses
// in the peer's description, except loopback, link-local, multicast and private addresses behind
// another NAT.
//
// The two ends then have a Tunnel with one stream, a Conn; opening another one in it takes a round
// trip.
//
// All state belongs to an Attempt and then to its Tunnel; both hold one UDP socket. QUIC gets the
// plain socket, so that segmentation offload, ECN and path MTU discovery work; ICE reads the
// datagrams that are not QUIC.
package punch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/ice/v4"
	"github.com/quic-go/quic-go"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Defaults of a Config.
const (
	DefaultGatherTimeout = 7 * time.Second
	DefaultTimeout       = 7 * time.Second
	DefaultHoldOff       = 30 * time.Millisecond
)

// Config configures an attempt. Both ends need the same LowTTL, and exactly one of them
// Controlling.
type Config struct {
	// Socket carries everything; the Attempt owns it after a successful New. Without one, New binds
	// Local.
	Socket *net.UDPConn

	// Local is where New binds when Socket is nil; the zero value means any port
	// of all addresses, IPv4 and IPv6.
	Local netip.AddrPort

	// STUN are the servers that report the public address. Servers of both IP versions make
	// candidates of both, if the socket can send to them. Without any, a socket bound to one
	// address has that as its candidate.
	STUN []netip.AddrPort

	// LowTTL sends the first datagram to each address of the peer with a TTL of 2, which opens the
	// own gateway and expires beyond it, and HoldOff later the normal ones. It is for peers whose
	// gateway answers unsolicited datagrams itself, and may always be set; on systems other than
	// Linux it is rejected.
	LowTTL bool

	// HoldOff is for LowTTL; the two ends should call Connect within HoldOff plus the one-way
	// delay. Zero means DefaultHoldOff.
	HoldOff time.Duration

	// Controlling is set at exactly one end: that end nominates the pair of
	// addresses and opens the QUIC connection.
	Controlling bool

	// Forbidden are networks that the peer may not make this end send to, such
	// as the site's management network.
	Forbidden []netip.Prefix

	// SmallPackets keeps QUIC's datagrams at the minimum size that QUIC allows, because larger ones
	// seem to vanish on the way. Both ends should set it.
	SmallPackets bool

	// Permit, if not nil, returns why this end does not send to an address that the peer names as
	// its own.
	Permit func(netip.Addr) error

	// AllowLoopback admits loopback addresses as candidates, own and remote. It
	// is for tests within one host.
	AllowLoopback bool

	// GatherTimeout bounds Describe, Timeout bounds Connect, in addition to the contexts. Zero
	// means the defaults.
	GatherTimeout, Timeout time.Duration

	// Log gets details at level debug; nil drops them.
	Log *slog.Logger
}

func (c *Config) setDefaults() {
	if c.GatherTimeout <= 0 {
		c.GatherTimeout = DefaultGatherTimeout
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.HoldOff <= 0 {
		c.HoldOff = DefaultHoldOff
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// An Attempt is one attempt to connect to one peer: Describe, then Connect, each once. Close may be
// called at any time from any goroutine.
type Attempt struct {
	cfg      Config
	identity identity
	socket   *net.UDPConn

	mu        sync.Mutex
	stage     stage
	transport *quic.Transport // set by New, started by Describe; nil when a Conn has it or it is closed
	ice       *iceSide        // set by Describe
	own       Description
	cancel    context.CancelFunc // ends the running Describe or Connect, if any
}

// stage is the progress of an attempt; it only grows.
type stage uint8

const (
	fresh stage = iota
	describing
	described
	connecting
	over // connected, failed or closed
)

// New prepares an attempt. It starts nothing and sends nothing. When it fails, the caller keeps a
// Socket given in cfg.
func New(cfg Config) (*Attempt, error) {
	cfg.setDefaults()
	if cfg.LowTTL && !lowTTLSupported {
		return nil, errors.New("punch: low-TTL datagrams need Linux; leave LowTTL out")
	}
	id, err := newIdentity()
	if err != nil {
		return nil, fmt.Errorf("punch: making a certificate: %w", err)
	}
	socket := cfg.Socket
	if socket == nil {
		if socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(cfg.Local)); err != nil {
			return nil, fmt.Errorf("punch: binding a UDP socket: %w", err)
		}
	}
	return &Attempt{cfg: cfg, identity: id, socket: socket, transport: &quic.Transport{Conn: newIntake(socket)}}, nil
}

// A run is one running Describe or Connect, with the parts that Close may take from the Attempt at
// any time.
type run struct {
	ctx       context.Context // Close also ends it
	done      func()          // must be called at the end
	transport *quic.Transport
	ice       *iceSide // nil in Describe
}

// begin moves the attempt from one stage to the next.
func (a *Attempt) begin(ctx context.Context, from, to stage, limit time.Duration) (run, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stage == over {
		return run{}, net.ErrClosed
	}
	if a.stage != from {
		return run{}, errors.New("called out of order: Describe and then Connect, each once")
	}
	a.stage = to
	ctx, a.cancel = context.WithTimeout(ctx, limit)
	return run{ctx, a.cancel, a.transport, a.ice}, nil
}

// Describe asks the STUN servers for the socket's mapped addresses and returns the description for
// the peer, at most MaxDescription bytes, including secrets. It fails when no server answers
// (overlay.ErrTimeout) or none can be sent to (overlay.ErrUnreachable), within cfg.GatherTimeout.
func (a *Attempt) Describe(ctx context.Context) ([]byte, error) {
	run, err := a.begin(ctx, fresh, describing, a.cfg.GatherTimeout)
	if err != nil {
		return nil, fmt.Errorf("punch: Describe: %w", err)
	}
	defer run.done()
	hosts, err := ownAddresses(a.socket, a.cfg)
	if err != nil {
		return nil, fmt.Errorf("punch: gathering: %w", err)
	}
	side := newICESide(run.transport, hosts, a.cfg.Log)
	found, err := side.gather(run.ctx, hosts, a.cfg)
	if err == nil {
		err = side.start(run.ctx)
	}
	if err != nil {
		side.close()
		return nil, fmt.Errorf("punch: gathering: %w", err)
	}
	own := Description{
		Controlling: a.cfg.Controlling, Ufrag: side.ufrag, Password: side.password,
		Fingerprint: a.identity.fingerprint, Candidates: found,
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stage == over {
		side.close()
		return nil, fmt.Errorf("punch: Describe: %w", net.ErrClosed)
	}
	a.stage, a.ice, a.own = described, side, own
	a.cfg.Log.Debug("punch described", "candidates", found)
	return own.Append(nil), nil
}

// Connect reaches the peer that made the description and returns the first stream of the tunnel to
// it. Both ends must call it at about the same time. It returns within cfg.Timeout; the error says
// whether the peer's addresses, the checks or QUIC failed, with overlay.ErrTimeout when there was
// no answer and overlay.ErrForbidden when another host answered or the peer may not be contacted.
//
// A controlling end returns up to one round trip before the other has verified it; a refusal then
// shows in its first Read. After an error the attempt cannot be used again and has released
// everything.
func (a *Attempt) Connect(ctx context.Context, description []byte) (*Conn, error) {
	run, err := a.begin(ctx, described, connecting, a.cfg.Timeout)
	if err != nil {
		return nil, fmt.Errorf("punch: Connect: %w", err)
	}
	defer run.done()
	conn, err := a.connect(run, description)
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("punch: %w", err)
	}
	return conn, nil
}

func (a *Attempt) connect(run run, description []byte) (*Conn, error) {
	peer, err := ParseDescription(description)
	if err != nil {
		return nil, err
	}
	if peer.Controlling == a.cfg.Controlling {
		return nil, fmt.Errorf("both ends have Controlling %v: %w", peer.Controlling, overlay.ErrRefused)
	}
	targets, err := chooseTargets(a.own.Candidates, peer.Candidates, a.cfg.permitsPeer)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if a.cfg.LowTTL {
		if err := a.openGateway(run.ctx, targets); err != nil {
			return nil, err
		}
	}
	session := session{attempt: a, run: run, peer: peer, targets: targets}
	j, err := session.connect()
	if err != nil {
		return nil, err
	}
	j.setup.Total = time.Since(began)
	return a.handOver(j)
}

// openGateway sends the low-TTL datagrams and waits until the peer should have sent its own.
func (a *Attempt) openGateway(ctx context.Context, targets []Candidate) error {
	for _, t := range targets {
		if err := sendLowTTL(a.socket, t.Addr); err != nil {
			a.cfg.Log.Debug("punch: a low-TTL datagram was not sent", "to", t.Addr, "err", err) // the checks will show the result
		}
	}
	hold := time.NewTimer(a.cfg.HoldOff)
	defer hold.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting %v after the low-TTL datagrams: %w", a.cfg.HoldOff, classify(ctx.Err()))
	case <-hold.C:
		return nil
	}
}

// handOver makes a tunnel of transport, socket and connection and ends ICE, which is no longer
// needed: QUIC keeps the mapping alive.
func (a *Attempt) handOver(j joined) (*Conn, error) {
	a.mu.Lock()
	closed := a.stage == over
	side, transport := a.ice, a.transport
	if !closed {
		a.stage, a.ice, a.transport = over, nil, nil
	}
	a.mu.Unlock()
	if closed {
		j.quic.CloseWithError(codeAbort, "")
		return nil, net.ErrClosed
	}
	side.close()
	transport.Conn.(*intake).watch(j.quic)
	t, err := newTunnel(j.quic, func() { closeTransport(transport) })
	if err == nil {
		err = t.enter()
	}
	if err != nil {
		j.quic.CloseWithError(codeAbort, "")
		closeTransport(transport)
		return nil, err
	}
	conn := t.newConn(j.stream, j.setup)
	t.start()
	return conn, nil
}

// Close ends the attempt and releases its socket and goroutines; a running Describe or Connect
// returns. It does not affect a Conn that Connect returned. It always returns nil.
func (a *Attempt) Close() error {
	a.mu.Lock()
	a.stage = over
	side, transport, cancel := a.ice, a.transport, a.cancel
	a.ice, a.transport = nil, nil
	a.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if side != nil {
		side.close()
	}
	if transport != nil {
		closeTransport(transport)
	}
	return nil
}

// closeTransport ends the transport's goroutines and closes its socket.
func closeTransport(t *quic.Transport) {
	t.Conn.SetReadDeadline(time.Unix(1, 0))
	t.Close()
	t.Conn.Close()
}

// classify adds the error class that callers branch on.
func classify(err error) error {
	var mismatch *tls.CertificateVerificationError
	var idle *quic.IdleTimeoutError
	var handshake *quic.HandshakeTimeoutError
	switch {
	case errors.Is(err, errFingerprint), errors.As(err, &mismatch):
		return fmt.Errorf("%w: %w", overlay.ErrForbidden, err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &idle), errors.As(err, &handshake):
		return fmt.Errorf("%w: %w", overlay.ErrTimeout, err)
	case errors.Is(err, ice.ErrCanceledByCaller):
		return fmt.Errorf("%w: %w", overlay.ErrTimeout, err)
	}
	return err
}
