package control

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Credentials are a daemon's certificate and key, and the grid's CA and revocation list, by which
// it authenticates others. Credentials from files follow changes to the files: a new certificate of
// the same holder is used from the next handshake on. Safe for concurrent use.
type Credentials struct {
	id    Identity
	files credentialFiles
	roots []*x509.Certificate
	pool  *x509.CertPool // the roots
	now   func() time.Time
	lists *Revocations

	mu        sync.Mutex // guards the fields below
	cert      *tls.Certificate
	seen      digest // of the files in use
	lastFault string // the last reported fault of the files
}

// credentialFiles are the paths of credentials; empty for those from memory.
type credentialFiles struct{ cert, key string }

// digest identifies the content of the certificate and key files. A file's modification time does
// not: two certificates may be written within one tick of its clock.
type digest [2][sha256.Size]byte

func digestOf(certPEM, keyPEM []byte) digest {
	return digest{sha256.Sum256(certPEM), sha256.Sum256(keyPEM)}
}

// LoadCredentials reads a certificate with its chain to the grid's CA, its key and the grid's CA
// certificate, all PEM. It fails with a *FileFault when one of them is not what it should be, they do
// not match, or the certificate is not valid now.
func LoadCredentials(certFile, keyFile, caFile string) (*Credentials, error) {
	files := credentialFiles{certFile, keyFile}
	certPEM, keyPEM, err := files.read()
	if err != nil {
		return nil, err
	}
	caPEM, err := readPEM(caFile)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	c, err := NewCredentials(certPEM, keyPEM, caPEM)
	if f, ok := errors.AsType[*FileFault](err); ok {
		f.File = map[string]string{"cert": certFile, "key": keyFile, "ca": caFile}[f.Key]
	}
	if err != nil {
		return nil, err
	}
	c.files, c.seen = files, digestOf(certPEM, keyPEM)
	return c, nil
}

func (f credentialFiles) read() (certPEM, keyPEM []byte, err error) {
	if certPEM, err = readPEM(f.cert); err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	if keyPEM, err = readPEM(f.key); err != nil {
		return nil, nil, fmt.Errorf("key: %w", err)
	}
	return certPEM, keyPEM, nil
}

// NewCredentials is LoadCredentials from memory.
func NewCredentials(certPEM, keyPEM, caPEM []byte) (*Credentials, error) {
	known := func(text []byte) []byte { return append([]byte{}, text...) } // never nil
	c, faults := pemTexts{known(certPEM), known(keyPEM), known(caPEM)}.parse(time.Now)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	return c, nil
}

// Identity returns the holder of these credentials.
func (c *Credentials) Identity() Identity { return c.id }

// Roots returns the certificates of the grid's CA. The caller must not modify them.
func (c *Credentials) Roots() []*x509.Certificate { return c.roots }

// Revocations returns the revocation list in use.
func (c *Credentials) Revocations() *Revocations { return c.lists }

// Certificate returns the certificate in use, with its chain and key.
func (c *Credentials) Certificate() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cert
}

// Leaf returns the certificate in use.
func (c *Credentials) Leaf() *x509.Certificate { return c.Certificate().Leaf }

// Refresh reads the certificate and key again if their files changed, and adopts them if they have
// the same holder, belong to this grid and are valid. On an error the old ones stay in use; the
// same error is returned only once.
func (c *Credentials) Refresh() (taken bool, err error) {
	if c.files == (credentialFiles{}) {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	taken, err = c.refresh()
	return taken, c.announce(err)
}

// announce returns err unless it was the last error returned. The caller must hold mu.
func (c *Credentials) announce(err error) error {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == c.lastFault {
		err = nil
	}
	c.lastFault = text
	return err
}

// refresh is Refresh. The caller must hold mu.
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
		return fail(fmt.Errorf("it is that of %v, but this is %v; restart the daemon to change its identity", own.Identity, c.id))
	}
	c.cert, c.seen = &cert, seen
	return true, nil
}

// Proof is the content of a verified chain of certificates.
type Proof struct {
	Identity
	Enrolled time.Time         // see Enrolled
	Leaf     *x509.Certificate // the leaf, which carries the identity
	serials  []*big.Int        // of the leaf and of those between it and the root
}

// Verify checks a chain in DER, the leaf first, against the grid's CA and its revocation list, at
// the current time. The error is for people: it says which certificate failed, why, and what to do.
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
	chains, err := VerifyWithSkew(fmt.Sprintf("the certificate of %v", id), leaf, x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return p, err
	}
	if len(chains[0]) < 2 {
		return p, fmt.Errorf("the certificate of %v is taken for the CA's: it is in the file of the CA's certificate, where it must not be", id)
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

// notNowError says why a chain that is valid at another time is not valid now.
type notNowError string

func (e notNowError) Error() string { return string(e) }

func isNotNow(err error) bool {
	var e notNowError
	return errors.As(err, &e)
}

// errForeign is the end of the error of a chain that does not lead to the CA.
var errForeign = errors.New("was not issued by this grid's CA")

// VerifyWithSkew is cert.Verify with tolerance for clock skew: it accepts a chain that is valid at a
// time at most overlay.MaxAhead after opts.CurrentTime, and at most overlay.MaxLate before it. The
// error calls the certificate what.
func VerifyWithSkew(what string, cert *x509.Certificate, opts x509.VerifyOptions) ([][]*x509.Certificate, error) {
	now, bad := opts.CurrentTime, (*x509.Certificate)(nil) // the first certificate that is not valid now
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
		return nil, fmt.Errorf("%s %w", what, errForeign)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired: // there is no time at which all are valid
		return nil, errors.New(words())
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	case opts.CurrentTime.Sub(now) > overlay.MaxAhead, now.Sub(opts.CurrentTime) > overlay.MaxLate:
		return nil, notNowError(words())
	}
	return chains, nil
}

// maxChain bounds the certificates of a chain that are considered: a holder's, an issuer's and the
// root's, and one to spare.
const maxChain = 4

// Marks in certificates besides an identity, in subject alternative names of type URI.
const (
	enrolledScheme = "isthmus-enrolled" // isthmus-enrolled:UNIXMILLISECONDS
	issuerScheme   = "isthmus-issuer"   // isthmus-issuer:ROLE
)

// EnrolledURI returns the mark of a certificate that was enrolled at the given time.
func EnrolledURI(at time.Time) *url.URL {
	return &url.URL{Scheme: enrolledScheme, Opaque: strconv.FormatInt(at.UnixMilli(), 10)}
}

// NotRenewedURI returns the mark of a certificate that cannot be renewed, for a subject alternative
// name: its holder must enrol again with what it was issued for.
func NotRenewedURI() *url.URL { return &url.URL{Scheme: "isthmus-renewal", Opaque: "none"} }

// Renewable reports whether the holder of a certificate may renew it.
func Renewable(cert *x509.Certificate) bool {
	for _, u := range cert.URIs {
		if u.String() == NotRenewedURI().String() {
			return false
		}
	}
	return true
}

// Enrolled returns the time of a certificate's enrolment: when the CA's admin issued it, or the
// token for it. A renewed certificate keeps the time of the first, so that the thief of a key
// cannot evade a revocation by renewing. A certificate without the mark counts from the start of
// its validity.
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

// IssuerURI returns the mark of an issuing certificate below the root that may issue for holders of
// a role.
func IssuerURI(role Role) *url.URL {
	return &url.URL{Scheme: issuerScheme, Opaque: role.String()}
}

// IssuerRoles returns the roles that an issuing certificate may issue for: none if it is not one.
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

// User verifies a chain against the grid's CA, in the same way as for sessions, and returns the
// grid user that holds it, and the projects for which that user may work.
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

// serverTLS accepts any client certificate: the session verifies it after the handshake, so that it
// can send the client the reason for a refusal. Nothing else is done for a client before that. With
// enrol, a client that selects enrolment needs no certificate, and receives the root's besides this
// daemon's. With data, a client that selects data frames needs none either.
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

// clientTLS verifies that the server has the role want. That replaces the verification of the host
// name: a grid's daemons are identified by role and name, wherever they listen. A server of the
// grid whose certificate is not valid now is refused after the handshake, with the reason in a
// message (exchange): its clock may be wrong.
func (c *Credentials) clientTLS(want Role, name string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{*c.Certificate()},
		ServerName:         name, // for front ends that route by SNI
		NextProtos:         []string{alpn},
		InsecureSkipVerify: true, // replaced by VerifyConnection below
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := c.verifyRole(want)(state); !isNotNow(err) {
				return err
			}
			return nil
		},
	}
}

// verifyRole returns a function that verifies that a server's certificate is that of a daemon with one
// of the roles.
func (c *Credentials) verifyRole(roles ...Role) func(tls.ConnectionState) error {
	return c.verifyServer("a "+roles[0].String(), func(id Identity) bool { return slices.Contains(roles, id.Role) })
}

func (c *Credentials) verifyServer(wanted string, is func(Identity) bool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		p, err := c.verify(rawChain(state))
		if (err == nil || isNotNow(err)) && !is(p.Identity) {
			return fmt.Errorf("this is %v, wanted %s", p.Identity, wanted)
		}
		return err
	}
}

// DataALPN is the application protocol of a connection that carries data frames inside TLS
// (docs/protocol.md).
const DataALPN = "isthmus-data"

// DataServer returns the TLS settings of a daemon that accepts data frames inside TLS. It requests
// no certificate: the frames authorise the client.
func (c *Credentials) DataServer() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*c.Certificate()},
		NextProtos: []string{DataALPN}, SessionTicketsDisabled: true,
	}
}

// DataClient returns the TLS settings to send data frames to a daemon with one of the roles. Its
// certificate is verified in the same way as for sessions.
func (c *Credentials) DataClient(roles ...Role) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{DataALPN},
		InsecureSkipVerify: true, // replaced by VerifyConnection
		VerifyConnection:   c.verifyRole(roles...),
	}
}

// DataClientOf is DataClient for one daemon alone.
func (c *Credentials) DataClientOf(want Identity) *tls.Config {
	cfg := c.DataClient(want.Role)
	cfg.VerifyConnection = c.verifyServer(want.String(), func(id Identity) bool { return id == want })
	return cfg
}

const alpn = "isthmus-control"

// EnrolALPN is the application protocol of a connection on which a client requests a certificate
// (docs/protocol.md).
const EnrolALPN = "isthmus-enrol"

func rawChain(state tls.ConnectionState) [][]byte {
	var chain [][]byte
	for _, cert := range state.PeerCertificates {
		chain = append(chain, cert.Raw)
	}
	return chain
}

// Replace writes a new certificate with its chain, PEM, for the same key to the file of the old
// one, and adopts it.
func (c *Credentials) Replace(certPEM []byte) error {
	if c.files.cert == "" {
		return errors.New("these credentials have no file")
	}
	c.mu.Lock() // a Refresh in between would adopt it and leave nothing to this one
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
