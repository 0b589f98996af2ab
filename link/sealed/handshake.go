package sealed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	// alpn is the protocol that both ends must name (RFC 7301).
	alpn = "isthmus/1"
	// handshakeTime bounds a handshake in addition to its context.
	handshakeTime = 30 * time.Second
	// refusalTime bounds how long a server tries to send the alert to a client that it refuses.
	refusalTime = time.Second
	// maxEarly is how many bytes a server may send before its client is authenticated.
	maxEarly = 4096
)

// Credentials authenticate a process to others and others to it. *jobkey.Certificates implements
// it; certificates of a grid's authority can take its place. It must be safe for concurrent use.
type Credentials interface {
	// Certificate returns the process's own certificate, valid now, and its key. The caller does
	// not change it.
	Certificate() (*tls.Certificate, error)
	// Verify returns the identity that a chain of certificates in DER proves, the holder's own
	// first. The handshake has verified, or will before it succeeds, that the peer holds the key.
	// An error, overlay.ErrForbidden with a readable cause, ends the handshake.
	Verify(chain [][]byte) (jobkey.Member, error)
}

// Around handles plain text that the two ends exchange around the handshake, so that it costs no
// round trip of its own. The zero value handles none.
type Around struct {
	// Between is called by a client when its first message has been sent, before it reads any: it
	// must read what the server sends in plain text before its part of the handshake. An error ends
	// the handshake and is returned.
	Between func() error

	// Stray is called when something else arrives where a TLS record should begin, with the five
	// bytes that were read of it; it may read further from conn. If it recognises the data its
	// error ends the handshake and is returned.
	Stray func(head []byte) error
}

// Client encrypts conn as the initiating end. It returns when the server has proven to be peer, or
// any process of the job if peer is nil: after one round trip; data written then travels with the
// end of the handshake. The first Read reports whether the server accepts this process.
//
// Client is bounded by ctx, and by 30 s. After an error conn is closed. The error is ErrPlain for a
// peer without TLS, overlay.ErrForbidden for one that is not the expected one or does not accept
// this process, and the context's when it took too long. Nothing but around may read or write conn,
// before or after.
func Client(ctx context.Context, conn net.Conn, creds Credentials, peer *overlay.ProcessName, around Around) (*Conn, error) {
	h := &handshake{creds: creds, want: peer, transport: transport{Conn: conn, around: around}}
	return h.run(ctx, tls.Client)
}

// Server is Client for the accepting end. It returns when the client has authenticated itself, one
// round trip after its own flight.
//
// early, if not empty, is sent with that flight: the client reads it first, without an extra round
// trip. The client is not authenticated then, so any process that can connect can read it: it must
// contain no secret and no user data. It is 4096 bytes at most.
func Server(ctx context.Context, conn net.Conn, creds Credentials, peer *overlay.ProcessName, early []byte, around Around) (*Conn, error) {
	around.Between = nil // a server reads first
	h := &handshake{creds: creds, want: peer, transport: transport{Conn: conn, server: true, early: early, around: around}}
	return h.run(ctx, tls.Server)
}

// handshake is one run of crypto/tls over a transport.
type handshake struct {
	creds     Credentials
	want      *overlay.ProcessName // nil: any process of the job
	transport transport

	peer jobkey.Member
}

// run performs the handshake within the time bounds. After an error conn is closed.
func (h *handshake) run(ctx context.Context, role func(net.Conn, *tls.Config) *tls.Conn) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	c, err := h.perform(ctx, role)
	if err != nil {
		h.transport.refuse()
		h.transport.Close()
		if h.transport.aroundErr != nil {
			return nil, h.transport.aroundErr
		}
		return nil, h.explain(ctx, err)
	}
	return c, nil
}

func (h *handshake) perform(ctx context.Context, role func(net.Conn, *tls.Config) *tls.Conn) (*Conn, error) {
	if len(h.transport.early) > maxEarly {
		return nil, fmt.Errorf("%d bytes to send early, at most %d can be", len(h.transport.early), maxEarly)
	}
	config, err := h.config()
	if err != nil {
		return nil, err
	}
	shaking := role(&h.transport, config)
	if err := shaking.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return h.takeOver(shaking.ConnectionState())
}

// config returns the configuration, which is the same for both roles.
func (h *handshake) config() (*tls.Config, error) {
	own, err := h.creds.Certificate()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		MaxVersion:             tls.VersionTLS13,
		NextProtos:             []string{alpn},
		SessionTicketsDisabled: true,
		Certificates:           []tls.Certificate{*own},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // a process has no host name; verify replaces the check
		VerifyConnection:       h.verify,
		KeyLogWriter:           &h.transport.keys,
	}, nil
}

// verify decides about the peer, before the peer learns that the handshake succeeded.
func (h *handshake) verify(state tls.ConnectionState) error {
	err := h.judge(state)
	if err != nil {
		h.transport.refusal, h.transport.suite = refusalOf(err), state.CipherSuite
	}
	return err
}

func (h *handshake) judge(state tls.ConnectionState) error {
	if state.NegotiatedProtocol != alpn {
		return fmt.Errorf("%w: the peer speaks TLS, but not for %s", overlay.ErrForbidden, alpn)
	}
	var chain [][]byte
	for _, cert := range state.PeerCertificates {
		chain = append(chain, cert.Raw)
	}
	peer, err := h.creds.Verify(chain)
	if err != nil {
		return err
	}
	if h.want != nil && peer.Process != *h.want {
		return fmt.Errorf("%w: it is %v, but %v is expected", errUnexpectedPeer, peer, *h.want)
	}
	h.peer = peer
	return nil
}

// takeOver starts the record layer where crypto/tls stopped.
func (h *handshake) takeOver(state tls.ConnectionState) (*Conn, error) {
	t := &h.transport
	s, err := suiteOf(state.CipherSuite)
	if err != nil {
		return nil, err
	}
	if t.flights != 1 {
		// Anything that crypto/tls sent besides its part of the handshake used the first record
		// numbers of our keys, which must not be used twice.
		return nil, fmt.Errorf("crypto/tls wrote %d times in place of once after it had the keys; this build cannot encrypt", t.flights)
	}
	incoming, outgoing := t.keys.server, t.keys.client
	if t.server {
		incoming, outgoing = outgoing, incoming
	}
	c := &Conn{conn: t.Conn, state: state, peer: h.peer}
	if err := c.r.half.init(s, incoming); err != nil {
		return nil, err
	}
	if err := c.w.half.init(s, outgoing); err != nil {
		return nil, err
	}
	c.r.conn, c.r.asked = t.Conn, &c.w.asked
	c.w.conn, c.w.renew = t.Conn, renewAfter
	c.w.half.seq = t.half.seq // counts what was sent early
	return c, nil
}

// explain returns the error to report for an error of the handshake.
func (h *handshake) explain(ctx context.Context, err error) error {
	who := "a process that dialled"
	switch {
	case h.want != nil:
		who = h.want.String()
	case !h.transport.server:
		who = "a process of the job"
	}
	var plain tls.RecordHeaderError
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("it did not end in time: %w", ctx.Err())
	case errors.As(err, &plain):
		err = fmt.Errorf("%w: the first bytes are % x; is encryption switched off there?", ErrPlain, plain.RecordHeader)
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("the peer closed the connection: %w", err)
	default:
		if a, ok := certificateAlert(err); ok {
			err = refusedFor(a)
		}
	}
	return fmt.Errorf("sealed: TLS handshake with %s: %w", who, err)
}

// certificateAlert returns the peer's alert about our certificate, if err is one. crypto/tls does
// not export its type for alerts here.
func certificateAlert(err error) (alert, bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}
	for a := range alert(128) {
		if refusesCertificate(a) && op.Err.Error() == tls.AlertError(a).Error() {
			return a, true
		}
	}
	return 0, false
}
