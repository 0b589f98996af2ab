package control

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"crypto/x509"

	"github.com/isthmus-grid/isthmus/internal/pki/revoked"
	"github.com/isthmus-grid/isthmus/overlay"
)

// ErrRevoked is wrapped by the errors for a revoked certificate. It is an overlay.ErrForbidden.
var ErrRevoked = fmt.Errorf("%w: revoked", overlay.ErrForbidden)

// Revocations holds the newest revocation list that a daemon knows. It arrives from an admin or
// over any session: the root's signature authenticates it, not the sender, and an older list never
// replaces a newer one. Safe for concurrent use.
type Revocations struct {
	roots []*x509.Certificate

	mu      sync.Mutex      // guards the fields below
	file    string          // where the list is stored; "": nowhere
	store   RevocationStore // stores it, too; nil: none
	list    *revoked.List
	der     []byte
	changed chan struct{} // closed and replaced when list changes
}

func newRevocations(roots []*x509.Certificate) *Revocations {
	return &Revocations{roots: roots, changed: make(chan struct{})}
}

// Keep stores the list in a file, PEM, and reads the one that is there: without it a restarted
// daemon knows no revocation until it receives a list. A file that cannot be parsed is an error,
// because its content is unknown.
func (r *Revocations) Keep(file string) error {
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("revocation list: %w", err)
	default:
		list, der, err := ParseRevocations(text, r.roots)
		if err != nil {
			return fmt.Errorf("%s: %w; put a valid list there (isthmus ca revoke writes crl.pem), or remove the file", file, err)
		}
		r.mu.Lock()
		r.set(list, der)
		r.mu.Unlock()
	}
	r.mu.Lock()
	r.file = file
	r.mu.Unlock()
	return nil
}

// A RevocationStore stores a daemon's revocation list.
type RevocationStore interface {
	// StoreRevocations stores a list in DER, unless it has one with the same or a larger number. It
	// may take a few seconds, and calls may be concurrent.
	StoreRevocations(number uint64, der []byte) error

	// Where describes where lists are stored.
	Where() string
}

// StoreIn makes s store every list adopted from now on, too.
func (r *Revocations) StoreIn(s RevocationStore) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store = s
}

// ParseRevocations parses a list in PEM and verifies its signature.
func ParseRevocations(text []byte, roots []*x509.Certificate) (*revoked.List, []byte, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemRevocations {
		return nil, nil, errors.New("it holds no PEM revocation list")
	}
	list, err := revoked.Parse(block.Bytes, roots)
	return list, block.Bytes, err
}

const pemRevocations = "X509 CRL"

// RevocationsPEM returns a list in the form that ParseRevocations parses.
func RevocationsPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemRevocations, Bytes: der})
}

// Take adopts a list in DER in place of the previous one, if it is newer, and returns when it is on
// disk. It reports whether the list was newer. A write error does not prevent the list from taking
// effect: it is then in effect until the daemon ends.
func (r *Revocations) Take(der []byte) (newer bool, err error) {
	list, err := revoked.Parse(der, r.roots)
	if err != nil {
		return false, err
	}
	newer, store, err := r.take(list, der)
	if newer && store != nil {
		err = errors.Join(err, store.StoreRevocations(list.Number, der))
	}
	if err != nil {
		err = fmt.Errorf("revocation list %d counts until this daemon ends, and could not be kept: %w", list.Number, err)
	}
	return newer, err
}

// take is Take without the store, which must not be called with the lock held.
func (r *Revocations) take(list *revoked.List, der []byte) (newer bool, store RevocationStore, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list != nil && list.Number <= r.list.Number {
		return false, nil, nil
	}
	if r.file != "" {
		err = WriteFile(r.file, RevocationsPEM(der), 0o644)
	}
	r.set(list, der)
	return true, r.store, err
}

func (r *Revocations) set(list *revoked.List, der []byte) {
	r.list, r.der = list, der
	close(r.changed)
	r.changed = make(chan struct{})
}

// Now returns the list, nil if there is none, and a channel that is closed when another replaces
// it.
func (r *Revocations) Now() (list *revoked.List, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list, r.changed
}

// Kept describes where the list is stored; "": nowhere.
func (r *Revocations) Kept() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store != nil {
		return r.store.Where()
	}
	return r.file
}

// DER returns the list as signed, nil if there is none, and its number.
func (r *Revocations) DER() (der []byte, number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		return nil, 0
	}
	return r.der, r.list.Number
}

// lookAgain is how often a revoked holder checks whether it has another certificate.
const lookAgain = 10 * time.Second

// FollowOwn calls f with an ErrRevoked when the holder's own certificate is revoked, and with nil
// when another replaces it, for instance after a new enrolment. It returns when ctx ends.
func (c *Credentials) FollowOwn(ctx context.Context, f func(revoked error)) {
	was := false
	for {
		_, changed := c.lists.Now()
		_, err := c.Verify(c.Certificate().Certificate)
		var again <-chan time.Time
		if errors.Is(err, ErrRevoked) {
			again = time.After(lookAgain)
		} else {
			err = nil
		}
		if is := err != nil; is != was {
			f(err)
			was = is
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// judge returns an ErrRevoked if the list has the holder or one of the certificates.
func (r *Revocations) judge(p Proof) error {
	list, _ := r.Now()
	since, yes := list.Names(p.Key(), p.Enrolled)
	for i, serial := range p.serials {
		if at, has := list.Has(serial); has && !yes {
			since, yes = at, true
			if i > 0 {
				return fmt.Errorf("%w: the certificate of the issuer of %v's certificate was revoked at %s (list %d)", ErrRevoked, p.Identity, since.UTC().Format(time.RFC3339), list.Number)
			}
		}
	}
	if !yes {
		return nil
	}
	return fmt.Errorf("%w: the certificate of %v was revoked at %s (list %d); enrol again with a new token to readmit it",
		ErrRevoked, p.Identity, since.UTC().Format(time.RFC3339), list.Number)
}

// WriteFile writes a file atomically, also with respect to a power failure: it writes a new file in
// the same folder and renames it.
func WriteFile(name string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // already renamed, if all went well
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
