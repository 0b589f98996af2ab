package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Token is an enrolment token: a client that presents it to a broker with an issuing certificate
// gets a certificate for the identity that it names. It also tells the client which grid to trust:
// the one whose CA has the fingerprint.
type Token struct {
	Grid     string   `json:"grid"`
	Identity string   `json:"identity"`           // or "helper SITE/*": any one node of the site
	Projects []string `json:"projects,omitempty"` // of a user
	Created  int64    `json:"created"`            // Unix milliseconds, by the CA's clock
	Expires  int64    `json:"expires"`            // as Created
	Valid    int64    `json:"valid"`              // seconds for which the certificate is to be valid
	Uses     int      `json:"uses"`
	Nonce    string   `json:"nonce"` // 16 random bytes in hexadecimal: what is used up
	CA       string   `json:"ca"`    // SHA-256 of the root's certificate in hexadecimal

	Allocation *Allocation `json:"allocation,omitempty"` // that it is bound to, if any

	// What the client's host has to know, if the CA's administrator says it. Brokers of older versions
	// refuse tokens that have these.
	Broker  string `json:"broker,omitempty"`  // HOST:PORT of a broker
	Frontal string `json:"frontal,omitempty"` // of a helper: HOST:PORT of its site's frontal
}

// anyNode instead of a helper's node lets the client choose the node.
const anyNode = "*"

// tokenPrefix begins every token, and tokenLabel the signed text.
const (
	tokenPrefix = "isthmus-token-1."
	tokenLabel  = "isthmus v1 enrolment token\x00"
)

// maxToken bounds a token, in bytes. Brokers of older versions accept no longer ones.
const maxToken = 2048

// MaxUses bounds the number of uses of one token.
const MaxUses = 10_000

// Token signs an enrolment token with the root's key. The caller sets Identity, Projects, Expires,
// Valid and Uses; Token sets the rest.
func (a *CA) Token(t Token, now time.Time) (string, error) {
	text, err := t.sign(a.cert, a.key, now)
	if err == nil && len(text) > maxToken {
		err = fmt.Errorf("the token would have %d bytes, at most %d are possible; name fewer projects or nodes", len(text), maxToken)
	}
	return text, err
}

// sign sets the remaining fields of the token and signs it for the grid of a root.
func (t Token) sign(root *x509.Certificate, key crypto.Signer, now time.Time) (string, error) {
	t.Grid, t.CA, t.Created = GridOf(root), control.Fingerprint(root), now.UnixMilli()
	var nonce [16]byte
	rand.Read(nonce[:])
	t.Nonce = hex.EncodeToString(nonce[:])
	if err := t.check(); err != nil {
		return "", err
	}
	claims, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	body := base64.RawURLEncoding.EncodeToString(claims)
	sig, err := signBody(key, body)
	if err != nil {
		return "", err
	}
	return tokenPrefix + body + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

// check returns an error if the token is invalid.
func (t Token) check() error {
	sample := t.Identity
	if site, ok := t.anySite(); ok {
		sample = "helper " + string(site) + "/x"
	}
	if t.Allocation != nil {
		if err := t.Allocation.check(t.Identity); err != nil {
			return err
		}
		sample = strings.TrimSuffix(t.Identity, anyNode) + "x"
	}
	id, err := control.ParseIdentity(sample)
	if err != nil {
		return err
	}
	if _, err := control.ProjectURIs(t.Projects); err != nil {
		return err
	}
	switch nonce, err := hex.DecodeString(t.Nonce); {
	case len(t.Projects) > 0 && id.Role != control.RoleUser:
		return fmt.Errorf("%v has no projects; only users have", id)
	case t.Frontal != "" && id.Role != control.RoleHelper:
		return fmt.Errorf("%v has no frontal; only helpers have", id)
	case t.Uses < 1 || t.Uses > MaxUses:
		return fmt.Errorf("%d uses, want 1 to %d", t.Uses, MaxUses)
	case t.Expires <= t.Created:
		return errors.New("the token expires before it is made")
	case t.Valid < 1 || t.Valid > int64(100*365*24*time.Hour/time.Second):
		return fmt.Errorf("a certificate that is valid for %d s", t.Valid)
	case err != nil || len(nonce) != 16:
		return errors.New("the nonce is not 16 bytes")
	}
	return nil
}

func (t Token) anySite() (overlay.SiteID, bool) {
	site, ok := strings.CutSuffix(t.Identity, "/"+anyNode)
	if !ok {
		return "", false
	}
	site, ok = strings.CutPrefix(site, "helper ")
	return overlay.SiteID(site), ok
}

// For returns the identity to request: the token's own, or the named node if the token lets the
// client choose.
func (t Token) For(node string) (control.Identity, error) {
	site, any := t.anySite()
	switch {
	case t.Allocation != nil && node == "":
		return control.Identity{}, fmt.Errorf("the token is for any node of allocation %s; name this node", t.Allocation.ID)
	case t.Allocation != nil:
		id, err := control.ParseIdentity(strings.TrimSuffix(t.Identity, anyNode) + node)
		if err == nil {
			err = t.Allocation.fits(id.Name)
		}
		return id, err
	case any && node == "":
		return control.Identity{}, fmt.Errorf("the token is for any node of %s; name this node", site)
	case any:
		return control.ParseIdentity("helper " + string(site) + "/" + node)
	}
	id, err := control.ParseIdentity(t.Identity)
	if err == nil && node != "" && node != id.Name {
		err = fmt.Errorf("the token is for %v, not for %s", id, node)
	}
	return id, err
}

// Fits returns why the token does not permit enrolment as an identity, or nil.
func (t Token) Fits(id control.Identity) error {
	if t.Allocation != nil {
		site, _, _ := strings.Cut(strings.TrimPrefix(t.Identity, "helper "), "/")
		if id.Role != control.RoleHelper || string(id.Site) != site {
			return fmt.Errorf("the token is for allocation %s of %s, not for %v", t.Allocation.ID, site, id)
		}
		return t.Allocation.fits(id.Name)
	}
	if site, any := t.anySite(); any && id.Role == control.RoleHelper && id.Site == site {
		return nil
	}
	if id.Key() != t.Identity {
		return fmt.Errorf("the token is for %s, not for %v", t.Identity, id)
	}
	return nil
}

// CreatedAt returns when the token was created, and ExpiresAt when it expires.
func (t Token) CreatedAt() time.Time { return time.UnixMilli(t.Created) }

// ExpiresAt is described at CreatedAt.
func (t Token) ExpiresAt() time.Time { return time.UnixMilli(t.Expires) }

// Enrolled returns the enrolment time of clients of this token as used for revocations
// (control.Enrolled): its creation time. The clock of a batch system is not the CA's, whose times
// revocations have, and may be ahead of it.
func (t Token) Enrolled() time.Time {
	if t.Allocation != nil {
		return t.CreatedAt().Add(-overlay.MaxAhead)
	}
	return t.CreatedAt()
}

// Forgotten returns the time after which no broker accepts the token, regardless of the clock
// errors of brokers that share the record of used tokens.
func (t Token) Forgotten() time.Time { return t.ExpiresAt().Add(overlay.MaxAhead) }

// Current returns why the token is not valid at time now, or nil.
func (t Token) Current(now time.Time) error {
	switch {
	case now.After(t.ExpiresAt()):
		return fmt.Errorf("the token expired at %s; ask the administrator of the CA for another (isthmus ca token), or else %s",
			t.ExpiresAt().UTC().Format(time.RFC3339), overlay.ClocksDiffer("this host", "the CA", now.Sub(t.ExpiresAt())))
	case now.Add(overlay.MaxAhead).Before(t.CreatedAt()):
		return fmt.Errorf("the token is not good before %s, when it was made: %s",
			t.CreatedAt().UTC().Format(time.RFC3339), overlay.ClocksDiffer("this host", "the CA", t.CreatedAt().Sub(now)))
	}
	return nil
}

// ReadToken reads a token without verifying its signature, to show its contents.
func ReadToken(text string) (Token, error) {
	t, _, err := splitToken(text)
	return t, err
}

// ParseToken reads a token that one of the roots signed.
func ParseToken(text string, roots []*x509.Certificate) (Token, error) {
	t, s, err := splitToken(text)
	if err != nil {
		return t, err
	}
	for _, root := range roots {
		key, ok := root.PublicKey.(*ecdsa.PublicKey)
		if ok && control.Fingerprint(root) == t.CA {
			if s.signedBy(key) {
				return t, nil
			}
			return Token{}, errForged
		}
	}
	return Token{}, fmt.Errorf("the token was signed by another CA (%.16s..., of grid %q); this is grid %q", t.CA, t.Grid, GridOf(roots[0]))
}

func splitToken(text string) (t Token, s signedToken, err error) {
	fail := func(why string) (Token, signedToken, error) {
		return Token{}, signedToken{}, fmt.Errorf("this is not an enrolment token (%s); isthmus ca token prints one", why)
	}
	switch words := strings.Fields(text); {
	case len(words) == 0:
		return fail("it is empty")
	case len(words) > 1 && strings.HasPrefix(words[1], tokenPrefix):
		return fail("there are several; keep the newest alone")
	case len(words) > 1:
		return fail("there is more than one word")
	case len(text) > maxAllocationToken:
		return fail("it is too long")
	}
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return fail("it does not begin with " + tokenPrefix)
	}
	parts := strings.Split(rest, ".")
	if len(parts) < 2 {
		return fail("it has no signature")
	}
	s.body = parts[0]
	claims, err := base64.RawURLEncoding.DecodeString(s.body)
	if err != nil {
		return fail("it is damaged")
	}
	if s.sig, err = base64.RawURLEncoding.DecodeString(parts[1]); err != nil {
		return fail("its signature is damaged")
	}
	for _, part := range parts[2:] {
		der, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			return fail("the certificate of who signed it is damaged")
		}
		s.chain = append(s.chain, der)
	}
	dec := json.NewDecoder(bytes.NewReader(claims))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil || dec.More() {
		return fail("its claims cannot be read")
	}
	if err := t.check(); err != nil {
		return fail(err.Error())
	}
	return t, s, nil
}
