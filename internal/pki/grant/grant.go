// Package grant implements a user's signed statement about one job: "job J works for me, for
// project P, until T", signed by the key of a user's certificate, which is part of it. The
// processes of the job send it to the broker, the only one to verify it; daemons between pass it on
// unread.
//
// A grant is valid for its job only, and a job's id can be claimed only by a holder of the job's
// key: so a stolen grant is useless. The package has no sockets, files or clock, and keeps no
// state. docs/protocol.md has the layout.
package grant

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Env is the environment variable that carries a job's grant, in the form of
// Text, to its processes.
const Env = "ISTHMUS_GRANT"

// MaxLife is the maximum lifetime of a grant. Its expiry is checked against the broker's clock; its
// start may be up to overlay.MaxAhead ahead of that clock.
const MaxLife = 31 * 24 * time.Hour

const (
	version  = 1
	maxChain = 4 // certificates
	signedAs = "isthmus grant v1\x00"
)

// ErrExpired is the overlay.ErrForbidden of an expired grant that is otherwise valid.
var ErrExpired = fmt.Errorf("%w", overlay.ErrForbidden)

// Claims is the content of a grant.
type Claims struct {
	Job     overlay.JobID
	Project string // empty for none
	Issued  time.Time
	Expires time.Time
}

// Check returns an error if the claims are invalid in themselves.
func (c Claims) Check() error {
	if err := overlay.CheckJobID(c.Job); err != nil {
		return err
	}
	if c.Project != "" {
		if err := overlay.CheckName("project", c.Project); err != nil {
			return err
		}
	}
	if life := c.Expires.Sub(c.Issued); life <= 0 || life > MaxLife {
		return fmt.Errorf("a grant for %v; want more than 0 and at most %v", life, MaxLife)
	}
	return nil
}

// Grant is a parsed grant. Its contents are not verified before Judge.
type Grant struct {
	Claims
	chain     [][]byte // DER, the user's certificate first
	signed    []byte   // what the signature covers, besides signedAs
	signature []byte
}

// Issue signs claims with the key of a user's certificate, whose chain is given in DER, that
// certificate first. Times are truncated to whole seconds. The result has at most wire.MaxGrant
// bytes.
func Issue(c Claims, chain [][]byte, key crypto.Signer) ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	if len(chain) == 0 || len(chain) > maxChain {
		return nil, fmt.Errorf("grant: a chain of %d certificates, want 1 to %d", len(chain), maxChain)
	}
	b := []byte{version}
	b = append(append(b, byte(len(c.Job))), c.Job...)
	b = append(append(b, byte(len(c.Project))), c.Project...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Issued.Unix()))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Expires.Unix()))
	b = append(b, byte(len(chain)))
	for _, der := range chain {
		b = append(binary.BigEndian.AppendUint16(b, uint16(min(len(der), 1<<16-1))), der...)
	}
	signature, err := sign(key, b)
	if err != nil {
		return nil, err
	}
	b = append(append(b, byte(len(signature))), signature...)
	if len(b) > wire.MaxGrant {
		return nil, fmt.Errorf("grant: %d bytes, at most %d fit; does the certificate name very many projects?", len(b), wire.MaxGrant)
	}
	return b, nil
}

func sign(key crypto.Signer, claims []byte) ([]byte, error) {
	message := append([]byte(signedAs), claims...)
	switch key.Public().(type) {
	case ed25519.PublicKey:
		return key.Sign(rand.Reader, message, crypto.Hash(0))
	case *ecdsa.PublicKey:
		sum := sha256.Sum256(message)
		return key.Sign(rand.Reader, sum[:], crypto.SHA256)
	}
	return nil, fmt.Errorf("grant: a key of type %T; want ECDSA or Ed25519", key.Public())
}

func verified(key any, claims, signature []byte) bool {
	message := append([]byte(signedAs), claims...)
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, message, signature)
	case *ecdsa.PublicKey:
		sum := sha256.Sum256(message)
		return ecdsa.VerifyASN1(key, sum[:], signature)
	}
	return false
}

// Text returns a grant as one line.
func Text(grant []byte) string { return base64.RawURLEncoding.EncodeToString(grant) }

// FromText parses the form of Text. It checks the grant's form only.
func FromText(s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimSpace(s))
	if err != nil {
		return nil, errors.New("grant: not the line that `isthmus job grant` prints; was it cut?")
	}
	if _, err := Parse(b); err != nil {
		return nil, err
	}
	return b, nil
}

// Parse parses a grant. The result shares memory with b.
func Parse(b []byte) (*Grant, error) {
	if len(b) > wire.MaxGrant {
		return nil, fmt.Errorf("grant: %d bytes, at most %d are allowed", len(b), wire.MaxGrant)
	}
	r := reader{remaining: b}
	if v := r.take(1); v != nil && v[0] != version {
		return nil, fmt.Errorf("grant: version %d, this side knows %d", v[0], version)
	}
	var g Grant
	g.Job = overlay.JobID(r.take(r.length(1)))
	g.Project = string(r.take(r.length(1)))
	g.Issued, g.Expires = r.time(), r.time()
	n := r.length(1)
	if n < 1 || n > maxChain {
		return nil, fmt.Errorf("grant: a chain of %d certificates, want 1 to %d", n, maxChain)
	}
	for range n {
		g.chain = append(g.chain, r.take(r.length(2)))
	}
	g.signed = b[:len(b)-len(r.remaining)]
	g.signature = r.take(r.length(1))
	if r.short || len(r.remaining) > 0 {
		return nil, errors.New("grant: it is cut, or longer than it says")
	}
	if err := g.Check(); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	return &g, nil
}

// reader parses a grant and records whether it was too short.
type reader struct {
	remaining []byte
	short     bool
}

func (r *reader) take(n int) []byte {
	if r.short || n > len(r.remaining) {
		r.short = true
		return nil
	}
	b := r.remaining[:n:n]
	r.remaining = r.remaining[n:]
	return b
}

// length reads an integer of the given number of bytes.
func (r *reader) length(bytes int) (n int) {
	for _, b := range r.take(bytes) {
		n = n<<8 | int(b)
	}
	return n
}

// maxTime is beyond the time of any clock, and far from what a time cannot represent.
const maxTime = 1 << 40

func (r *reader) time() time.Time {
	b := r.take(8)
	if b == nil {
		return time.Time{}
	}
	return time.Unix(int64(min(binary.BigEndian.Uint64(b), maxTime)), 0)
}

// Holder returns the holder of a chain.
type Holder struct {
	User     string
	Projects []string
}

// Judge returns the principal for which the job works by the grant, at time now. holder verifies
// the chain, up to the grid's authority, and returns its holder. The error wraps
// overlay.ErrForbidden and gives the reason; with ErrExpired the principal is returned
// nevertheless.
func (g *Grant) Judge(job overlay.JobID, now time.Time, holder func(chain [][]byte) (Holder, error)) (overlay.Principal, error) {
	if g.Job != job {
		return overlay.Principal{}, refuse("it is for job %s, not for %s", g.Job, job)
	}
	leaf, err := x509.ParseCertificate(g.chain[0])
	if err != nil {
		return overlay.Principal{}, refuse("its certificate cannot be read: %v", err)
	}
	if !verified(leaf.PublicKey, g.signed, g.signature) {
		return overlay.Principal{}, refuse("it is forged: the key of its certificate did not sign it")
	}
	if g.Expires.After(leaf.NotAfter) {
		return overlay.Principal{}, refuse("it is to outlive its certificate, which ends at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	p := overlay.Principal{Project: g.Project}
	who, err := holder(g.chain)
	if err != nil {
		return overlay.Principal{}, refuse("%v", err)
	}
	p.User = who.User
	if g.Project != "" && !slices.Contains(who.Projects, g.Project) {
		return overlay.Principal{}, refuse("the certificate of user %s does not name project %s; it names %q", who.User, g.Project, who.Projects)
	}
	switch {
	case !now.Before(g.Expires):
		return p, fmt.Errorf("%w: the grant of %v expired at %s; make a new one (isthmus job grant), or else %s", ErrExpired, p, g.Expires.UTC().Format(time.RFC3339),
			overlay.ClocksDiffer("this host", "the user", now.Sub(g.Expires)))
	case now.Add(overlay.MaxAhead).Before(g.Issued):
		return overlay.Principal{}, refuse("it is not valid before %s: %s", g.Issued.UTC().Format(time.RFC3339), overlay.ClocksDiffer("this host", "the user", g.Issued.Sub(now)))
	}
	return p, nil
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: the grant is not good: %s", overlay.ErrForbidden, fmt.Sprintf(format, args...))
}
