package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// envPassphrase has what protects the key, if something does.
const envPassphrase = "ISTHMUS_KEY_PASSPHRASE"

// sumsName is the file of checksums, as sha256sum --check reads it.
const sumsName = "SHA256SUMS"

// key is an OpenPGP key in a file, which signs packages and checksums.
type key struct {
	file   string
	entity *openpgp.Entity
}

// readKey reads a private key, as gpg --armor --export-secret-keys writes it.
func readKey(file string) (*key, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	defer f.Close()
	ring, err := openpgp.ReadArmoredKeyRing(f)
	switch {
	case err != nil:
		return nil, fmt.Errorf("-key %s: %w; gpg --armor --export-secret-keys writes such a file", file, err)
	case len(ring) != 1:
		return nil, fmt.Errorf("-key %s: %d keys; want one", file, len(ring))
	case ring[0].PrivateKey == nil:
		return nil, fmt.Errorf("-key %s: a public key; signing takes the private one (gpg --armor --export-secret-keys)", file)
	}
	if ring[0].PrivateKey.Encrypted {
		if err := ring[0].DecryptPrivateKeys([]byte(os.Getenv(envPassphrase))); err != nil {
			return nil, fmt.Errorf("-key %s is protected, and the passphrase in %s does not fit: %w", file, envPassphrase, err)
		}
	}
	return &key{file, ring[0]}, nil
}

// writeSums writes the checksums of files in a folder and, with a key, their signature beside them.
func writeSums(dir string, names []string, k *key, at time.Time) ([]string, error) {
	var text bytes.Buffer
	for _, name := range slices.Sorted(slices.Values(names)) {
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%x  %s\n", sum, name)
	}
	if err := os.WriteFile(filepath.Join(dir, sumsName), text.Bytes(), 0o644); err != nil {
		return nil, err
	}
	signature := filepath.Join(dir, sumsName+".asc")
	if k == nil { // one of an earlier run would not fit
		if err := os.Remove(signature); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		return []string{sumsName}, nil
	}
	var sig strings.Builder
	if err := openpgp.ArmoredDetachSign(&sig, k.entity, &text, &packet.Config{Time: func() time.Time { return at }}); err != nil {
		return nil, fmt.Errorf("-key %s: %w", k.file, err)
	}
	return []string{sumsName, sumsName + ".asc"}, os.WriteFile(signature, []byte(sig.String()+"\n"), 0o644)
}

func sumOf(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
