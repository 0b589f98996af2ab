package control

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// ParseRoots parses the PEM file of a grid's CA: one certificate, or two while one CA replaces
// another.
func ParseRoots(text []byte) ([]*x509.Certificate, error) {
	var roots []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		roots = append(roots, cert)
	}
	if len(roots) == 0 {
		return nil, errors.New("the CA file holds no PEM certificate")
	}
	return roots, nil
}

// Fingerprint returns the SHA-256 of a certificate in hexadecimal, which identifies a CA to a
// client that does not have its certificate yet.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// VerifyByFingerprint verifies a chain, the leaf first, that leads to the root with the given
// fingerprint and includes it, at time now. It returns the content of the chain, and the root. It
// is for clients that know only the fingerprint, and so have no revocation list.
func VerifyByFingerprint(chain []*x509.Certificate, fingerprint string, now time.Time) (Proof, *x509.Certificate, error) {
	var raw [][]byte
	var root *x509.Certificate
	for _, cert := range chain {
		raw = append(raw, cert.Raw)
		if Fingerprint(cert) == fingerprint {
			root = cert
		}
	}
	if root == nil {
		return Proof{}, nil, fmt.Errorf("the peer does not belong to the grid whose CA has the fingerprint %s", fingerprint)
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	p, err := verifyChain(raw, pool, now)
	return p, root, err
}
