package control

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/overlay"
)

// FileFault is what is wrong with one of the files of credentials.
type FileFault struct {
	Key  string // of the file in a daemon's settings: cert, key or ca
	File string // "": not from a file
	Err  error  // what is wrong, and what to do
}

// Error implements error.
func (f *FileFault) Error() string {
	if f.File == "" {
		return f.Err.Error()
	}
	return f.File + ": " + f.Err.Error()
}

// Unwrap returns the cause.
func (f *FileFault) Unwrap() error { return f.Err }

// pemTexts are the texts of credentials; nil is one that is not known.
type pemTexts struct{ cert, key, ca []byte }

// writeAnew is what to do about a file of credentials that cannot be mended.
const writeAnew = "isthmus ca enroll, or isthmus ca issue where the CA is, writes certificate, key and CA's certificate that belong together"

// parse returns the credentials in the texts, or what is wrong with those that are known. The
// credentials have no files, and are complete only if all texts are known.
func (t pemTexts) parse(now func() time.Time) (*Credentials, []*FileFault) {
	var faults []*FileFault
	wrong := func(key, format string, args ...any) {
		faults = append(faults, &FileFault{Key: key, Err: fmt.Errorf(format, args...)})
	}
	c := &Credentials{pool: x509.NewCertPool(), now: now}
	var err error
	if t.ca != nil {
		if c.roots, err = ParseRoots(t.ca); err != nil {
			wrong("ca", "CA certificate: %w", err)
		}
		for _, root := range c.roots {
			c.pool.AddCert(root)
		}
	}
	c.lists = newRevocations(c.roots)
	var chain [][]byte
	if t.cert != nil {
		if chain, err = chainIn(t.cert); err != nil {
			wrong("cert", "certificate: %w; %s", err, writeAnew)
		}
	}
	if t.key != nil {
		if err := noPEM(t.key, privateKey); err != nil {
			wrong("key", "key: %w; %s", err, writeAnew)
		} else if chain != nil {
			cert, err := tls.X509KeyPair(t.cert, t.key)
			switch {
			case err != nil && strings.Contains(err.Error(), "does not match"): // there is no error type for it
				wrong("key", "key: it is not the key of the certificate, which has another public key; %s", writeAnew)
			case err != nil:
				wrong("key", "key: %w; %s", err, writeAnew)
			}
			c.cert = &cert
		}
	}
	switch {
	case len(chain) > 0 && len(c.roots) > 0:
		own, err := c.verify(chain)
		if errors.Is(err, errForeign) {
			err = fmt.Errorf("%w, whose certificate is in the file ca: both must be of one grid; %s", err, writeAnew)
		}
		if err != nil {
			wrong("cert", "own certificate: %w", err)
		}
		c.id = own.Identity
	case len(chain) > 0:
		if leaf, err := x509.ParseCertificate(chain[0]); err == nil { // as chainIn has done
			c.id, _ = IdentityOf(leaf)
		}
	}
	return c, faults
}

// privateKey is the type of a PEM block with a key, or the end of it.
const privateKey = "PRIVATE KEY"

// chainIn returns the certificates in a PEM text, DER. The first one must have an identity.
func chainIn(text []byte) (chain [][]byte, err error) {
	if err := noPEM(text, "CERTIFICATE"); err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if chain == nil {
			if _, err := IdentityOf(cert); err != nil {
				return nil, err
			}
		}
		chain = append(chain, block.Bytes)
	}
	return chain, nil
}

// noPEM returns what a text holds in place of a PEM block of the type want, or of a kind of private key; nil
// if it has one.
func noPEM(text []byte, want string) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return errors.New("the file is empty")
	}
	var kinds []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == want || want == privateKey && strings.HasSuffix(block.Type, " "+privateKey) {
			return nil
		}
		if len(kinds) < 4 {
			kinds = append(kinds, fmt.Sprintf("%.40q", block.Type))
		}
	}
	if len(kinds) == 0 {
		return fmt.Errorf("the file holds no PEM %s", want)
	}
	return fmt.Errorf("the file holds no PEM %s, but %s", want, strings.Join(kinds, ", "))
}

// maxPEM bounds a file of credentials; a chain has some kilobytes.
const maxPEM = 1 << 20

// readPEM reads a file of credentials.
func readPEM(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err == nil && len(text) > maxPEM {
		err = fmt.Errorf("%s has more than %v, which no certificate has", name, daemon.Size(maxPEM))
	}
	if text == nil {
		text = []byte{} // known to be empty
	}
	return text, err
}

// CheckFiles returns what is wrong with the files that a daemon's settings name under tls, for its
// CheckFiles method: in themselves, together, and for a daemon that fits accepts. Files that cannot be
// read here are left out.
func CheckFiles(cert, key, ca daemon.Path, fits func(Identity) error) error {
	var t pemTexts
	var errs []error
	wrong := func(key, file string, err error) { errs = append(errs, daemon.Wrong("tls."+key, "%s: %w", file, err)) }
	for _, f := range []struct {
		key, file string
		text      *[]byte
	}{{"cert", string(cert), &t.cert}, {"key", string(key), &t.key}, {"ca", string(ca), &t.ca}} {
		read, err := readPEM(f.file)
		switch {
		case err == nil:
			*f.text = read
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		default:
			wrong(f.key, f.file, err)
		}
	}
	files := map[string]string{"cert": string(cert), "key": string(key), "ca": string(ca)}
	c, faults := t.parse(time.Now)
	for _, f := range faults {
		wrong(f.Key, files[f.Key], f.Err)
	}
	if c.id != (Identity{}) {
		if err := fits(c.id); err != nil {
			wrong("cert", files["cert"], err)
		}
	}
	return errors.Join(errs...)
}

// OfRole returns a condition for CheckFiles: the certificate must be that of a daemon with a role, and
// of a site, unless that is "".
func OfRole(want Role, site overlay.SiteID) func(Identity) error {
	return func(id Identity) error {
		switch {
		case id.Role != want:
			return fmt.Errorf("it is the certificate of %v, and these are the settings of a %v; %s", id, want, writeAnew)
		case site != "" && id.Site != site:
			return fmt.Errorf("it is the certificate of %v, and the key site says %s; correct that, or: %s", id, site, writeAnew)
		}
		return nil
	}
}
