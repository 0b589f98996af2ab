// Package ca is the grid's certificate authority in a folder: it creates the root and, from that,
// certificates of daemons, tokens for which a broker issues certificates, the certificate that lets
// a broker do so, and the revocation list. It makes no connections and keeps no list of issued
// certificates; those are in the files.
package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The files of a CA and of an issued certificate. CertFile is public, the keys are secret.
const (
	CertFile = "ca.pem"
	KeyFile  = "ca.key"
)

// ClockSlack is how far validity is backdated, for strict verifiers. The grid's daemons tolerate
// more (overlay.MaxAhead).
const ClockSlack = 5 * time.Minute

// CA is a loaded certificate authority. Safe for concurrent use.
type CA struct {
	cert    *x509.Certificate
	certPEM []byte
	key     *ecdsa.PrivateKey
}

// Create creates a CA for a grid of the given name and writes CertFile and KeyFile into dir, which
// it creates if needed. It refuses to overwrite one.
func Create(dir, grid string, validity time.Duration) (*CA, error) {
	for _, name := range []string{CertFile, KeyFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s exists already (or cannot be looked at: %v); a grid has one CA, choose another folder", filepath.Join(dir, name), err)
		}
	}
	a, keyPEM, err := New(grid, validity)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, KeyFile), keyPEM, 0o600); err != nil {
		return nil, err
	}
	return a, os.WriteFile(filepath.Join(dir, CertFile), a.certPEM, 0o644)
}

// New creates a CA in memory and returns it and its key in PEM.
func New(grid string, validity time.Duration) (*CA, []byte, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: grid + rootSuffix},
		NotBefore:             now.Add(-ClockSlack),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLen:            1, // an issuing certificate, see MakeIssuer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return &CA{cert: cert, certPEM: pemOf("CERTIFICATE", der), key: key}, keyPEM, nil
}

// Load reads the CA that Create wrote to dir.
func Load(dir string) (*CA, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, fmt.Errorf("CA in %s: %w; make one with `isthmus ca init`", dir, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("CA in %s: the key is a %T, want ECDSA", dir, pair.PrivateKey)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("CA in %s: %w", dir, err)
	}
	if !cert.IsCA { // it would sign what no daemon accepts
		return nil, fmt.Errorf("CA in %s: %s is the certificate of %q, which is no CA; put back the one that `isthmus ca init` wrote", dir, CertFile, cert.Subject.CommonName)
	}
	return &CA{cert: cert, certPEM: pemOf("CERTIFICATE", cert.Raw), key: key}, nil
}

// CertPEM returns the CA's certificate, which every daemon of the grid needs.
func (a *CA) CertPEM() []byte { return a.certPEM }

// Issue creates a key and a certificate for id, both PEM, valid until the given time. The validity
// must not be over already, except in tests. Only a user's certificate names projects.
func (a *CA) Issue(id control.Identity, notAfter time.Time, projects ...string) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := sign(a.cert, a.key, key.Public(), Grant{ID: id, Projects: projects, Enrolled: time.Now(), NotAfter: notAfter}, time.Now())
	if err != nil {
		return nil, nil, err
	}
	return pemOf("CERTIFICATE", der), keyPEM, nil
}

// Grant is what a certificate states about its holder.
type Grant struct {
	ID       control.Identity
	Projects []string  // of a user; empty for others
	Enrolled time.Time // see control.Enrolled
	NotAfter time.Time
	Final    bool   // not renewable, see control.Renewable
	Account  string // of a helper of an allocation: see control.AccountOf
}

// sign creates a certificate for a public key under the given issuer, in DER.
func sign(issuer *x509.Certificate, issuerKey crypto.Signer, pub crypto.PublicKey, g Grant, now time.Time) ([]byte, error) {
	if _, err := control.ParseIdentity(g.ID.Key()); err != nil {
		return nil, err
	}
	uris, err := control.ProjectURIs(g.Projects)
	if err != nil {
		return nil, err
	}
	if len(g.Projects) > 0 && g.ID.Role != control.RoleUser {
		return nil, fmt.Errorf("%v has no projects; only users have", g.ID)
	}
	switch _, ofAllocation := overlay.AllocationOf(g.ID.Name); {
	case g.Account != "":
		if g.ID.Role != control.RoleHelper || !ofAllocation {
			return nil, fmt.Errorf("%v is no helper of an allocation, and serves no account alone", g.ID)
		}
		uris = append(uris, control.AccountURI(g.Account))
	case g.ID.Role == control.RoleHelper && ofAllocation:
		return nil, fmt.Errorf("%v: such names are those of allocations' nodes, which enrol by their tokens", g.ID)
	}
	if g.Final {
		uris = append(uris, control.NotRenewedURI())
	}
	notBefore := now.Add(-ClockSlack)
	if g.NotAfter.Before(notBefore) {
		notBefore = g.NotAfter.Add(-time.Hour)
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: g.ID.Key()},
		NotBefore:    notBefore,
		NotAfter:     g.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:         append([]*url.URL{g.ID.URI(), control.EnrolledURI(g.Enrolled)}, uris...),
	}
	return x509.CreateCertificate(rand.Reader, template, issuer, pub, issuerKey)
}

// Files are the paths of a holder's certificate, its key and the CA's certificate.
type Files struct{ Cert, Key, CA string }

// FilesFor returns the paths that Write uses for id in dir.
func FilesFor(dir string, id control.Identity) Files {
	base := filepath.Join(dir, fileName(id))
	return Files{Cert: base + ".pem", Key: base + ".key", CA: filepath.Join(dir, CertFile)}
}

func fileName(id control.Identity) string {
	return strings.NewReplacer(" ", "-", "/", "-").Replace(id.Key())
}

// Write issues a certificate for id, as Issue does, and writes it, its key and
// the CA's certificate into dir.
func (a *CA) Write(dir string, id control.Identity, notAfter time.Time, projects ...string) (Files, error) {
	certPEM, keyPEM, err := a.Issue(id, notAfter, projects...)
	if err != nil {
		return Files{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Files{}, err
	}
	f := FilesFor(dir, id)
	if err := control.WriteFile(f.Key, keyPEM, 0o600); err != nil {
		return Files{}, err
	}
	if err := control.WriteFile(f.Cert, certPEM, 0o644); err != nil {
		return Files{}, err
	}
	return f, a.writeCert(f.CA)
}

// writeCert writes the CA's certificate where it is not there yet. Those that were issued into the
// folder before may be in use: nobody finds the file half written.
func (a *CA) writeCert(file string) error {
	if text, err := os.ReadFile(file); err == nil && bytes.Equal(text, a.certPEM) {
		return nil
	}
	return control.WriteFile(file, a.certPEM, 0o644)
}

// Credentials issues a certificate for id, valid for an hour, and returns it ready for use: for
// grids within one process.
func (a *CA) Credentials(id control.Identity) (*control.Credentials, error) {
	certPEM, keyPEM, err := a.Issue(id, time.Now().Add(time.Hour))
	if err != nil {
		return nil, err
	}
	return control.NewCredentials(certPEM, keyPEM, a.certPEM)
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pemOf("PRIVATE KEY", der), nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	return new(big.Int).SetBytes(b[:])
}
