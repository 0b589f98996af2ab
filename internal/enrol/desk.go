// Package enrol gives certificates to who has leave: a broker's desk issues them
// against tokens and old certificates, and new nodes, daemons and people ask
// there. What is in a certificate or a token is package ca's; what an identity
// provider outside the grid says of a user is package oidc's; who may have a
// session is package control's.
//
// Its state is the desk's file of used tokens.
package enrol

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ca"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/oidc"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// askTimeout bounds one conversation, and maxAsking how many there are at a
// time.
const (
	askTimeout = 10 * time.Second
	maxAsking  = 64
)

// Desk issues certificates. Safe for concurrent use.
type Desk struct {
	issuer  *ca.Issuer
	used    *Used
	creds   *control.Credentials
	longest time.Duration
	log     *slog.Logger
	now     func() time.Time
	places  chan struct{}
	outside *Outside // nil: nobody outside the grid is believed

	// Noted, if not nil, is told of every certificate that Serve issues and of
	// every refusal: for whom, as far as that is known, by what (token,
	// certificate, or an identity provider's address), from where, and why not.
	// It is set before Serve.
	Noted func(identity, by, peer string, err error)
}

// Open returns a desk that issues with the issuing certificate and key in the
// given files and remembers used tokens in the file state. No certificate is
// valid for longer than longest. Close it.
func Open(certFile, keyFile, state string, longest time.Duration, creds *control.Credentials, log *slog.Logger) (*Desk, error) {
	issuer, err := ca.LoadIssuer(certFile, keyFile, creds.Roots())
	if err != nil {
		return nil, err
	}
	used, err := OpenUsed(state, time.Now())
	if err != nil {
		return nil, err
	}
	return &Desk{issuer: issuer, used: used, creds: creds, longest: longest, log: log, now: time.Now, places: make(chan struct{}, maxAsking)}, nil
}

// Close closes the desk's file.
func (d *Desk) Close() error { return d.used.Close() }

// Serve answers one connection of the protocol control.EnrolALPN. refuse tells
// the other side why it gets nothing.
func (d *Desk) Serve(ctx context.Context, conn *tls.Conn, refuse func(*tls.Conn, error)) {
	got, chain, err := d.answer(ctx, conn)
	if err == nil && size(chain) > wire.MaxBody {
		err = fmt.Errorf("the certificates take %d bytes, at most %d can be sent; name fewer projects", size(chain), wire.MaxBody)
	}
	if d.Noted != nil {
		d.Noted(got.who, got.by, conn.RemoteAddr().String(), err)
	}
	if err != nil {
		d.log.Warn("enrolment refused", "identity", got.who, "by", got.by, "from", conn.RemoteAddr().String(), "error", err)
		refuse(conn, err)
		return
	}
	d.log.Info("enrolled", "identity", got.who, "by", got.by, "from", conn.RemoteAddr().String())
	if _, err := conn.Write(wire.Append(nil, &wire.Enrolled{Certificates: chain})); err != nil {
		d.log.Warn("a certificate was not delivered", "identity", got.who, "error", err)
		return
	}
	conn.CloseWrite()
}

func size(chain [][]byte) (n int) {
	for _, der := range chain {
		n += 2 + len(der)
	}
	return n + 1
}

// asked is who asks for a certificate, as far as it is known, and by what.
type asked struct {
	who string
	by  string // token, certificate, or the identity provider's address
}

// answer reads what is asked and decides it.
func (d *Desk) answer(ctx context.Context, conn *tls.Conn) (got asked, chain [][]byte, err error) {
	select {
	case d.places <- struct{}{}:
		defer func() { <-d.places }()
	default:
		return got, nil, fmt.Errorf("%w: %d ask for certificates already; try again", overlay.ErrOverloaded, cap(d.places))
	}
	conn.SetDeadline(d.now().Add(askTimeout))
	frame, err := wire.Read(conn)
	if err != nil {
		return got, nil, fmt.Errorf("waiting for the request: %w", err)
	}
	ask, ok := frame.(*wire.Enrol)
	if !ok {
		return got, nil, fmt.Errorf("%w: a %v in place of a request for a certificate", wire.ErrType, frame.Type())
	}
	switch {
	case oidc.IsToken(ask.Token):
		if d.outside == nil {
			return got, nil, errors.New("this broker believes no identity provider; its settings need the key enrol.oidc")
		}
		got.by = d.outside.Verifier.Issuer()
		got.who, chain, err = d.Exchange(ctx, ask.Token, ask.Request)
	case ask.Token == "":
		got.by = "certificate"
		var old [][]byte
		for _, cert := range conn.ConnectionState().PeerCertificates {
			old = append(old, cert.Raw)
		}
		if len(old) == 0 {
			return got, nil, fmt.Errorf("neither a token nor an old certificate was shown")
		}
		got.who, chain, err = d.renewed(old)
	default:
		got.by = "token"
		got.who, chain, err = d.Enrol(ask.Token, ask.Request)
	}
	return got, chain, err
}

// Enrol issues a certificate against a token, which is used up by that, for a
// request in DER. The identity is as far as it is known.
func (d *Desk) Enrol(text string, request []byte) (who string, chain [][]byte, err error) {
	now := d.now()
	t, err := ca.ParseToken(text, d.creds.Roots())
	if err != nil {
		return "", nil, err
	}
	if err := t.Current(now); err != nil {
		return t.Identity, nil, err
	}
	id, pub, err := ca.ParseRequest(request)
	if err != nil {
		return t.Identity, nil, err
	}
	if err := t.Fits(id); err != nil {
		return t.Identity, nil, err
	}
	who = id.String()
	if err := d.issuer.May(id); err != nil {
		return who, nil, err
	}
	if list, _ := d.creds.Revocations().Now(); true {
		if since, yes := list.Names(who, t.MadeAt()); yes {
			return who, nil, fmt.Errorf("%v was revoked at %s, after this token was made; ask the keeper of the CA for another", id, since.UTC().Format(time.RFC3339))
		}
	}
	// Made before the token is used up: what can fail has not failed.
	valid := min(time.Duration(t.Valid)*time.Second, d.longest)
	chain, err = d.issuer.Issue(pub, ca.Grant{ID: id, Projects: t.Projects, Enrolled: t.MadeAt(), NotAfter: now.Add(valid)}, now)
	if err != nil {
		return who, nil, err
	}
	if err := d.used.Take(t.Nonce, t.Uses, t.ExpiresAt().Add(ca.ClockSlack), now); err != nil {
		return who, nil, err
	}
	return who, chain, nil
}

// Renew issues a certificate for the holder and the key of an old one, in DER
// with what leads from it to the root, that is still good. Nothing is gained by
// showing somebody else's: the new one is for the same key.
func (d *Desk) Renew(old [][]byte) ([][]byte, error) {
	_, chain, err := d.renewed(old)
	return chain, err
}

func (d *Desk) renewed(old [][]byte) (who string, chain [][]byte, err error) {
	p, err := d.creds.Verify(old)
	if err != nil {
		return p.String(), nil, fmt.Errorf("renewing: %w", err)
	}
	if !control.Renewable(p.Leaf) {
		return p.String(), nil, fmt.Errorf("renewing: the certificate of %v is not renewed: it was given for a token of an identity provider; get another one with a new token", p)
	}
	projects, err := control.ProjectsOf(p.Leaf)
	if err != nil {
		return p.String(), nil, fmt.Errorf("renewing: %w", err)
	}
	now := d.now()
	valid := min(p.Leaf.NotAfter.Sub(start(p.Leaf)), d.longest)
	chain, err = d.issuer.Issue(p.Leaf.PublicKey, ca.Grant{ID: p.Identity, Projects: projects, Enrolled: p.Enrolled, NotAfter: now.Add(valid)}, now)
	return p.String(), chain, err
}
