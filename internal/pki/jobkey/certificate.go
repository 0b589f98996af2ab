package jobkey

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// How long a process's certificate is valid: from ClockSlack before its creation to ClockSlack
// after its renewal, so that peers whose clocks differ by less accept each other's certificates. It
// is renewed when half of certificateLife is over; as every process can sign its own, a renewal
// waits for nothing. A holder of the secret can create any certificate of the job, so a shorter
// validity would exclude only hosts whose clocks are wrong.
const (
	certificateLife = 2 * ClockSlack

	// ClockSlack is the maximum difference between the clocks of two processes.
	ClockSlack = 12 * time.Hour
)

// Why Verify refuses a certificate, beside overlay.ErrForbidden.
var (
	// ErrNotValidNow: it has expired, or is not valid yet, according to this host's clock.
	ErrNotValidNow = errors.New("certificate not valid at this time")

	// ErrOtherKey: it was created with another job's key.
	ErrOtherKey = errors.New("certificate made with another job's key")
)

// refused is an error of a class, with a more specific text.
type refused struct {
	class error
	text  string
}

func refuse(class error, format string, args ...any) error {
	return &refused{class, fmt.Sprintf(format, args...)}
}

func (r *refused) Error() string { return r.text }
func (r *refused) Unwrap() error { return r.class }

// Member is the process, its job and its generation that a certificate names.
type Member struct {
	Process    overlay.ProcessName
	Generation overlay.Generation
}

// String names the process, and its generation if it is not the first.
func (m Member) String() string {
	if m.Generation == 0 {
		return m.Process.String()
	}
	return fmt.Sprintf("%v, life %d", m.Process, m.Generation)
}

// uriPrefix begins the name in a member's certificate. A daemon's certificate has a role instead of
// "process", so the two cannot be confused.
const uriPrefix = "isthmus:process/"

// uri returns the member as in its certificate, in a subject alternative name of type URI (RFC
// 5280, section 4.2.1.6): isthmus:process/JOB/RANK/GENERATION, numbers in decimal.
func (m Member) uri() string {
	return fmt.Sprintf("%s%s/%d/%d", uriPrefix, m.Process.Job, m.Process.Rank, m.Generation)
}

// memberOf reads the only name in a member's certificate. There is one spelling of each member; no
// other is accepted.
func memberOf(cert *x509.Certificate) (Member, error) {
	if len(cert.URIs) != 1 || !strings.HasPrefix(cert.URIs[0].String(), uriPrefix) {
		return Member{}, fmt.Errorf("the certificate of %.100q does not name one process of a job", cert.Subject.String())
	}
	text := cert.URIs[0].String()
	parts := strings.Split(strings.TrimPrefix(text, uriPrefix), "/")
	malformed := fmt.Errorf("the certificate names %.200q, want %sJOB/RANK/GENERATION", text, uriPrefix)
	if len(parts) != 3 || overlay.CheckJobID(overlay.JobID(parts[0])) != nil {
		return Member{}, malformed
	}
	rank, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return Member{}, malformed
	}
	generation, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return Member{}, malformed
	}
	m := Member{
		Process:    overlay.ProcessName{Job: overlay.JobID(parts[0]), Rank: uint32(rank)},
		Generation: overlay.Generation(generation),
	}
	if m.uri() != text {
		return Member{}, malformed
	}
	return m, nil
}

// Certificates holds a process's own certificate and verifies those of its peers: short-lived
// certificates, signed by an authority that is derived from the job's key. All holders of the key
// derive the same authority, so nothing needs to be distributed. A holder can sign for every rank,
// so this excludes outsiders and prevents confusion of ranks, but does not protect the processes of
// one job from each other.
//
// Safe for concurrent use.
type Certificates struct {
	self      Member
	authority *x509.Certificate
	signer    ed25519.PrivateKey
	roots     *x509.CertPool
	now       func() time.Time

	mu   sync.Mutex
	own  *tls.Certificate
	till time.Time // when own is due for renewal
}

// Certificates derives the job's authority and creates the certificate of the process of the given
// rank and generation.
func (k Key) Certificates(rank uint32, generation overlay.Generation) (*Certificates, error) {
	return k.CertificatesBy(time.Now, rank, generation)
}

// CertificatesBy is Certificates with another clock than the host's.
func (k Key) CertificatesBy(now func() time.Time, rank uint32, generation overlay.Generation) (*Certificates, error) {
	signer := ed25519.NewKeyFromSeed(k.derive("isthmus v1 job certificate authority"))
	authority, err := authorityOf(k.ID(), signer)
	if err != nil {
		return nil, fmt.Errorf("certificates of job %s: %w", k.ID(), err)
	}
	c := &Certificates{
		self:      Member{Process: overlay.ProcessName{Job: k.ID(), Rank: rank}, Generation: generation},
		authority: authority, signer: signer, roots: x509.NewCertPool(), now: now,
	}
	c.roots.AddCert(authority)
	_, err = c.Certificate()
	return c, err
}

// authorityOf returns the authority's own certificate. Every byte of it is derived from the job's
// key: Ed25519 signatures are deterministic, and its validity is unlimited, since only the secrecy
// of the key matters.
func authorityOf(job overlay.JobID, signer ed25519.PrivateKey) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "Isthmus job " + job.Name()},
		NotBefore:             time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "never", RFC 5280 section 4.1.2.5
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(nil, template, template, signer.Public(), signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Self returns the member that the own certificate names.
func (c *Certificates) Self() Member { return c.self }

// Certificate returns the own certificate and its key, a new one when half the life of the last is
// over. The caller must not modify it.
func (c *Certificates) Certificate() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.own == nil || !now.Before(c.till) {
		own, err := c.issue(now)
		if err != nil {
			return nil, fmt.Errorf("certificate of %v: %w", c.self, err)
		}
		c.own, c.till = own, now.Add(certificateLife/2)
	}
	return c.own, nil
}

func (c *Certificates) issue(now time.Time) (*tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	name, err := url.Parse(c.self.uri())
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{ // without a serial number, a random one is chosen
		Subject:               pkix.Name{CommonName: fmt.Sprintf("rank %d", c.self.Process.Rank)},
		NotBefore:             now.Add(-ClockSlack),
		NotAfter:              now.Add(certificateLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.authority, public, c.signer)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, nil
}

// Verify returns the process of this job that a presented chain belongs to (DER, the process's own
// certificate first; the rest is ignored). It fails with overlay.ErrForbidden and a readable text
// if the certificate is not of this job, not valid now, or malformed, and in the first two cases
// also with ErrOtherKey or ErrNotValidNow.
func (c *Certificates) Verify(chain [][]byte) (Member, error) {
	m, err := c.verify(chain)
	if err != nil {
		return Member{}, fmt.Errorf("%w: %w", overlay.ErrForbidden, err)
	}
	return m, nil
}

func (c *Certificates) verify(chain [][]byte) (Member, error) {
	if len(chain) == 0 {
		return Member{}, errors.New("no certificate was presented")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return Member{}, fmt.Errorf("the certificate cannot be read: %w", err)
	}
	m, err := memberOf(leaf)
	if err != nil {
		return Member{}, err
	}
	if m.Process.Job != c.self.Process.Job {
		return Member{}, refuse(ErrOtherKey, "the certificate is of %v, this process belongs to job %s", m, c.self.Process.Job)
	}
	now := c.now()
	_, err = leaf.Verify(x509.VerifyOptions{Roots: c.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return m, nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(leaf.NotBefore):
		return Member{}, refuse(ErrNotValidNow, "the certificate of %v is not valid before %s: %s", m, leaf.NotBefore.UTC().Format(time.RFC3339),
			overlay.ClocksDiffer("this node", "its node", leaf.NotBefore.Sub(now)))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return Member{}, refuse(ErrNotValidNow, "the certificate of %v expired at %s: %s", m, leaf.NotAfter.UTC().Format(time.RFC3339),
			overlay.ClocksDiffer("this node", "its node", now.Sub(leaf.NotAfter)))
	}
	return Member{}, refuse(ErrOtherKey, "the certificate of %v was not made with this job's key: %v", m, err)
}
