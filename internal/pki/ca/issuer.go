package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

// Files of an issuing certificate, as MakeIssuer's caller writes them.
const (
	IssuerCertFile = "issuer.pem"
	IssuerKeyFile  = "issuer.key"
)

// OnlineRoles are the default roles of an issuing certificate. An attacker who breaks into the
// broker that holds it can create neither brokers nor admins.
var OnlineRoles = []control.Role{control.RoleFrontal, control.RoleProxy, control.RoleHelper, control.RoleUser}

// MakeIssuer creates a key and a certificate, both PEM, with which a broker issues certificates for
// holders of the given roles, so that the root's key stays offline. No issuer can be below it.
func (a *CA) MakeIssuer(roles []control.Role, notAfter time.Time) (certPEM, keyPEM []byte, err error) {
	if a.cert.MaxPathLenZero && a.cert.MaxPathLen == 0 {
		return nil, nil, errors.New("this CA's certificate permits no issuer below it: an older version of Isthmus created it; create a new CA (isthmus ca init), or continue with isthmus ca issue")
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	var uris []*url.URL
	for _, r := range roles {
		uris = append(uris, control.IssuerURI(r))
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: a.Grid() + " Isthmus issuer"},
		NotBefore:             time.Now().Add(-ClockSlack),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		URIs:                  uris,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	return pemOf("CERTIFICATE", der), keyPEM, nil
}

// WriteIssuer creates an issuing certificate, as MakeIssuer does, and writes it and its key into
// dir. It returns their paths.
func (a *CA) WriteIssuer(dir string, roles []control.Role, notAfter time.Time) (certFile, keyFile string, err error) {
	certPEM, keyPEM, err := a.MakeIssuer(roles, notAfter)
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(dir, IssuerCertFile), filepath.Join(dir, IssuerKeyFile)
	if err := os.WriteFile(keyFile, keyPEM, 0o600); err != nil {
		return "", "", err
	}
	return certFile, keyFile, os.WriteFile(certFile, certPEM, 0o644)
}

// Grid returns the grid's name, as given to Create.
func (a *CA) Grid() string { return GridOf(a.cert) }

const rootSuffix = " Isthmus CA"

// GridOf returns the grid's name in a root certificate.
func GridOf(root *x509.Certificate) string {
	return strings.TrimSuffix(root.Subject.CommonName, rootSuffix)
}

// Issuer issues certificates below the root. Safe for concurrent use.
type Issuer struct {
	cert  *x509.Certificate
	key   crypto.Signer
	roles []control.Role
}

// LoadIssuer reads an issuing certificate and its key, and checks that one of the roots issued it.
func LoadIssuer(certFile, keyFile string, roots []*x509.Certificate) (*Issuer, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("issuing certificate: %w", err)
	}
	i, err := newIssuer(pair, roots)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	return i, nil
}

func newIssuer(pair tls.Certificate, roots []*x509.Certificate) (*Issuer, error) {
	i := &Issuer{cert: pair.Leaf, roles: control.IssuerRoles(pair.Leaf)}
	if i.key, _ = pair.PrivateKey.(*ecdsa.PrivateKey); i.key == nil {
		return nil, fmt.Errorf("the key is a %T, want ECDSA", pair.PrivateKey)
	}
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	if !i.cert.IsCA || len(i.roles) == 0 {
		return nil, errors.New("this is not an issuing certificate; create one with isthmus ca issuer")
	}
	if _, err := control.VerifyWithSkew("the issuing certificate", i.cert, x509.VerifyOptions{
		Roots: pool, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return nil, err
	}
	return i, nil
}

// May returns why no certificate may be issued for an identity, or nil.
func (i *Issuer) May(id control.Identity) error {
	if !slices.Contains(i.roles, id.Role) {
		return fmt.Errorf("this broker may issue certificates for %v only; for %v ask the administrator of the CA (isthmus ca issue)", i.roles, id)
	}
	return nil
}

// Issue creates a certificate for a public key and returns it and its intermediates up to the root,
// in DER. It expires no later than the issuer's own.
func (i *Issuer) Issue(pub crypto.PublicKey, g Grant, now time.Time) ([][]byte, error) {
	if err := i.May(g.ID); err != nil {
		return nil, err
	}
	if err := checkKey(pub); err != nil {
		return nil, err
	}
	if g.NotAfter.After(i.cert.NotAfter) {
		g.NotAfter = i.cert.NotAfter
	}
	der, err := sign(i.cert, i.key, pub, g, now)
	if err != nil {
		return nil, err
	}
	return [][]byte{der, i.cert.Raw}, nil
}

// Request creates a key, PEM, and a certificate request with it (PKCS #10, DER), which names the
// applicant.
func Request(id control.Identity) (request, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: id.Key()}, URIs: []*url.URL{id.URI()},
	}, key)
	return request, keyPEM, err
}

// ParseRequest reads a Request and checks that its creator has the
// key.
func ParseRequest(der []byte) (control.Identity, crypto.PublicKey, error) {
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return control.Identity{}, nil, fmt.Errorf("the request for a certificate: %w", err)
	}
	if err := req.CheckSignature(); err != nil {
		return control.Identity{}, nil, fmt.Errorf("the request for a certificate: %w", err)
	}
	id, err := control.IdentityOf(&x509.Certificate{URIs: req.URIs, Subject: req.Subject})
	return id, req.PublicKey, err
}

// KeyRequest is Request for an applicant that does not know its identity yet: it names no holder.
func KeyRequest() (request, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	return request, keyPEM, err
}

// ParseKeyRequest reads a request of KeyRequest and checks that its maker has the key.
func ParseKeyRequest(der []byte) (crypto.PublicKey, error) {
	req, err := x509.ParseCertificateRequest(der)
	if err == nil {
		err = req.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("the request for a certificate: %w", err)
	}
	if len(req.Subject.Names)+len(req.URIs)+len(req.DNSNames) > 0 {
		return nil, errors.New("the certificate request names a holder; with a token of an identity provider it must not name one")
	}
	return req.PublicKey, nil
}

// ChainPEM returns certificates in DER as PEM text.
func ChainPEM(chain [][]byte) []byte {
	var text []byte
	for _, der := range chain {
		text = append(text, pemOf("CERTIFICATE", der)...)
	}
	return text
}

// Install is InstallAs into dir, under the names that FilesFor returns.
func Install(dir string, id control.Identity, chain [][]byte, keyPEM []byte, root *x509.Certificate) (Files, error) {
	f := FilesFor(dir, id)
	return f, InstallAs(f, chain, keyPEM, root)
}

// InstallAs writes a holder's certificate with its chain, its key and the root's certificate to the
// files, and creates missing folders.
func InstallAs(f Files, chain [][]byte, keyPEM []byte, root *x509.Certificate) error {
	for _, name := range []string{f.Key, f.Cert, f.CA} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
	}
	if err := control.WriteFile(f.Key, keyPEM, 0o600); err != nil {
		return err
	}
	if err := control.WriteFile(f.Cert, ChainPEM(chain), 0o644); err != nil {
		return err
	}
	return control.WriteFile(f.CA, pemOf("CERTIFICATE", root.Raw), 0o644)
}
