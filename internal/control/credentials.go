package control

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// Credentials are the certificate and key by which a daemon is known, and the
// grid's CA by which it knows the others. Safe for concurrent use.
type Credentials struct {
	id    Identity
	cert  tls.Certificate
	roots *x509.CertPool
	now   func() time.Time
}

// LoadCredentials reads a certificate, its key and the grid's CA certificate,
// all PEM. It fails, naming the file, when they do not fit each other or the
// certificate is not valid now.
func LoadCredentials(certFile, keyFile, caFile string) (*Credentials, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	caPEM, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	c, err := NewCredentials(certPEM, keyPEM, caPEM)
	if err != nil {
		return nil, fmt.Errorf("%s, %s, %s: %w", certFile, keyFile, caFile, err)
	}
	return c, nil
}

// NewCredentials is LoadCredentials from memory.
func NewCredentials(certPEM, keyPEM, caPEM []byte) (*Credentials, error) {
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(caPEM) {
		return nil, errors.New("the CA file holds no PEM certificate")
	}
	c := &Credentials{cert: cert, roots: roots, now: time.Now}
	if c.id, err = c.verify(cert.Certificate); err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	return c, nil
}

// Identity returns who these credentials say one is.
func (c *Credentials) Identity() Identity { return c.id }

// verify checks a presented chain against the grid's CA and returns whose it
// is. The error is for people: it says which certificate, why and what to do.
func (c *Credentials) verify(chain [][]byte) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, errors.New("no certificate was presented")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return Identity{}, fmt.Errorf("the certificate cannot be read: %w", err)
	}
	id, err := IdentityOf(leaf)
	if err != nil {
		return Identity{}, err
	}
	intermediates := x509.NewCertPool()
	for _, der := range chain[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(cert)
		}
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: c.roots, Intermediates: intermediates, CurrentTime: c.now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	var invalid x509.CertificateInvalidError
	var foreign x509.UnknownAuthorityError
	switch now := c.now(); {
	case err == nil:
		return id, nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(leaf.NotBefore):
		return id, fmt.Errorf("the certificate of %v is not valid before %v; is this clock right?", id, leaf.NotBefore.UTC().Format(time.RFC3339))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return id, fmt.Errorf("the certificate of %v expired at %v; issue a new one", id, leaf.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &foreign):
		return id, fmt.Errorf("the certificate of %v was not issued by this grid's CA", id)
	default:
		return id, fmt.Errorf("the certificate of %v: %w", id, err)
	}
}

// User checks a chain against the grid's CA, as those of sessions are checked, and
// returns the user of the grid whose it is, and for which projects that user may
// work.
func (c *Credentials) User(chain [][]byte) (name string, projects []string, err error) {
	id, err := c.verify(chain)
	if err != nil {
		return "", nil, err
	}
	if id.Role != RoleUser {
		return "", nil, fmt.Errorf("the certificate is that of %v, not of a user", id)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return "", nil, err
	}
	projects, err = ProjectsOf(leaf)
	return id.Name, projects, err
}

// serverTLS accepts any client certificate: the session checks it afterwards,
// so that it can tell the client in words why it is refused. Nothing else is
// done for a client before that.
func (c *Credentials) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{c.cert},
		ClientAuth:   tls.RequireAnyClientCert,
		NextProtos:   []string{alpn},
	}
}

// clientTLS checks that the server holds role want. The check replaces that of
// the host name: a grid's daemons are known by role and name, wherever they
// listen.
func (c *Credentials) clientTLS(want Role, name string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{c.cert},
		ServerName:         name, // for front ends that choose by SNI
		NextProtos:         []string{alpn},
		InsecureSkipVerify: true, // VerifyConnection below does it
		VerifyConnection: func(state tls.ConnectionState) error {
			id, err := c.verify(rawChain(state))
			if err != nil {
				return err
			}
			if id.Role != want {
				return fmt.Errorf("this is %v, wanted a %v", id, want)
			}
			return nil
		},
	}
}

const alpn = "isthmus-control"

func rawChain(state tls.ConnectionState) [][]byte {
	var chain [][]byte
	for _, cert := range state.PeerCertificates {
		chain = append(chain, cert.Raw)
	}
	return chain
}
