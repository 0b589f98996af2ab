package enrol

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Outside is an identity provider outside the grid whose tokens a server accepts as proof of its
// users' identities.
type Outside struct {
	Verifier *oidc.Verifier
	Valid    time.Duration // lifetime of a certificate issued for its tokens
	Once     bool          // whether each of its tokens works once
}

// SetOutside makes the server accept an identity provider. It is called before the first request.
func (d *Server) SetOutside(o Outside) { d.outside = &o }

// Exchange issues a user's certificate against a token of the identity provider outside, for a
// request in DER that names no holder. It returns the user as far as known, and proven.
//
// The certificate is not renewable, so that a user removed at the provider loses access when it
// expires. A user whom the grid has revoked gets none, regardless of the age of the token: the
// provider's approval does not undo a revocation.
func (d *Server) Exchange(ctx context.Context, token string, request []byte) (who string, chain [][]byte, err error) {
	now := d.now()
	o := d.outside
	h, err := o.Verifier.Verify(ctx, token, now)
	if err != nil {
		return "", nil, err
	}
	id := control.Identity{Role: control.RoleUser, Name: h.User}
	who = id.String()
	pub, err := ca.ParseKeyRequest(request)
	if err != nil {
		return who, nil, err
	}
	list, _ := d.creds.Revocations().Now()
	if since, yes := list.Names(id.Key(), time.Time{}); yes {
		return who, nil, fmt.Errorf("%v was revoked at %s; the administrator of the CA can readmit the holder (isthmus ca token)", id, since.UTC().Format(time.RFC3339))
	}
	// The certificate is created before the token is used up, so that its creation can no longer
	// fail. This broker's clock may be ahead of the CA's, whose times later revocations have.
	chain, err = d.issuer.Issue(pub, ca.Grant{ID: id, Projects: h.Projects, Enrolled: now.Add(-overlay.MaxAhead), NotAfter: now.Add(min(o.Valid, d.longest)), Final: true}, now)
	if err != nil {
		return who, nil, err
	}
	if n := size(chain); n > wire.MaxBody {
		return who, nil, fmt.Errorf("the certificates take %d bytes, at most %d can be sent; map to fewer projects", n, wire.MaxBody)
	}
	if o.Once {
		chain, err = d.take(ctx, use{token: h.ID, times: 1, who: id, expires: h.Expires.Add(oidc.Skew + overlay.MaxAhead)}, chain, now)
		if errors.Is(err, errUsed) {
			err = fmt.Errorf("the token was used already; each works once here, get a new one from %s", o.Verifier.Issuer())
		}
	}
	if err != nil {
		return who, nil, err
	}
	return who, chain, nil
}

// AskAsUser gets a user's certificate from the broker at addr, host:port, for a token of an
// identity provider that the broker accepts. The token is sent only to a broker of the grid whose
// CA root is. dial is as for Ask.
func AskAsUser(ctx context.Context, addr, token string, root *x509.Certificate, dial Dial) (*Enrolled, error) {
	if !oidc.IsToken(token) {
		return nil, errors.New("this is not a token of an identity provider: it is not a JSON Web Token")
	}
	request, key, err := ca.KeyRequest()
	if err != nil {
		return nil, err
	}
	if n := wire.MaxBody - len(request) - 4; len(token) > min(wire.MaxToken, n) {
		return nil, fmt.Errorf("the token has %d bytes, at most %d can be sent; ask the provider for one with fewer claims", len(token), min(wire.MaxToken, n))
	}
	chain, _, err := retry(ctx, addr, dial, control.Fingerprint(root), &wire.Enrol{Token: token, Request: request})
	if err != nil {
		return nil, err
	}
	wrong := func(err error) (*Enrolled, error) {
		return nil, fmt.Errorf("what the broker at %s sent: %w", addr, err)
	}
	creds, err := control.NewCredentials(ca.ChainPEM(chain), key, ca.ChainPEM([][]byte{root.Raw}))
	if err != nil {
		return wrong(err)
	}
	if creds.Identity().Role != control.RoleUser {
		return wrong(fmt.Errorf("%w: a certificate of %v, not of a user", overlay.ErrRefused, creds.Identity()))
	}
	return &Enrolled{ID: creds.Identity(), Chain: chain, Key: key, Root: root}, nil
}
