package control

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Credentials are the certificate and key by which a daemon is known, and the
// grid's CA and revocation list by which it knows the others. Those that were
// read from files follow them: a new certificate of the same holder is shown
// from the next hand-shake on. Safe for concurrent use.
type Credentials struct {
	id    Identity
	files credentialFiles
	roots []*x509.Certificate
	pool  *x509.CertPool // the roots
	now   func() time.Time
	lists *Revocations

	mu   sync.Mutex // guards the fields below
	cert *tls.Certificate
	seen digest // of the files in use
	told string // the fault of the files that was reported last
}

// credentialFiles are where credentials come from; empty for those from memory.
type credentialFiles struct{ cert, key string }

// digest tells one content of the certificate and key from the next. A file's
// time does not: two certificates may be written within one tick of its clock.
type digest [2][sha256.Size]byte

func digestOf(certPEM, keyPEM []byte) digest {
	return digest{sha256.Sum256(certPEM), sha256.Sum256(keyPEM)}
}

// LoadCredentials reads a certificate with those that lead from it to the
// grid's CA, its key and the grid's CA certificate, all PEM. It fails, naming the
// file, when they do not fit each other or the certificate is not valid now.
func LoadCredentials(certFile, keyFile, caFile string) (*Credentials, error) {
	files := credentialFiles{certFile, keyFile}
	certPEM, keyPEM, err := files.read()
	if err != nil {
		return nil, err
	}
	caPEM, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	c, err := NewCredentials(certPEM, keyPEM, caPEM)
	if err != nil {
		return nil, fmt.Errorf("%s, %s, %s: %w", certFile, keyFile, caFile, err)
	}
	c.files, c.seen = files, digestOf(certPEM, keyPEM)
	return c, nil
}

func (f credentialFiles) read() (certPEM, keyPEM []byte, err error) {
	if certPEM, err = os.ReadFile(f.cert); err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	if keyPEM, err = os.ReadFile(f.key); err != nil {
		return nil, nil, fmt.Errorf("key: %w", err)
	}
	return certPEM, keyPEM, nil
}

// NewCredentials is LoadCredentials from memory.
func NewCredentials(certPEM, keyPEM, caPEM []byte) (*Credentials, error) {
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	c := &Credentials{cert: &cert, pool: x509.NewCertPool(), now: time.Now}
	if c.roots, err = ParseRoots(caPEM); err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	for _, root := range c.roots {
		c.pool.AddCert(root)
	}
	c.lists = newRevocations(c.roots)
	own, err := c.verify(cert.Certificate)
	if err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	c.id = own.Identity
	return c, nil
}

// Identity returns who these credentials say one is.
func (c *Credentials) Identity() Identity { return c.id }

// Roots returns the certificates of the grid's CA. They are not to be changed.
func (c *Credentials) Roots() []*x509.Certificate { return c.roots }

// Revocations returns the revocation list that these credentials judge by.
func (c *Credentials) Revocations() *Revocations { return c.lists }

// Certificate returns the certificate that is shown now, with its chain and key.
func (c *Credentials) Certificate() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cert
}

// Leaf returns the certificate that is shown now.
func (c *Credentials) Leaf() *x509.Certificate { return c.Certificate().Leaf }

// Refresh reads the certificate and key anew if their files changed, and takes
// them over if they are fit: of the same holder, of this grid and valid. With an
// error the old ones stay in use; the same error is returned once.
func (c *Credentials) Refresh() (taken bool, err error) {
	if c.files == (credentialFiles{}) {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	taken, err = c.refresh()
	return taken, c.announce(err)
}

// announce returns an error unless it was returned the last time, with mu held.
func (c *Credentials) announce(err error) error {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == c.told {
		err = nil
	}
	c.told = text
	return err
}

// refresh is Refresh with mu held.
func (c *Credentials) refresh() (taken bool, err error) {
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("%s, %s: the changed certificate is not taken over: %w", c.files.cert, c.files.key, err)
	}
	certPEM, keyPEM, err := c.files.read()
	if err != nil {
		return false, err
	}
	seen := digestOf(certPEM, keyPEM)
	if seen == c.seen {
		return false, nil
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fail(err) // perhaps only one of the two is written yet
	}
	own, err := c.verify(cert.Certificate)
	if err != nil {
		return fail(err)
	}
	if own.Identity != c.id {
		return fail(fmt.Errorf("it is that of %v, this is %v; restart the daemon to change who it is", own.Identity, c.id))
	}
	c.cert, c.seen = &cert, seen
	return true, nil
}

// Proof is what a chain of certificates proves.
type Proof struct {
	Identity
	Enrolled time.Time         // see Enrolled
	Leaf     *x509.Certificate // that carries the identity
	serials  []*big.Int        // of the leaf and of those between it and the root
}

// Verify checks a chain in DER, the leaf first, against the grid's CA and its
// revocation list, now. The error is for people: it says which certificate, why
// and what to do.
func (c *Credentials) Verify(chain [][]byte) (Proof, error) { return c.verify(chain) }

func (c *Credentials) verify(chain [][]byte) (Proof, error) {
	p, err := verifyChain(chain, c.pool, c.now())
	if err != nil {
		return p, err
	}
	return p, c.lists.judge(p)
}

// verifyChain is Verify without the revocation list.
func verifyChain(chain [][]byte, roots *x509.CertPool, now time.Time) (Proof, error) {
	if len(chain) == 0 {
		return Proof{}, errors.New("no certificate was presented")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return Proof{}, fmt.Errorf("the certificate cannot be read: %w", err)
	}
	id, err := IdentityOf(leaf)
	if err != nil {
		return Proof{}, err
	}
	p := Proof{Identity: id, Enrolled: Enrolled(leaf), Leaf: leaf, serials: []*big.Int{leaf.SerialNumber}}
	intermediates := x509.NewCertPool()
	for _, der := range chain[1:min(len(chain), maxChain)] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(cert)
		}
	}
	chains, err := VerifyNear(fmt.Sprintf("the certificate of %v", id), leaf, x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return p, err
	}
	between := chains[0][1 : len(chains[0])-1]
	for _, issuer := range between {
		if !slices.Contains(IssuerRoles(issuer), id.Role) {
			return p, fmt.Errorf("the certificate of %v was issued by %q, which may not issue for a %v", id, issuer.Subject.CommonName, id.Role)
		}
		p.serials = append(p.serials, issuer.SerialNumber)
	}
	return p, nil
}

// notNowError says of a chain that is good at another time why it is not now.
type notNowError string

func (e notNowError) Error() string { return string(e) }

func isNotNow(err error) bool {
	var e notNowError
	return errors.As(err, &e)
}

// VerifyNear is cert.Verify for clocks that differ: it takes a chain that is good at a time not
// more than overlay.MaxAhead after opts.CurrentTime, and not more than overlay.MaxLate
// before it. The error calls the certificate what.
func VerifyNear(what string, cert *x509.Certificate, opts x509.VerifyOptions) ([][]*x509.Certificate, error) {
	now, bad := opts.CurrentTime, (*x509.Certificate)(nil) // the first that is not valid now
	var chains [][]*x509.Certificate
	var err error
	var invalid x509.CertificateInvalidError
	for range maxChain {
		chains, err = cert.Verify(opts)
		if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
			break
		}
		if bad == nil {
			bad = invalid.Cert
		}
		if opts.CurrentTime.Before(invalid.Cert.NotBefore) {
			opts.CurrentTime = invalid.Cert.NotBefore
		} else {
			opts.CurrentTime = invalid.Cert.NotAfter
		}
	}
	words := func() string {
		if now.Before(bad.NotBefore) {
			return fmt.Sprintf("%s is not valid before %v: %s", what, bad.NotBefore.UTC().Format(time.RFC3339),
				overlay.ClocksDiffer("this host", "its issuer", bad.NotBefore.Sub(now)))
		}
		return fmt.Sprintf("%s expired at %v; issue a new one, or else %s", what, bad.NotAfter.UTC().Format(time.RFC3339),
			overlay.ClocksDiffer("this host", "its issuer", now.Sub(bad.NotAfter)))
	}
	var foreign x509.UnknownAuthorityError
	switch {
	case errors.As(err, &foreign):
		return nil, fmt.Errorf("%s was not issued by this grid's CA", what)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired: // there is no time at which all are valid
		return nil, errors.New(words())
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	case opts.CurrentTime.Sub(now) > overlay.MaxAhead, now.Sub(opts.CurrentTime) > overlay.MaxLate:
		return nil, notNowError(words())
	}
	return chains, nil
}

// maxChain bounds how many certificates of a chain are looked at: a holder's,
// an issuer's and the root's, and one for good measure.
const maxChain = 4

// Marks in certificates besides an identity, in subject alternative names of
// type URI.
const (
	enrolledScheme = "isthmus-enrolled" // isthmus-enrolled:UNIXMILLISECONDS
	issuerScheme   = "isthmus-issuer"   // isthmus-issuer:ROLE
)

// EnrolledURI returns the mark of a certificate that goes back to the given
// time.
func EnrolledURI(at time.Time) *url.URL {
	return &url.URL{Scheme: enrolledScheme, Opaque: strconv.FormatInt(at.UnixMilli(), 10)}
}

// NotRenewedURI returns the mark of a certificate that is not renewed, for a
// subject alternative name: its holder shows again what it was given for.
func NotRenewedURI() *url.URL { return &url.URL{Scheme: "isthmus-renewal", Opaque: "none"} }

// Renewable reports whether a certificate may be renewed by whoever holds it.
func Renewable(cert *x509.Certificate) bool {
	for _, u := range cert.URIs {
		if u.String() == NotRenewedURI().String() {
			return false
		}
	}
	return true
}

// Enrolled returns the time that a certificate goes back to: when the CA's
// keeper gave it, or the token for it, out. One that was renewed keeps the time
// of the first, so that whoever stole a key does not get past a revocation by
// renewing. Certificates without the mark go back to the start of their validity.
func Enrolled(cert *x509.Certificate) time.Time {
	for _, u := range cert.URIs {
		if u.Scheme == enrolledScheme {
			if ms, err := strconv.ParseInt(u.Opaque, 10, 64); err == nil {
				return time.UnixMilli(ms)
			}
		}
	}
	return cert.NotBefore
}

// IssuerURI returns the mark of an issuing certificate below the root that may
// issue for holders of a role.
func IssuerURI(role Role) *url.URL {
	return &url.URL{Scheme: issuerScheme, Opaque: role.String()}
}

// IssuerRoles returns the roles that an issuing certificate may issue for: none
// if it is not one.
func IssuerRoles(cert *x509.Certificate) []Role {
	var roles []Role
	for _, u := range cert.URIs {
		if u.Scheme != issuerScheme {
			continue
		}
		if r, err := ParseRole(u.Opaque); err == nil {
			roles = append(roles, r)
		}
	}
	return roles
}

// User checks a chain against the grid's CA, as those of sessions are checked, and
// returns the user of the grid whose it is, and for which projects that user may
// work.
func (c *Credentials) User(chain [][]byte) (name string, projects []string, err error) {
	p, err := c.verify(chain)
	if err != nil {
		return "", nil, err
	}
	if p.Role != RoleUser {
		return "", nil, fmt.Errorf("the certificate is that of %v, not of a user", p.Identity)
	}
	projects, err = ProjectsOf(p.Leaf)
	return p.Name, projects, err
}

// serverTLS accepts any client certificate: the session checks it afterwards,
// so that it can tell the client in words why it is refused. Nothing else is
// done for a client before that. With enrol, a client that says it wants to be
// enrolled needs no certificate, and is shown the root's besides this daemon's.
// With data, one that brings data frames needs none either.
func (c *Credentials) serverTLS(enrol, data bool) *tls.Config {
	own := c.Certificate()
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{*own},
		ClientAuth:   tls.RequireAnyClientCert,
		NextProtos:   []string{alpn},
	}
	if enrol || data {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			switch {
			case data && slices.Contains(hello.SupportedProtos, DataALPN):
				return c.DataServer(), nil
			case !enrol || !slices.Contains(hello.SupportedProtos, EnrolALPN):
				return nil, nil
			}
			whole := *own
			whole.Certificate = slices.Clone(own.Certificate)
			for _, root := range c.roots {
				whole.Certificate = append(whole.Certificate, root.Raw)
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{whole},
				ClientAuth: tls.RequestClientCert, NextProtos: []string{EnrolALPN},
			}, nil
		}
	}
	return cfg
}

// clientTLS checks that the server holds role want. The check replaces that of
// the host name: a grid's daemons are known by role and name, wherever they
// listen. A server of the grid whose certificate is not valid now is refused after the
// hand-shake, in words (exchange): its clock may be what is wrong.
func (c *Credentials) clientTLS(want Role, name string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{*c.Certificate()},
		ServerName:         name, // for front ends that choose by SNI
		NextProtos:         []string{alpn},
		InsecureSkipVerify: true, // VerifyConnection below does it
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := c.holds(want)(state); !isNotNow(err) {
				return err
			}
			return nil
		},
	}
}

// holds returns a check that a server shows the certificate of a daemon of one of
// the roles.
func (c *Credentials) holds(roles ...Role) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		p, err := c.verify(rawChain(state))
		if (err == nil || isNotNow(err)) && !slices.Contains(roles, p.Role) {
			return fmt.Errorf("this is %v, wanted a %v", p.Identity, roles[0])
		}
		return err
	}
}

// DataALPN is the application protocol of a connection that carries data frames
// inside of TLS (docs/protocol.md).
const DataALPN = "isthmus-data"

// DataServer returns the TLS settings of a daemon that accepts data frames inside
// of TLS. It asks for no certificate: the frames say what the client may do.
func (c *Credentials) DataServer() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*c.Certificate()},
		NextProtos: []string{DataALPN}, SessionTicketsDisabled: true,
	}
}

// DataClient returns the TLS settings to send data frames to a daemon of one of
// the roles. Its certificate is checked as those of sessions are.
func (c *Credentials) DataClient(roles ...Role) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{DataALPN},
		InsecureSkipVerify: true, // VerifyConnection does it
		VerifyConnection:   c.holds(roles...),
	}
}

const alpn = "isthmus-control"

// EnrolALPN is the application protocol of a connection on which somebody asks
// for a certificate (docs/protocol.md).
const EnrolALPN = "isthmus-enrol"

func rawChain(state tls.ConnectionState) [][]byte {
	var chain [][]byte
	for _, cert := range state.PeerCertificates {
		chain = append(chain, cert.Raw)
	}
	return chain
}

// Replace puts a new certificate with its chain, PEM, for the same key into the
// file of the old one, and takes it over.
func (c *Credentials) Replace(certPEM []byte) error {
	if c.files.cert == "" {
		return errors.New("these credentials have no file")
	}
	c.mu.Lock() // a Refresh between the two would take it over and leave nothing to this one
	defer c.mu.Unlock()
	if err := WriteFile(c.files.cert, certPEM, 0o644); err != nil {
		return fmt.Errorf("the new certificate cannot be kept: %w; the daemon's user must own the folder, or renew it with isthmus ca renew", err)
	}
	taken, err := c.refresh()
	if err == nil && !taken {
		err = fmt.Errorf("the certificate put into %s is the one in use already", c.files.cert)
	}
	return err
}
