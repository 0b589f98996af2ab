package enrol

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc/oidctest"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// record is the server's report of a request.
type record struct {
	who, by, from string
	err           error
}

// because is the reason of the refusal, or nothing.
func (r record) because() string {
	if r.err == nil {
		return ""
	}
	return r.err.Error()
}

// records is what an audit log would contain.
type records struct {
	mu  sync.Mutex // guards all fields
	all []record
}

func (r *records) add(who, by, from string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, record{who, by, from, err})
}

// last is the newest record. A test that has an answer finds the record of its request.
func (r *records) last() record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return record{}
	}
	return r.all[len(r.all)-1]
}

// believe restarts the grid's broker with an identity provider.
func (g *grid) believe(i *oidctest.Issuer, once bool) {
	g.t.Helper()
	v, err := oidc.New(oidc.Rules{
		Issuer: i.URL, Audience: "grid", Profile: oidc.WLCG, Scope: "compute.create", Longest: 24 * time.Hour,
		UserClaim: "sub", UserPrefix: "vo-", ProjectsClaim: "wlcg.groups", Projects: map[string]string{"/climate": "climate"},
	}, "", i.Roots)
	if err != nil {
		g.t.Fatal(err)
	}
	g.out = &Outside{Verifier: v, Valid: 10 * time.Minute, Once: once}
	g.stop()
	g.start(true)
}

func tokenOf(i *oidctest.Issuer, jti string, change func(map[string]any)) string {
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": "grid", "sub": "alice", "jti": jti, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"wlcg.ver": "1.0", "scope": "compute.create", "wlcg.groups": []string{"/climate", "/other"},
	}
	if change != nil {
		change(claims)
	}
	return i.Token("k1", jose.ES256, claims)
}

func (g *grid) askAsUser(token string) (*Enrolled, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	root, err := x509.ParseCertificate(g.creds.Roots()[0].Raw)
	if err != nil {
		g.t.Fatal(err)
	}
	return AskAsUser(ctx, g.addr, token, root, nil)
}

func TestUserByProvider(t *testing.T) {
	i := oidctest.New(t)
	i.Add("k1", jose.ES256)
	g := newGrid(t, "tg")
	_, err := g.askAsUser(tokenOf(i, "1", nil))
	refused(t, "a broker that believes nobody", err, "believes no identity provider")

	g.believe(i, true)
	got, err := g.askAsUser(tokenOf(i, "2", nil))
	if err != nil {
		t.Fatal(err)
	}
	creds := g.credentials(got)
	name, projects, err := g.creds.User(got.Chain)
	if err != nil || name != "vo-alice" || !slices.Equal(projects, []string{"climate"}) || got.ID.String() != "user vo-alice" {
		t.Errorf("%v is user %s with projects %q, %v", got.ID, name, projects, err)
	}
	if valid := time.Until(creds.Leaf().NotAfter); valid > 11*time.Minute {
		t.Errorf("valid for %v, the settings say 10 min", valid)
	}
	if r := g.log.last(); r.err != nil || r.who != "user vo-alice" || r.by != i.URL || !strings.HasPrefix(r.from, "127.0.0.1:") {
		t.Errorf("recorded %+v", r)
	}

	// It is not renewable: the provider may have removed the user.
	_, err = Renew(t.Context(), g.addr, creds, nil)
	refused(t, "renewing", err, "the certificate of user vo-alice is not renewed")
	if r := g.log.last(); r.err == nil || r.by != "certificate" || r.who != "user vo-alice" {
		t.Errorf("recorded %+v", r)
	}

	// Each token works once, also after a restart.
	again := tokenOf(i, "2", nil)
	for range 2 {
		_, err = g.askAsUser(again)
		refused(t, "a token again", err, "the token was used already; each works once here, get a new one from "+i.URL)
		if r := g.log.last(); !strings.Contains(r.because(), "used already") {
			t.Errorf("recorded %+v", r)
		}
		g.stop()
		g.start(true)
	}
	g.believe(i, false)
	for range 2 {
		if _, err := g.askAsUser(tokenOf(i, "3", nil)); err != nil {
			t.Errorf("a token that may be used again: %v", err)
		}
	}

	// A holder revoked by the grid is not readmitted by a token of the provider.
	g.revoke(time.Now().Add(-time.Minute), "user vo-alice")
	_, err = g.askAsUser(tokenOf(i, "4", nil))
	refused(t, "a revoked user", err, "user vo-alice was revoked at")
	if _, err := g.askAsUser(tokenOf(i, "5", func(c map[string]any) { c["sub"] = "bob" })); err != nil {
		t.Errorf("another user: %v", err)
	}
}

func TestProviderAttacks(t *testing.T) {
	i := oidctest.New(t)
	i.Add("k1", jose.ES256)
	g := newGrid(t, "tg")
	g.believe(i, true)
	other := newGrid(t, "elsewhere")
	head := map[jose.HeaderKey]any{"kid": "k1"}
	for _, c := range []struct{ what, token, want string }{
		{"another audience", tokenOf(i, "1", func(c map[string]any) { c["aud"] = "x" }), "not for"},
		{"another issuer", tokenOf(i, "2", func(c map[string]any) { c["iss"] = "https://evil.example.org" }), "was issued by"},
		{"expired", tokenOf(i, "3", func(c map[string]any) { c["iat"], c["nbf"], c["exp"] = 1, 1, 2 }), "the token expired at"},
		{"an admin", tokenOf(i, "4", func(c map[string]any) { c["sub"] = "x/admin root" }), "user name"},
		{"lines in a name", tokenOf(i, "5", func(c map[string]any) { c["sub"] = "a\nlevel=ERROR" }), "user name"},
		{"a shared key", oidctest.Sign(t, jose.HS256, make([]byte, 32), map[string]any{}, head), `signed with "HS256"`},
		{"an unknown key", oidctest.Sign(t, jose.ES256, i.Key("k1"), claimsOf(i), map[jose.HeaderKey]any{"kid": "k9"}), "no key of the name"},
	} {
		_, err := g.askAsUser(c.token)
		refused(t, c.what, err, c.want)
		if !errors.Is(err, overlay.ErrForbidden) {
			t.Errorf("%s: of another class: %v", c.what, err)
		}
		if r := g.log.last(); !strings.Contains(r.because(), c.want) || r.who != "" {
			t.Errorf("%s: recorded %+v", c.what, r)
		}
	}
	_, err := g.askAsUser(tokenOf(i, "6", func(c map[string]any) { c["more"] = strings.Repeat("x", wire.MaxToken) }))
	refused(t, "a huge token", err, "can be sent")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = AskAsUser(ctx, g.addr, tokenOf(i, "7", nil), other.creds.Roots()[0], nil)
	refused(t, "a broker of another grid", err, "not belong to the grid whose CA has the fingerprint")

	// With a request that names a holder, the token is refused.
	request, _, err := ca.Request(control.Identity{Role: control.RoleUser, Name: "vo-bob"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = g.server.Exchange(ctx, tokenOf(i, "8", nil), request)
	refused(t, "a request that names a holder", err, "names a holder")
	if _, err := g.askAsUser(tokenOf(i, "8", nil)); err != nil {
		t.Errorf("a good one after all those: %v", err)
	}
}

func claimsOf(i *oidctest.Issuer) map[string]any {
	var claims map[string]any
	tokenOf(i, "x", func(c map[string]any) { claims = c })
	return claims
}

// A revocation applies to earlier enrolments even if the broker's clock is ahead of the CA's:
// enrolments have the broker's time, revocations the CA's.
func TestRevokedByAnotherClock(t *testing.T) {
	i := oidctest.New(t)
	i.Add("k1", jose.ES256)
	g := newGrid(t, "tg")
	g.believe(i, true)
	got, err := g.askAsUser(tokenOf(i, "1", nil))
	if err != nil {
		t.Fatal(err)
	}
	g.revoke(time.Now().Add(-10*time.Minute), got.ID.String())
	if _, err := g.creds.Verify(got.Chain); err == nil || !strings.Contains(err.Error(), "was revoked at") {
		t.Errorf("%v is still good: %v", got.ID, err)
	}
}
