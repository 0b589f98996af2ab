package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Trust holds the parts of certificate management that only some daemons have. Nil ones are not
// offered.
type Trust struct {
	// Enrol serves a connection on which a client requests a certificate, after the TLS handshake.
	// It calls asked when the request has arrived: until then the connection may be closed in
	// favour of others, and asked returns false if it was. When Enrol returns, conn is closed.
	Enrol func(ctx context.Context, conn *tls.Conn, asked func() bool)

	// PassEnrol, of a daemon that does not enrol, passes a connection on which a client requests a
	// certificate on to one that does. All that the client has sent can be read from conn, which is closed
	// when PassEnrol returns, or before that in favour of others.
	PassEnrol func(ctx context.Context, conn net.Conn)

	// Renew issues a new certificate to the peer of s, or to another holder for which it acts.
	Renew func(ctx context.Context, s *Session, chain [][]byte) ([][]byte, error)

	// Cut ends the links of processes on behalf of the peer of s, and returns how many this daemon
	// had.
	Cut func(ctx context.Context, s *Session, processes []overlay.ProcessName, reason string) (links int, err error)
}

// SetTrust sets what the endpoint offers in addition to forwarding revocation lists. Call it before
// the first session.
func (e *Endpoint) SetTrust(t Trust) { e.trust = t }

// Revocations returns the endpoint's revocation list.
func (e *Endpoint) Revocations() *Revocations { return e.creds.lists }

// refresh makes the credentials follow their files.
func (e *Endpoint) refresh() {
	switch taken, err := e.creds.Refresh(); {
	case err != nil:
		e.log.Error("own certificate", "error", err)
	case taken:
		e.log.Info("own certificate taken over", "identity", e.creds.id.String(), "valid_until", e.creds.Leaf().NotAfter.UTC().Format(time.RFC3339))
	}
}

// serveOther performs the TLS handshake and serves the connection if it is one for enrolment or for
// data frames. Otherwise it returns false, and the caller encounters the handshake's error, if
// there is one, again.
func (e *Endpoint) serveOther(ctx context.Context, conn *tls.Conn, asked func() bool) bool {
	shake, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if conn.HandshakeContext(shake) != nil {
		return false
	}
	switch conn.ConnectionState().NegotiatedProtocol {
	case DataALPN:
		if !asked() {
			return true // it was closed to make room for another source
		}
		e.Data(ctx, conn)
		return true
	case EnrolALPN:
	default:
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	e.trust.Enrol(ctx, conn, asked)
	return true
}

// RefuseEnrol sends an enrolling client the reason for a refusal, and waits briefly for it to close
// the connection.
func (e *Endpoint) RefuseEnrol(conn *tls.Conn, reason error) {
	class := overlay.ErrForbidden
	for _, other := range []error{overlay.ErrOverloaded, overlay.ErrUnreachable} {
		if errors.Is(reason, other) {
			class = other
		}
	}
	refuse(conn, e.creds.id, class, reason)
}

// trustService serves both ends of every session.
type trustService struct {
	controlpb.UnimplementedTrustServer
	e *Endpoint
}

// Revoked implements controlpb.TrustServer.
func (t trustService) Revoked(ctx context.Context, req *controlpb.RevocationList) (*controlpb.RevocationTaken, error) {
	s := SessionOf(ctx)
	newer, err := t.e.creds.lists.Take(req.GetDer())
	_, number := t.e.creds.lists.DER()
	switch {
	case newer && err != nil:
		t.e.log.Error("revocation list", "number", number, "from", s.Peer().String(), "error", err)
	case newer:
		t.e.log.Info("revocation list taken over", "number", number, "from", s.Peer().String())
	case err != nil:
		t.e.log.Warn("revocation list refused", "from", s.Peer().String(), "error", err)
		return nil, Status(fmt.Errorf("%w: %w", overlay.ErrRefused, err))
	}
	return &controlpb.RevocationTaken{Number: number}, nil
}

// Renew implements controlpb.TrustServer.
func (t trustService) Renew(ctx context.Context, req *controlpb.RenewRequest) (*controlpb.RenewResponse, error) {
	if t.e.trust.Renew == nil {
		return nil, Status(fmt.Errorf("%w: %v does not renew certificates", overlay.ErrRefused, t.e.creds.id))
	}
	chain, err := t.e.trust.Renew(ctx, SessionOf(ctx), req.GetChain())
	if err != nil {
		return nil, Status(err)
	}
	return &controlpb.RenewResponse{Chain: chain}, nil
}

// sentCut is how many processes are sent in one Cut, so that it stays below decode.MaxBytes.
const sentCut = 400

// Cut implements controlpb.TrustServer.
func (t trustService) Cut(ctx context.Context, req *controlpb.CutRequest) (*controlpb.CutResponse, error) {
	if t.e.trust.Cut == nil {
		return nil, Status(fmt.Errorf("%w: %v has no links to end", overlay.ErrRefused, t.e.creds.id))
	}
	var names []overlay.ProcessName
	for _, p := range req.GetProcesses() {
		name, err := ProcessFromPB(p)
		if err != nil {
			return nil, Status(fmt.Errorf("%w: %w", wire.ErrMalformed, err))
		}
		names = append(names, name)
	}
	links, err := t.e.trust.Cut(ctx, SessionOf(ctx), names, req.GetReason())
	if err != nil {
		return nil, Status(err)
	}
	return &controlpb.CutResponse{Links: uint32(links)}, nil
}

// Cut asks the peer to end the links of processes; see Trust. A peer that does not know the call
// has none of these links, or is of an older version and keeps them.
func (s *Session) Cut(ctx context.Context, processes []overlay.ProcessName, reason string) (links int, err error) {
	for rest := processes; len(rest) > 0; rest = rest[min(sentCut, len(rest)):] {
		req := &controlpb.CutRequest{Reason: reason}
		for _, p := range rest[:min(sentCut, len(rest))] {
			req.Processes = append(req.Processes, ProcessToPB(p))
		}
		resp, err := controlpb.NewTrustClient(s.Conn()).Cut(ctx, req)
		if err != nil {
			return links, FromStatus(err)
		}
		links += int(resp.GetLinks())
	}
	return links, nil
}

// Renew asks the peer for a new certificate to replace that of chain.
func (s *Session) Renew(ctx context.Context, chain [][]byte) ([][]byte, error) {
	resp, err := controlpb.NewTrustClient(s.Conn()).Renew(ctx, &controlpb.RenewRequest{Chain: chain})
	if err != nil {
		return nil, FromStatus(err)
	}
	return resp.GetChain(), nil
}

// How long the peer may take to adopt a revocation list: in general, and for its last message,
// because the list has the peer.
const (
	tellTimeout = 10 * time.Second
	lastTell    = time.Second
)

// tellRevocations sends the peer the revocation list, and each newer one, until the session ends.
// Visitors are not sent any.
func (s *Session) tellRevocations() {
	if s.visit || s.Peer().Role == RoleAdmin || s.Peer().Role == RoleUser || s.creds.id.Role == RoleAdmin {
		return
	}
	for told := uint64(0); ; {
		_, changed := s.creds.lists.Now()
		if der, number := s.creds.lists.DER(); number > told {
			err := s.announceRevocations(der, tellTimeout)
			if err != nil && !errors.Is(err, overlay.ErrUnreachable) && !errors.Is(err, io.EOF) {
				s.log.Warn("the peer does not take the revocation list", "peer", s.Peer().String(), "number", number, "error", err)
			}
			if errors.Is(err, wire.ErrVersion) {
				return
			}
			told = number
		}
		select {
		case <-changed:
		case <-s.Done():
			return
		}
	}
}

func (s *Session) announceRevocations(der []byte, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound) // ends with the session, too
	defer cancel()
	_, err := controlpb.NewTrustClient(s.Conn()).Revoked(ctx, &controlpb.RevocationList{Der: der})
	return FromStatus(err)
}

// endIfRevoked ends the session if the revocation list has the peer, and reports whether it did.
// The peer is sent the list first, so that it can learn the reason.
func (s *Session) endIfRevoked() bool {
	err := s.creds.lists.judge(s.peer)
	if err == nil {
		return false
	}
	der, _ := s.creds.lists.DER()
	s.announceRevocations(der, lastTell) // its answer does not matter
	s.log.Warn("session ended", "peer", s.Peer().String(), "error", err)
	s.end(err)
	return true
}
