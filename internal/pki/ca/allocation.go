package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Allocation is what the token of a batch system's job is bound to: it enrols each of the
// allocation's nodes once, until the allocation ends, for one account.
type Allocation struct {
	ID      string `json:"id"`      // the batch system's number
	Nodes   string `json:"nodes"`   // its nodes, as Slurm lists them: n[01-04,7],gpu3
	Account string `json:"account"` // whose processes, and whose jobs only, its helpers have
}

// maxNodes bounds the list of an allocation's nodes, in bytes.
const maxNodes = 1024

// AllocationToken returns the token to sign for an allocation of a site, which ends at the given
// time.
func AllocationToken(site overlay.SiteID, a Allocation, ends time.Time) Token {
	return Token{
		Identity: "helper " + string(site) + "/" + overlay.AllocationNode(a.ID, anyNode), Allocation: &a,
		Expires: ends.UnixMilli(), Valid: 1, Uses: MaxUses, // one for each node; the certificates expire with the token
	}
}

// check returns an error if the allocation is invalid.
func (a Allocation) check(identity string) error {
	site, ok := strings.CutSuffix(identity, "/"+overlay.AllocationNode(a.ID, anyNode))
	if site, helper := strings.CutPrefix(site, "helper "); !ok || !helper || overlay.CheckName("site", site) != nil {
		return fmt.Errorf("a token for allocation %q is not for %q", a.ID, identity)
	}
	if _, err := strconv.ParseUint(a.ID, 10, 64); err != nil {
		return fmt.Errorf("allocation %q: want the batch system's number", a.ID)
	}
	if err := control.CheckMarkedAccount(a.Account); err != nil {
		return err
	}
	if a.Nodes == "" || len(a.Nodes) > maxNodes {
		return fmt.Errorf("a list of nodes of %d bytes, want 1 to %d", len(a.Nodes), maxNodes)
	}
	return checkHosts(a.Nodes)
}

// fits returns why a node is not one of the allocation's, or nil.
func (a Allocation) fits(node string) error {
	host, ok := strings.CutPrefix(node, overlay.AllocationNode(a.ID, ""))
	if !ok {
		return fmt.Errorf("the token is for allocation %s, not for node %s", a.ID, node)
	}
	if !listsHost(a.Nodes, host) {
		return fmt.Errorf("host %s is not one of allocation %s (%s)", host, a.ID, a.Nodes)
	}
	return nil
}

// Scheduler signs tokens for the allocations of one site's batch system, and nothing else: its
// certificate has the role scheduler. LoadScheduler creates it.
type Scheduler struct {
	site  overlay.SiteID
	root  *x509.Certificate
	chain [][]byte
	key   crypto.Signer
}

// LoadScheduler reads a scheduler's certificate with the chain up to the root, its key, and the
// certificate of the grid's CA.
func LoadScheduler(certFile, keyFile, rootFile string) (*Scheduler, error) {
	creds, err := control.LoadCredentials(certFile, keyFile, rootFile)
	if err != nil {
		return nil, err
	}
	key, _ := creds.Certificate().PrivateKey.(*ecdsa.PrivateKey)
	if id := creds.Identity(); id.Role != control.RoleScheduler || key == nil {
		return nil, fmt.Errorf("%s: the certificate of %v; want one of a scheduler: isthmus ca issue scheduler SITE", certFile, id)
	}
	return &Scheduler{creds.Identity().Site, creds.Roots()[0], creds.Certificate().Certificate, key}, nil
}

// Site returns the site for whose allocations it signs.
func (s *Scheduler) Site() overlay.SiteID { return s.site }

// Token signs an enrolment token for an allocation of the scheduler's site. See CA.Token.
func (s *Scheduler) Token(a Allocation, ends, now time.Time) (string, error) {
	text, err := AllocationToken(s.site, a, ends).sign(s.root, s.key, now)
	for _, der := range s.chain {
		text += "." + base64.RawURLEncoding.EncodeToString(der)
	}
	if err == nil && len(text) > maxAllocationToken {
		err = fmt.Errorf("the token would have %d bytes, at most %d are possible; the list of nodes has %d", len(text), maxAllocationToken, len(a.Nodes))
	}
	return text, err
}

// maxAllocationToken bounds a token with a scheduler's chain, in bytes: with a request
// it must fit one frame.
const maxAllocationToken = 3400

// VerifyToken reads a token that is signed by the grid's root or, for an allocation, by the
// scheduler of its site, whose certificate creds verify.
func VerifyToken(text string, creds *control.Credentials) (Token, error) {
	t, s, err := splitToken(text)
	if err != nil {
		return t, err
	}
	if len(s.chain) == 0 {
		return ParseToken(text, creds.Roots())
	}
	p, err := creds.Verify(s.chain)
	if err != nil {
		return Token{}, fmt.Errorf("who signed the token: %w", err)
	}
	if p.Role != control.RoleScheduler || t.Allocation == nil {
		return Token{}, fmt.Errorf("%v signed the token; a scheduler signs those of its site's allocations, and the CA all others", p.Identity)
	}
	if own := AllocationToken(p.Site, *t.Allocation, t.ExpiresAt()).Identity; t.Identity != own {
		return Token{}, fmt.Errorf("the token is for %s, and the scheduler of %s signed it; it may for its own site's allocations", t.Identity, p.Site)
	}
	key, ok := p.Leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok || !s.signedBy(key) {
		return Token{}, errForged
	}
	if t.ExpiresAt().After(p.Leaf.NotAfter) {
		return Token{}, fmt.Errorf("the token outlives the certificate of its scheduler, which ends at %s; renew that", p.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// ReadTokenFile reads a token from a file that only its owner may read.
func ReadTokenFile(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s: mode %v lets others read the token; make it 0600 or 0400", file, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, 2*maxAllocationToken))
	token := string(bytes.TrimSpace(text))
	if err == nil {
		_, err = ReadToken(token)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return token, nil
}

var errForged = errors.New("the token is forged or damaged: its signature does not hold")

// tokenSum is the digest of a token's body that is signed.
func tokenSum(body string) []byte {
	sum := sha256.Sum256([]byte(tokenLabel + body))
	return sum[:]
}

// signedToken is the signature of a token: by the root, or with the chain of another signer.
type signedToken struct {
	body  string
	sig   []byte
	chain [][]byte
}

func (s signedToken) signedBy(key *ecdsa.PublicKey) bool {
	return ecdsa.VerifyASN1(key, tokenSum(s.body), s.sig)
}

func signBody(key crypto.Signer, body string) ([]byte, error) {
	return key.Sign(rand.Reader, tokenSum(body), crypto.SHA256)
}
