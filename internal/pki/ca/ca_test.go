package ca

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

func newIssuerFor(t *testing.T, a *CA, roles ...control.Role) *Issuer {
	t.Helper()
	certPEM, keyPEM, err := a.MakeIssuer(roles, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	i, err := newIssuer(pair, []*x509.Certificate{a.cert})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func newTestCA(t *testing.T) (*CA, *control.Credentials) {
	t.Helper()
	a, _, err := New("tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := a.Credentials(control.Identity{Role: control.RoleBroker, Name: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	return a, creds
}

// An attacker who controls an issuer can create any certificate; none is accepted beyond the
// issuer's roles.
func TestIssuerIsBelievedWithinItsRoles(t *testing.T) {
	a, judge := newTestCA(t)
	i := newIssuerFor(t, a, control.RoleHelper)
	i.roles = append(i.roles, control.RoleAdmin) // it ignores its roles
	for _, c := range []struct{ id, want string }{
		{"helper sitea/n1", ""},
		{"admin eve", `was issued by "tg Isthmus issuer", which may not issue for a admin`},
	} {
		id, err := control.ParseIdentity(c.id)
		if err != nil {
			t.Fatal(err)
		}
		request, _, err := Request(id)
		if err != nil {
			t.Fatal(err)
		}
		_, pub, err := ParseRequest(request)
		if err != nil {
			t.Fatal(err)
		}
		chain, err := i.Issue(pub, Grant{ID: id, Enrolled: time.Now(), NotAfter: time.Now().Add(time.Hour)}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		switch p, err := judge.Verify(chain); {
		case c.want == "" && (err != nil || p.Identity != id):
			t.Errorf("%s: %v, %v", c.id, p.Identity, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.id, err, c.want)
		}
		if _, err := judge.Verify(chain[:1]); err == nil {
			t.Errorf("%s passes without its issuer", c.id)
		}
	}
	if err := newIssuerFor(t, a, control.RoleHelper).May(control.Identity{Role: control.RoleAdmin, Name: "eve"}); err == nil {
		t.Error("an honest issuer makes an admin")
	}
}

// Revoking an issuer revokes everything that it issued.
func TestRevokedIssuer(t *testing.T) {
	a, judge := newTestCA(t)
	dir := t.TempDir()
	i := newIssuerFor(t, a, control.RoleHelper)
	id := control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "n1"}
	request, _, err := Request(id)
	if err != nil {
		t.Fatal(err)
	}
	_, pub, err := ParseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := i.Issue(pub, Grant{ID: id, Enrolled: time.Now(), NotAfter: time.Now().Add(time.Hour)}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	list, der, err := a.Revoke(dir, nil, []string{i.cert.SerialNumber.Text(16)}, time.Now())
	if err != nil || list.Number != 1 {
		t.Fatalf("list %+v, %v", list, err)
	}
	if _, err := judge.Revocations().Take(der); err != nil {
		t.Fatal(err)
	}
	if _, err := judge.Verify(chain); !errors.Is(err, control.ErrRevoked) {
		t.Errorf("after its issuer was revoked: %v", err)
	}

	// Lists grow, and an older one is not accepted again.
	list, newer, err := a.Revoke(dir, []control.Identity{{Role: control.RoleUser, Name: "alice"}}, nil, time.Now())
	if err != nil || list.Number != 2 || len(list.Serials) != 1 || len(list.Holders) != 1 {
		t.Fatalf("list %+v, %v", list, err)
	}
	if took, err := judge.Revocations().Take(newer); !took || err != nil {
		t.Errorf("list 2: %v, %v", took, err)
	}
	if took, err := judge.Revocations().Take(der); took || err != nil {
		t.Errorf("list 1 after list 2: %v, %v", took, err)
	}
}

// The root of an older version permits no issuer below it, and the error says so.
func TestOldRootMakesNoIssuer(t *testing.T) {
	a, _ := newTestCA(t)
	old := *a.cert
	old.MaxPathLen, old.MaxPathLenZero = 0, true
	a.cert = &old
	if _, _, err := a.MakeIssuer(OnlineRoles, time.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "create a new CA") {
		t.Errorf("%v", err)
	}
}

func FuzzReadToken(f *testing.F) {
	a, _, err := New("tg", time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	text, err := a.Token(Token{Identity: "helper sitea/*", Expires: time.Now().Add(time.Hour).UnixMilli(), Valid: 60, Uses: 3}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(tokenPrefix + "e30.AA")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ReadToken(text)
		if err != nil {
			return
		}
		if _, err := token.For("x"); err == nil && token.Uses < 1 {
			t.Error("a token of no use")
		}
	})
}

// A CA is not read from the certificate of a daemon, with which it would sign what nobody accepts.
func TestLeafIsNoCA(t *testing.T) {
	a, _ := newTestCA(t)
	cert, key, err := a.Issue(control.Identity{Role: control.RoleBroker, Name: "b1"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{CertFile: cert, KeyFile: key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "which is no CA; put back") {
		t.Errorf("%v", err)
	}
}

// Whatever is in its files, reading an issuer ends with an issuer or an error.
func FuzzIssuer(f *testing.F) {
	a, _, err := New("tg", time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	cert, key, err := a.MakeIssuer([]control.Role{control.RoleHelper}, time.Now().Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	leaf, leafKey, err := a.Issue(control.Identity{Role: control.RoleBroker, Name: "b1"}, time.Now().Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cert, key)
	f.Add(leaf, leafKey)
	f.Add(append(slices.Clone(leaf), cert...), leafKey)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), key)
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return
		}
		if i, err := newIssuer(pair, []*x509.Certificate{a.cert}); err == nil && (!i.cert.IsCA || i.May(control.Identity{Role: control.RoleHelper, Site: "s", Name: "n"}) != nil) {
			t.Errorf("an issuer of %v", i.cert.Subject)
		}
	})
}
