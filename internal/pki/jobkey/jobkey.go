// Package jobkey holds the secret that the processes of one job share, and the keys derived from
// it: a key that signs the locations of the job's processes; a key that authenticates links end to
// end; and an authority that signs each process's certificate for encrypted carriers. Daemons see
// none of them.
//
// A job's id is its name and a digest of the first key's public half. So only holders of the secret
// can claim the id, and no daemon needs a list of jobs to distinguish processes of different jobs.
// The package keeps no state but a process's current certificate.
package jobkey

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// EnvKey is the environment variable that carries a job's key, in the form
// of String, to its processes.
const EnvKey = "ISTHMUS_JOB_KEY"

// Key is a job's name and secret. Treat it as a password.
type Key struct {
	Name    string
	secret  [32]byte
	service overlay.NodeID // of the key of that node's service job, which is public
}

// New creates a key for a new job of the given name from the system's random source.
func New(name string) (Key, error) {
	if err := overlay.CheckJobName(name); err != nil {
		return Key{}, err
	}
	k := Key{Name: name}
	rand.Read(k.secret[:]) // never fails (crypto/rand)
	return k, nil
}

// ForLinks is the key that authenticates the hellos of a link.
type ForLinks [32]byte

// Auth derives the key that proves membership.
func (k Key) Auth() ForAuth { return ForAuth(k.derive("isthmus v1 helper authentication")) }

// Links derives the key of the job's links.
func (k Key) Links() ForLinks { return ForLinks(k.derive("isthmus v1 link authentication")) }

func (k Key) derive(label string) []byte {
	out, err := hkdf.Key(sha256.New, k.secret[:], []byte(k.Name), label, 32)
	if err != nil {
		panic(err) // only for lengths that HKDF cannot give
	}
	return out
}

// ID returns the job's id.
func (k Key) ID() overlay.JobID {
	if k.service != (overlay.NodeID{}) {
		return overlay.ServiceJob(k.service)
	}
	return idOf(k.Name, k.Auth().Public())
}

// String returns the key as one line, "NAME:SECRET". Print it only if the job's owner requested it.
func (k Key) String() string {
	return k.Name + ":" + base64.RawURLEncoding.EncodeToString(k.secret[:])
}

// Parse parses the form of String. The error never contains the secret.
func Parse(s string) (Key, error) {
	name, text, ok := strings.Cut(strings.TrimSpace(s), ":")
	if !ok {
		return Key{}, fmt.Errorf("job key: want NAME:SECRET as `isthmus job new NAME` prints it")
	}
	if err := overlay.CheckJobName(name); err != nil {
		return Key{}, fmt.Errorf("job key: %w", err)
	}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(text)
	k := Key{Name: name}
	if err != nil || len(secret) != len(k.secret) {
		return Key{}, fmt.Errorf("job key of %s: the secret is not %d bytes in base64url; was the line cut?", name, len(k.secret))
	}
	copy(k.secret[:], secret)
	return k, nil
}

// Load reads a key from a file. It refuses a file that other users can read.
func Load(file string) (Key, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Key{}, fmt.Errorf("job key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Key{}, fmt.Errorf("job key %s can be read by others (mode %04o): run chmod 600 %[1]s", file, info.Mode().Perm())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return Key{}, fmt.Errorf("job key: %w", err)
	}
	k, err := Parse(string(b))
	if err != nil {
		return Key{}, fmt.Errorf("%s: %w", file, err)
	}
	return k, nil
}
