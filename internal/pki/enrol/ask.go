package enrol

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/wire"
)

// Enrolled is the result of an enrolment.
type Enrolled struct {
	ID    control.Identity
	Chain [][]byte // DER, the certificate first
	Key   []byte   // PEM
	Root  *x509.Certificate
}

// Handshake makes a TLS connection of one that it owns.
type Handshake = func(context.Context, net.Conn) (*tls.Conn, error)

// Dial opens a connection to an address, host:port, on which shake has succeeded: that is part of the
// attempts where a name has several addresses.
type Dial = func(ctx context.Context, addr string, shake Handshake) (*tls.Conn, error)

// Ask enrols with a token at the broker at addr, host:port. node names a helper's node if the token
// leaves that open. The key is created here and never sent. The broker is trusted only if the CA
// that the token names issued its certificate. dial opens the connection; nil dials directly.
func Ask(ctx context.Context, addr, token, node string, dial Dial) (*Enrolled, error) {
	t, err := ca.ReadToken(token)
	if err != nil {
		return nil, err
	}
	if err := t.Current(time.Now()); err != nil {
		return nil, err
	}
	id, err := t.For(node)
	if err != nil {
		return nil, err
	}
	request, key, err := ca.Request(id)
	if err != nil {
		return nil, err
	}
	chain, root, err := retry(ctx, addr, dial, t.CA, &wire.Enrol{Token: token, Request: request})
	if err != nil {
		return nil, err
	}
	e := &Enrolled{ID: id, Chain: chain, Key: key, Root: root}
	if _, err := control.NewCredentials(ca.ChainPEM(chain), key, ca.ChainPEM([][]byte{root.Raw})); err != nil {
		return nil, fmt.Errorf("what the broker at %s sent: %w", addr, err)
	}
	return e, nil
}

// Bounds of retries.
const (
	insistFor  = 10 * time.Second
	insistWait = 300 * time.Millisecond
)

// retry is converse for a request that uses up a token. A broker that ends before it answers may
// have counted the use. The same request gets the certificate of that use, so it is retried for a
// while.
func retry(ctx context.Context, addr string, dial Dial, fingerprint string, ask *wire.Enrol) ([][]byte, *x509.Certificate, error) {
	asked := false
	for end := time.Now().Add(insistFor); ; {
		chain, root, err := exchange(ctx, addr, dial, fingerprint, nil, ask)
		none, isNone := errors.AsType[*noAnswer](err)
		asked = asked || isNone && none.asked
		if !asked || !isNone || time.Now().After(end) {
			return chain, root, err
		}
		if sleep.For(ctx, insistWait) != nil {
			return nil, nil, err
		}
	}
}

// noAnswer is the error of a conversation without a decision of the broker.
type noAnswer struct {
	error
	asked bool // the request was sent
}

func (e *noAnswer) Unwrap() error { return e.error }

// Renew requests a new certificate from the broker at addr in place of that of creds, which it
// presents. The key stays the same. dial is as in Ask.
func Renew(ctx context.Context, addr string, creds *control.Credentials, dial Dial) ([][]byte, error) {
	chain, _, err := exchange(ctx, addr, dial, control.Fingerprint(creds.Roots()[0]), creds.Certificate(), &wire.Enrol{})
	if err != nil {
		return nil, err
	}
	return chain, fits(creds, chain)
}

// fits returns why a renewed certificate cannot replace that of creds, or nil.
func fits(creds *control.Credentials, chain [][]byte) error {
	p, err := creds.Verify(chain)
	if err != nil {
		return fmt.Errorf("the new certificate: %w", err)
	}
	if !bytes.Equal(creds.Leaf().RawSubjectPublicKeyInfo, p.Leaf.RawSubjectPublicKeyInfo) || p.Identity != creds.Identity() {
		return fmt.Errorf("the new certificate is that of %v, not one for the key of %v", p.Identity, creds.Identity())
	}
	return nil
}

// exchange makes one request to the broker.
func exchange(ctx context.Context, addr string, dial Dial, fingerprint string, own *tls.Certificate, ask *wire.Enrol) ([][]byte, *x509.Certificate, error) {
	asked := false
	fail := func(err error) ([][]byte, *x509.Certificate, error) {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		return nil, nil, &noAnswer{fmt.Errorf("broker at %s: %w", addr, control.WithoutAddress(err, addr)), asked}
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if dial == nil {
		dial = func(ctx context.Context, addr string, shake Handshake) (*tls.Conn, error) {
			return carrier.Dial(ctx, addr, carrier.DialOptions{}, func(ctx context.Context, c *net.TCPConn) (*tls.Conn, error) { return shake(ctx, c) })
		}
	}
	host, _, _ := net.SplitHostPort(addr)
	if net.ParseIP(host) != nil {
		host = "" // SNI carries names only
	}
	verify := func(state tls.ConnectionState) (*x509.Certificate, error) {
		p, root, err := control.VerifyByFingerprint(state.PeerCertificates, fingerprint, time.Now())
		if err == nil && p.Role != control.RoleBroker {
			err = fmt.Errorf("this is %v, wanted a broker", p.Identity)
		}
		return root, err
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, NextProtos: []string{control.EnrolALPN},
		InsecureSkipVerify: true, // VerifyConnection verifies the chain
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := verify(state)
			return err
		},
	}
	if own != nil {
		cfg.Certificates = []tls.Certificate{*own}
	}
	conn, err := dial(ctx, addr, func(ctx context.Context, c net.Conn) (*tls.Conn, error) {
		conn := tls.Client(c, cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			c.Close()
			if strings.Contains(err.Error(), noProtocol) {
				return nil, errors.New("it does not issue certificates; its settings need the key enrol")
			}
			return nil, fmt.Errorf("TLS: %w", err)
		}
		return conn, nil
	})
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	root, err := verify(conn.ConnectionState())
	if err != nil {
		return fail(err)
	}
	asked = true
	if _, err := conn.Write(wire.Append(nil, ask)); err != nil {
		return fail(err)
	}
	frame, err := wire.Read(conn)
	if err != nil {
		return fail(fmt.Errorf("waiting for the certificate: %w", err))
	}
	switch f := frame.(type) {
	case *wire.Enrolled:
		return f.Certificates, root, nil
	case *wire.Refuse:
		return nil, nil, f.Err()
	}
	return fail(fmt.Errorf("%w: a %v in place of a certificate", wire.ErrType, frame.Type()))
}

// noProtocol is the text of package tls for the alert of a server that supports none of the
// client's protocols (RFC 7301, section 3.2); there is no error type for it.
const noProtocol = "no application protocol"
