// Package revoked is the grid's certificate revocation list: an X.509 revocation list (RFC 5280,
// section 5) that the root of the grid's CA signs and numbers, so that the daemons that pass it on
// need not be trusted.
//
// It lists certificates by serial number, regardless of the issuer below the root, and holders by
// identity: all certificates of a holder whose enrolment is older than a certain time. The package
// is pure: no files, no clocks, no connections.
package revoked

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// MaxSize bounds a list in bytes, and with it a daemon's memory for one: about 20,000 entries.
const MaxSize = 1 << 20

// holdersOID marks the extension that lists holders: a SEQUENCE of SEQUENCEs of a UTF8String, the
// identity, and an INTEGER, Unix milliseconds. It is in the UUID arc (X.667), which is open to
// everyone.
var holdersOID = asn1.ObjectIdentifier{2, 25, 1298498081, 1}

// List is one revocation list. It is immutable once in use.
type List struct {
	Number     uint64               // increases with each list; 0 means no list
	ThisUpdate time.Time            // by the CA's clock
	Serials    map[string]time.Time // when each was revoked, by Key
	Holders    map[string]time.Time // by identity: certificates of enrolments up to this time are revoked
}

// Key is the form of a serial number in a List: lower-case hexadecimal.
func Key(serial *big.Int) string { return serial.Text(16) }

// Names reports whether the list revokes the holder's certificate of an enrolment at the given time
// (see control.Enrolled), and since when. An allocation stands for the helpers of its nodes. A nil
// list revokes nothing.
func (l *List) Names(identity string, enrolled time.Time) (since time.Time, yes bool) {
	if l == nil {
		return time.Time{}, false
	}
	since, yes = l.Holders[identity]
	if yes = yes && !enrolled.After(since); yes {
		return since, yes
	}
	if all, ok := overlay.AllocationOf(identity); ok { // revoked with its allocation
		since, yes = l.Holders[all]
	}
	return since, yes && !enrolled.After(since)
}

// Has reports whether the list has the serial number, and since when.
func (l *List) Has(serial *big.Int) (since time.Time, yes bool) {
	if l == nil {
		return time.Time{}, false
	}
	since, yes = l.Serials[Key(serial)]
	return since, yes
}

// Since returns the identities that l lists and older does not, or lists with an earlier time,
// sorted. Either may be nil.
func (l *List) Since(older *List) []string {
	if l == nil {
		return nil
	}
	var all []string
	for id, at := range l.Holders {
		if older == nil || older.Holders[id].Before(at) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}

type holder struct {
	Identity string `asn1:"utf8"`
	Before   int64
}

// Sign returns the list in DER, signed by the root.
func (l *List) Sign(root *x509.Certificate, key crypto.Signer) ([]byte, error) {
	template := &x509.RevocationList{
		Number:     new(big.Int).SetUint64(l.Number),
		ThisUpdate: l.ThisUpdate,
		NextUpdate: root.NotAfter, // it is valid until there is a newer one
	}
	for _, text := range slices.Sorted(maps.Keys(l.Serials)) {
		serial, ok := new(big.Int).SetString(text, 16)
		if !ok || serial.Sign() <= 0 {
			return nil, fmt.Errorf("revocation list: %q is no serial number", text)
		}
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: serial, RevocationTime: l.Serials[text]})
	}
	if len(l.Holders) > 0 {
		var all []holder
		for _, id := range slices.Sorted(maps.Keys(l.Holders)) {
			all = append(all, holder{id, l.Holders[id].UnixMilli()})
		}
		value, err := asn1.Marshal(all)
		if err != nil {
			return nil, fmt.Errorf("revocation list: %w", err)
		}
		// Critical: a verifier that does not know it must not take the list for complete.
		template.ExtraExtensions = []pkix.Extension{{Id: holdersOID, Critical: true, Value: value}}
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, root, key)
	if err != nil {
		return nil, fmt.Errorf("revocation list: %w", err)
	}
	if len(der) > MaxSize {
		return nil, fmt.Errorf("revocation list: %d bytes, at most %d are taken; leave out what has expired", len(der), MaxSize)
	}
	return der, nil
}

// Parse reads a list and checks that one of the roots signed it.
func Parse(der []byte, roots []*x509.Certificate) (*List, error) {
	if len(der) > MaxSize {
		return nil, fmt.Errorf("revocation list: %d bytes, at most %d are taken", len(der), MaxSize)
	}
	crl, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, fmt.Errorf("revocation list: %w", err)
	}
	if !slices.ContainsFunc(roots, func(root *x509.Certificate) bool { return crl.CheckSignatureFrom(root) == nil }) {
		return nil, errors.New("revocation list: this grid's CA did not sign it")
	}
	if crl.Number == nil || crl.Number.Sign() <= 0 || !crl.Number.IsUint64() {
		return nil, errors.New("revocation list: it has no number")
	}
	l := &List{Number: crl.Number.Uint64(), ThisUpdate: crl.ThisUpdate, Serials: map[string]time.Time{}, Holders: map[string]time.Time{}}
	for _, e := range crl.RevokedCertificateEntries {
		l.Serials[Key(e.SerialNumber)] = e.RevocationTime
	}
	for _, ext := range crl.Extensions {
		switch {
		case ext.Id.Equal(holdersOID):
			var all []holder
			if rest, err := asn1.Unmarshal(ext.Value, &all); err != nil || len(rest) > 0 {
				return nil, fmt.Errorf("revocation list: its holders cannot be read (%v, %d bytes left)", err, len(rest))
			}
			for _, h := range all {
				l.Holders[h.Identity] = time.UnixMilli(h.Before)
			}
		case ext.Critical:
			return nil, fmt.Errorf("revocation list: extension %v is critical and unknown here; upgrade this daemon", ext.Id)
		}
	}
	return l, nil
}
