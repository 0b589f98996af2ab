package ca

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"crypto/x509"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/revoked"
)

// RevocationsFile is the CA's last revocation list, beside its certificate. It is public.
const RevocationsFile = "crl.pem"

// Revocations returns the CA's last revocation list, an empty one before the
// first.
func (a *CA) Revocations(dir string) (*revoked.List, error) {
	file := filepath.Join(dir, RevocationsFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &revoked.List{}, nil
	}
	if err != nil {
		return nil, err
	}
	list, _, err := control.ParseRevocations(text, []*x509.Certificate{a.cert})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

// Revoke adds identities and serial numbers, in hexadecimal, to the CA's revocation list, writes
// the list into dir and returns it and its DER. Certificates for which an identity enrols later are
// valid.
func (a *CA) Revoke(dir string, ids []control.Identity, serials []string, now time.Time) (*revoked.List, []byte, error) {
	old, err := a.Revocations(dir)
	if err != nil {
		return nil, nil, err
	}
	list := &revoked.List{Number: old.Number + 1, ThisUpdate: now, Serials: maps.Clone(old.Serials), Holders: maps.Clone(old.Holders)}
	if list.Serials == nil {
		list.Serials, list.Holders = map[string]time.Time{}, map[string]time.Time{}
	}
	for _, id := range ids {
		if _, err := control.ParseIdentity(id.Key()); err != nil {
			return nil, nil, err
		}
		list.Holders[id.Key()] = now
	}
	for _, text := range serials {
		serial, err := ParseSerial(text)
		if err != nil {
			return nil, nil, err
		}
		list.Serials[revoked.Key(serial)] = now
	}
	der, err := list.Sign(a.cert, a.key)
	if err != nil {
		return nil, nil, err
	}
	return list, der, control.WriteFile(filepath.Join(dir, RevocationsFile), control.RevocationsPEM(der), 0o644)
}

// ParseSerial reads a certificate's serial number in hexadecimal, with or
// without colons, as tools print it.
func ParseSerial(text string) (*big.Int, error) {
	serial, ok := new(big.Int).SetString(strings.ReplaceAll(text, ":", ""), 16)
	if !ok || serial.Sign() <= 0 {
		return nil, fmt.Errorf("%q is no serial number; want hexadecimal digits", text)
	}
	return serial, nil
}
