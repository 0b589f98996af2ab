//go:build system

package security

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc/oidctest"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A broker that accepts an identity provider issues certificates to users for its tokens, with
// which jobs are granted; and a frontal whose certificate is past two thirds of its life gets a new
// one from it, and uses it, while it runs.
func TestProviderAndRenewal(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	isthmusIn := func(args ...string) (stdout, stderr string, status int) {
		cmd := exec.Command(labtest.Program(t, ""), args...)
		cmd.Dir = dir
		return labtest.Run(t, cmd)
	}
	authority, err := ca.Create(dir, "tg", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := authority.Write(dir, control.Identity{Role: control.RoleBroker, Name: "b1"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	issuerCert, issuerKey, err := authority.WriteIssuer(dir, ca.OnlineRoles, time.Now().Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	provider := oidctest.New(t)
	provider.Add("k1", jose.RS256)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("broker.yaml", fmt.Sprintf("listen: 127.0.0.1:0\nstun_listen: \"\"\nallow_loopback: true\nstore: broker.db\naudit: {folder: %s}\n"+
		"tls: {cert: %s, key: %s, ca: %s}\n"+
		"enrol:\n  cert: %s\n  key: %s\n"+
		"  oidc: {issuer: %q, audience: grid, ca: %s, user_prefix: vo-, projects_claim: groups, projects: {/climate: climate}}\n",
		at("audit"), broker.Cert, broker.Key, broker.CA, issuerCert, issuerKey, provider.URL, provider.RootFile()))
	addr := labtest.StartDaemon(t, exec.Command(labtest.Program(t, "-broker"), "--config", at("broker.yaml")))

	now := time.Now()
	tokenFor := func(user string) {
		write("token", provider.Token("k1", jose.RS256, map[string]any{
			"iss": provider.URL, "aud": "grid", "sub": user, "jti": "for " + user, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "groups": []string{"/climate"},
		}))
	}
	tokenFor("alice")
	enroll := []string{"ca", "enroll", "--broker", addr, "--ca", "ca.pem", "--oidc-token", "token", "--out", "user"}
	stdout, stderr, status := isthmusIn(enroll...)
	if status != 0 || !strings.HasPrefix(stdout, "user vo-alice until ") || !strings.Contains(stdout, `projects ["climate"]`) {
		t.Fatalf("status %d: %s%s", status, stdout, stderr)
	}
	if _, stderr, status := isthmusIn(enroll...); status != 1 || !strings.Contains(stderr, "the token was used already") {
		t.Errorf("the token again: status %d: %s", status, stderr)
	}
	// For another user a daemon's settings determine the grid.
	tokenFor("bob")
	write("node.yaml", fmt.Sprintf("site: sitea\nbroker: %s\nlisten: 127.0.0.1:0\nprofile: {inbound: none, egress: any}\ntls: {cert: %s, key: %s, ca: %s}\n", addr, at("daemon.pem"), at("daemon.key"), at("ca.pem")))
	bob := []string{"ca", "enroll", "--config", "node.yaml", "--oidc-token", "token", "--out", "user"}
	if _, stderr, status := isthmusIn(append(bob, "--ca", "token")...); status != 1 || !strings.Contains(stderr, "token: ") {
		t.Errorf("a CA that is none, in place of that of the settings: status %d: %s", status, stderr)
	}
	if stdout, stderr, status := isthmusIn(bob...); status != 0 || !strings.HasPrefix(stdout, "user vo-bob until ") {
		t.Errorf("with settings: status %d: %s%s", status, stdout, stderr)
	}
	for _, name := range []string{"daemon.pem", "daemon.key"} {
		if _, err := os.Lstat(at(name)); err == nil {
			t.Errorf("a user's certificate went to the daemon's file %s", name)
		}
	}
	key := labtest.KeyFile(t)
	if _, stderr, status := isthmusIn("job", "grant", "--cert", "user/user-vo-alice.pem", "--tls-key", "user/user-vo-alice.key", "--project", "climate", "--valid", "30m", key); status != 0 {
		t.Errorf("a grant: status %d: %s", status, stderr)
	}
	stdout, stderr, status = isthmusIn("audit", "query", "--json", "audit")
	if status != 0 || strings.Count(stdout, `"event":"enrolment"`) != 2 || !strings.Contains(stdout, `"user":"vo-alice"`) || !strings.Contains(stdout, `"user":"vo-bob"`) || !strings.Contains(stdout, "used already") {
		t.Errorf("audit: status %d: %s%s", status, stdout, stderr)
	}

	// A certificate of three hours, two of which are over.
	roots, err := control.ParseRoots(authority.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := ca.LoadIssuer(issuerCert, issuerKey, roots)
	if err != nil {
		t.Fatal(err)
	}
	id := control.Identity{Role: control.RoleFrontal, Site: "sitea"}
	request, keyPEM, err := ca.Request(id)
	if err != nil {
		t.Fatal(err)
	}
	_, pub, err := ca.ParseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := issuer.Issue(pub, ca.Grant{ID: id, Enrolled: now.Add(-2 * time.Hour), NotAfter: now.Add(time.Hour)}, now.Add(-2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Install(at("own"), id, chain, keyPEM, roots[0])
	if err != nil {
		t.Fatal(err)
	}
	old, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	write("frontal.yaml", fmt.Sprintf("site: sitea\nbroker: %s\nlisten: 127.0.0.1:0\nprofile: {inbound: none, egress: any}\ntls: {cert: %s, key: %s, ca: %s}\n", addr, files.Cert, files.Key, files.CA))
	listen := labtest.StartDaemon(t, exec.Command(labtest.Program(t, "-frontal"), "--config", at("frontal.yaml")))
	for over := time.Now().Add(labtest.Patience); ; time.Sleep(50 * time.Millisecond) {
		shown := shownAt(t, listen)
		if shown.SerialNumber.Cmp(old.SerialNumber) != 0 {
			if left := time.Until(shown.NotAfter); left < 2*time.Hour {
				t.Errorf("the new certificate is for %v", left)
			}
			break
		}
		if time.Now().After(over) {
			t.Fatal("the frontal shows its old certificate still")
		}
	}
}

// shownAt is the certificate that a daemon presents.
func shownAt(t *testing.T, addr string) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"isthmus-control"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}
