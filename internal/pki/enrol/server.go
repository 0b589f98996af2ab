// Package enrol gives certificates to who has leave: a broker's server issues them
// against tokens and old certificates, and new nodes, daemons and people ask
// there. What is in a certificate or a token is package ca's; what an identity
// provider outside the grid says of a user is package oidc's; who may have a
// session is package control's.
//
// Its state is in the server's store: which tokens were used, and what was given for
// them. A use is in the store before its certificate is answered, so that nothing
// that fails in between makes the token good again; who got no answer asks
// again with the same key, and gets the same certificate.
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

// requestTimeout bounds the time for a request to come, and askTimeout what
// follows. maxAsking is how many requests are judged at a time, and maxOfSource
// how many of one source address, until SetMax says otherwise.
const (
	requestTimeout = 3 * time.Second
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
	outside *Outside // nil: nobody outside the grid is believed

	// Noted, if not nil, is told of every certificate that Serve issues and of
	// every refusal: for whom, as far as that is known, by what (token,
	// certificate, or an identity provider's address), from where, and why not.
	// It is set before Serve.
	Noted func(identity, by, peer string, err error)
}

// Settings are those of a server.
type Settings struct {
	Cert, Key string        // files of the issuing certificate and its key
	Store     store.Store   // remembers used tokens; it stays the caller's to close
	Old       string        // file of used tokens of an older version, which the store takes over; "" is none
	Longest   time.Duration // no certificate is valid for longer
}

// New returns a server. It starts nothing.
func New(set Settings, creds *control.Credentials, log *slog.Logger) (*Server, error) {
	issuer, err := ca.LoadIssuer(set.Cert, set.Key, creds.Roots())
	if err != nil {
		return nil, err
	}
	return &Server{
		issuer: issuer, used: newUsed(set.Store, set.Old), creds: creds, longest: set.Longest,
		log: log, now: time.Now, places: newPlaces(),
	}, nil
}

// Migrate has the store take over the file of used tokens of an older version.
// While that fails, no token is taken.
func (d *Server) Migrate(ctx context.Context) error { return d.used.migrate(ctx, d.now()) }

// Prune forgets used tokens that have expired.
func (d *Server) Prune(ctx context.Context) error { return d.used.Prune(ctx, d.now()) }

func newPlaces() *limit.Counter[accept.Source] {
	return limit.NewCounter[accept.Source](limit.Bounds{
		What: "requests for certificates that are judged", Total: maxAsking, PerKey: maxOfSource,
		TotalSetting: "limits.enrolments", KeySetting: "limits.enrolments_per_source",
	})
}

// SetMax changes how many requests are judged at a time, and how many of one source
// address. Those under way go on.
func (d *Server) SetMax(total, perSource int) { d.places.SetMax(total, perSource) }

// Limits returns how far the server's limits are used, for metrics.
func (d *Server) Limits() limit.Stats { return d.places.Stats() }

// Serve answers one connection of the protocol control.EnrolALPN. It calls asked
// when the request has come, and goes on unless that says that the connection was
// closed (control.Trust). refuse tells the other side why it gets nothing.
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
	if err == nil && size(chain) > wire.MaxBody { // a renewed one's; a token is not used up by such
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

// applicant is who asks for a certificate, as far as it is known, and by what.
type applicant struct {
	who string
	by  string // token, certificate, or the identity provider's address
}

// request reads what is asked. Who is silent holds no place of those that are
// judged, and soon no connection.
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

// answer decides what is asked.
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

// Enrol issues a certificate against a token, which is used up by that, for a
// request in DER. The identity is as far as it is known. Whoever asks again with
// the same key gets the same certificate.
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
		if since, yes := list.Names(who, t.Enrolled()); yes {
			return who, nil, fmt.Errorf("%v was revoked at %s, after this token was made; ask the keeper of the CA for another", id, since.UTC().Format(time.RFC3339))
		}
	}
	// Made before the token is used up: what can fail has not failed.
	grant := ca.Grant{ID: id, Projects: t.Projects, Enrolled: t.Enrolled(), NotAfter: now.Add(min(time.Duration(t.Valid)*time.Second, d.longest))}
	if a := t.Allocation; a != nil {
		// Nothing outlives the allocation.
		grant.Account, grant.Final, grant.NotAfter = a.Account, true, now.Add(min(t.ExpiresAt().Sub(now), d.longest))
	}
	chain, err = d.issuer.Issue(pub, grant, now)
	if err != nil {
		return who, nil, err
	}
	chain, err = d.take(ctx, use{token: t.Nonce, times: t.Uses, who: who, once: t.Allocation != nil, expires: t.Forgotten()}, chain, now)
	return who, chain, err
}

// take uses a token up, for which a chain was made, and returns the chain to
// answer with.
func (d *Server) take(ctx context.Context, one use, chain [][]byte, now time.Time) ([][]byte, error) {
	if n := size(chain); n > wire.MaxBody {
		return nil, fmt.Errorf("the certificates take %d bytes, at most %d can be sent; name fewer projects", n, wire.MaxBody)
	}
	chain, err := d.used.Take(ctx, one, chain, now)
	if err != nil {
		return nil, err
	}
	if _, err := d.creds.Verify(chain); err != nil { // it may be of an earlier time
		return nil, fmt.Errorf("the token was used already, and its certificate counts no more: %w", err)
	}
	return chain, nil
}

// Renew issues a certificate for the holder and the key of an old one, in DER
// with what leads from it to the root, that is still good. Nothing is gained by
// showing somebody else's: the new one is for the same key.
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
