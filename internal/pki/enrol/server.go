// Package enrol issues certificates: a broker's server issues them against tokens and old
// certificates, and new nodes, daemons and users request them. The contents of certificates and
// tokens are defined in package ca; the tokens of an identity provider outside the grid are
// verified in package oidc; package control decides which certificates may have a session.
//
// Its state is in the server's store: the used tokens, and the certificate issued for each use. A
// use is stored before its certificate is sent, so that no later failure makes the token valid
// again; a client that got no answer repeats the request with the same key, and gets the same
// certificate.
package enrol

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc"
	"github.com/isthmus-grid/isthmus/internal/store"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// requestTimeout bounds the time until a request is complete, and askTimeout the rest. maxAsking is
// the number of requests processed at a time, and maxOfSource the number from one source address,
// until SetMax changes them.
const (
	requestTimeout = 7 * time.Second
	askTimeout     = 10 * time.Second
	maxAsking      = 64
	maxOfSource    = 16
)

// Server issues certificates. Safe for concurrent use.
type Server struct {
	issuer  *ca.Issuer
	used    *Used
	creds   *control.Credentials
	longest time.Duration
	log     *slog.Logger
	now     func() time.Time
	places  *limit.Counter[accept.Source]
	outside *Outside // nil: no provider outside the grid is accepted

	// Noted, if not nil, is called for every certificate that Serve issues and for every refusal:
	// the holder as far as known, the proof (token, certificate, or an identity provider's
	// address), the source, and the reason. It is set before Serve.
	Noted func(identity, by, peer string, err error)
}

// Settings are the settings of a server.
type Settings struct {
	Cert, Key string        // files of the issuing certificate and its key
	Store     store.Store   // records used tokens; the caller closes it
	Longest   time.Duration // maximum lifetime of a certificate
}

// New returns a server. It starts nothing.
func New(set Settings, creds *control.Credentials, log *slog.Logger) (*Server, error) {
	issuer, err := ca.LoadIssuer(set.Cert, set.Key, creds.Roots())
	if err != nil {
		return nil, err
	}
	return &Server{
		issuer: issuer, used: newUsed(set.Store), creds: creds, longest: set.Longest,
		log: log, now: time.Now, places: newPlaces(),
	}, nil
}

// Prune removes used tokens that have expired.
func (d *Server) Prune(ctx context.Context) error { return d.used.Prune(ctx, d.now()) }

func newPlaces() *limit.Counter[accept.Source] {
	return limit.NewCounter[accept.Source](limit.Bounds{
		What: "requests for certificates that are judged", Total: maxAsking, PerKey: maxOfSource,
		TotalSetting: "limits.enrolments", KeySetting: "limits.enrolments_per_source",
	})
}

// SetMax changes how many requests are processed at a time, and how many from one source address.
// Pending ones continue.
func (d *Server) SetMax(total, perSource int) { d.places.SetMax(total, perSource) }

// Limits returns the usage of the server's limits, for metrics.
func (d *Server) Limits() limit.Stats { return d.places.Stats() }

// Serve handles one connection of the protocol control.EnrolALPN. It calls asked when the request
// has arrived, and continues unless that reports that the connection was closed (control.Trust).
// refuse sends the reason of a refusal to the client.
func (d *Server) Serve(ctx context.Context, conn *tls.Conn, asked func() bool, refuse func(*tls.Conn, error)) {
	request, err := d.request(conn)
	if !asked() {
		return
	}
	var got applicant
	var chain [][]byte
	if err == nil {
		got, chain, err = d.answer(ctx, conn, request)
	}
	if err == nil && size(chain) > wire.MaxBody { // a renewal; it uses up no token
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

// applicant is the client that requests a certificate, as far as known, and its proof.
type applicant struct {
	who string
	by  string // token, certificate, or the identity provider's address
}

// request reads the request. A silent client holds none of the places for requests being processed,
// and soon loses its connection.
func (d *Server) request(conn *tls.Conn) (*wire.Enrol, error) {
	conn.SetDeadline(d.now().Add(requestTimeout))
	frame, err := wire.Read(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("%w: no request for a certificate came within %v", overlay.ErrTimeout, requestTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for the request: %w", err)
	}
	ask, ok := frame.(*wire.Enrol)
	if !ok {
		return nil, fmt.Errorf("%w: a %v in place of a request for a certificate", wire.ErrType, frame.Type())
	}
	return ask, nil
}

// answer decides the request.
func (d *Server) answer(ctx context.Context, conn *tls.Conn, ask *wire.Enrol) (got applicant, chain [][]byte, err error) {
	source := accept.SourceOf(conn.RemoteAddr())
	if err := d.places.Take(source, 1); err != nil {
		return got, nil, err
	}
	defer d.places.Give(source, 1)
	conn.SetDeadline(d.now().Add(askTimeout))
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
		got.who, chain, err = d.Enrol(ctx, ask.Token, ask.Request)
	}
	return got, chain, err
}

// Enrol issues a certificate against a token, which it uses up, for a request in DER. It returns
// the identity as far as known. A client that repeats the request with the same key gets the same
// certificate.
func (d *Server) Enrol(ctx context.Context, text string, request []byte) (who string, chain [][]byte, err error) {
	now := d.now()
	t, err := ca.VerifyToken(text, d.creds)
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
		if since, yes := list.Names(id.Key(), t.Enrolled()); yes {
			return who, nil, fmt.Errorf("%v was revoked at %s, after this token was made; ask the administrator of the CA for another", id, since.UTC().Format(time.RFC3339))
		}
	}
	// The certificate is created before the token is used up, so that its creation can no longer
	// fail.
	grant := ca.Grant{ID: id, Projects: t.Projects, Enrolled: t.Enrolled(), NotAfter: now.Add(min(time.Duration(t.Valid)*time.Second, d.longest))}
	if a := t.Allocation; a != nil {
		// No certificate outlives the allocation.
		grant.Account, grant.Final, grant.NotAfter = a.Account, true, now.Add(min(t.ExpiresAt().Sub(now), d.longest))
	}
	chain, err = d.issuer.Issue(pub, grant, now)
	if err != nil {
		return who, nil, err
	}
	chain, err = d.take(ctx, use{token: t.Nonce, times: t.Uses, who: id, once: t.Allocation != nil, expires: t.Forgotten()}, chain, now)
	return who, chain, err
}

// take uses up a token, for which a chain was created, and returns the chain to send.
func (d *Server) take(ctx context.Context, one use, chain [][]byte, now time.Time) ([][]byte, error) {
	if n := size(chain); n > wire.MaxBody {
		return nil, fmt.Errorf("the certificates take %d bytes, at most %d can be sent; name fewer projects", n, wire.MaxBody)
	}
	chain, err := d.used.Take(ctx, one, chain, now)
	if err != nil {
		return nil, err
	}
	if _, err := d.creds.Verify(chain); err != nil { // it may be of an earlier time
		return nil, fmt.Errorf("the token was used already, and its certificate is no longer valid: %w", err)
	}
	return chain, nil
}

// Renew issues a certificate for the holder and the key of an old one that is still valid, given in
// DER with its chain to the root. Presenting another holder's certificate gains nothing: the new
// one is for the same key.
func (d *Server) Renew(old [][]byte) ([][]byte, error) {
	_, chain, err := d.renewed(old)
	return chain, err
}

func (d *Server) renewed(old [][]byte) (who string, chain [][]byte, err error) {
	p, err := d.creds.Verify(old)
	if err != nil {
		return p.String(), nil, fmt.Errorf("renewing: %w", err)
	}
	if !control.Renewable(p.Leaf) {
		return p.String(), nil, fmt.Errorf("renewing: the certificate of %v is not renewed: it was given for a token of an identity provider, or for a batch job's allocation; get another one with a new token", p)
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
