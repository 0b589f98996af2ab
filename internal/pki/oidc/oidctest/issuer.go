// Package oidctest is an identity provider for tests: a real HTTPS server on this host that
// publishes its keys, and tokens signed by them. It does not know how the grid uses a token. Its
// state is in memory and ends with the test.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// Issuer is a provider. Safe for concurrent use, except Answer.
type Issuer struct {
	URL   string         // as its tokens name it
	Roots *x509.CertPool // CAs of its server's certificate

	// Answer, if set before a request, answers it instead of the provider if it returns true.
	Answer func(w http.ResponseWriter, r *http.Request) bool

	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex // guards the fields below
	public  []jose.JSONWebKey
	private map[string]crypto.Signer // by name
	asked   int
}

// New starts a provider without keys, until the test ends.
func New(t *testing.T) *Issuer {
	t.Helper()
	i := &Issuer{t: t, private: map[string]crypto.Signer{}}
	i.server = httptest.NewUnstartedServer(i)
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not believe it
	i.server.StartTLS()
	t.Cleanup(i.server.Close)
	i.URL = i.server.URL
	i.Roots = x509.NewCertPool()
	i.Roots.AddCert(i.server.Certificate())
	return i
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if i.Answer != nil && i.Answer(w, r) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case "/keys":
		i.asked++
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: i.public})
	default:
		http.NotFound(w, r)
	}
}

// Asked returns the number of fetches of the keys.
func (i *Issuer) Asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

// Stop ends the server; the provider becomes unreachable.
func (i *Issuer) Stop() { i.server.Close() }

// RootFile writes the CA certificate of the server, PEM, and returns the file.
func (i *Issuer) RootFile() string {
	i.t.Helper()
	file := filepath.Join(i.t.TempDir(), "provider.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		i.t.Fatal(err)
	}
	return file
}

// Add creates a key for an algorithm and publishes it.
func (i *Issuer) Add(kid string, alg jose.SignatureAlgorithm) {
	i.t.Helper()
	var key crypto.Signer
	var err error
	switch alg {
	case jose.RS256:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		i.t.Fatalf("no keys of %s are made here", alg)
	}
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.private[kid] = key
	i.public = append(i.public, jose.JSONWebKey{Key: key.Public(), KeyID: kid, Algorithm: string(alg), Use: "sig"})
}

// Drop withdraws all keys published so far; they still sign.
func (i *Issuer) Drop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.public = nil
}

// Key returns the private key of a name.
func (i *Issuer) Key(kid string) crypto.Signer {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.private[kid]
}

// Token returns a token with the given claims, signed by the key of a name.
func (i *Issuer) Token(kid string, alg jose.SignatureAlgorithm, claims map[string]any) string {
	i.t.Helper()
	return Sign(i.t, alg, i.Key(kid), claims, map[jose.HeaderKey]any{"kid": kid, "typ": "JWT"})
}

// Sign returns a token with the given claims and head, signed by any key.
func Sign(t *testing.T, alg jose.SignatureAlgorithm, key any, claims any, head map[jose.HeaderKey]any) string {
	t.Helper()
	opts := &jose.SignerOptions{ExtraHeaders: head}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := token.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
