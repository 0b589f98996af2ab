package control

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"time"
)

// ParseRoots parses the PEM file of a grid's CA: one certificate, or two while one CA replaces
// another. Certificates that are not a CA's are refused: whoever trusted one of them as the root would
// trust all that it signed.
func ParseRoots(text []byte) ([]*x509.Certificate, error) {
	if err := noPEM(text, "CERTIFICATE"); err != nil {
		return nil, fmt.Errorf("%w; it must be that of the grid's CA, ca.pem in the CA's folder and beside each certificate that it issues", err)
	}
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
		if err := isRoot(cert); err != nil {
			return nil, fmt.Errorf("%w, and this must be that of the grid's CA alone, ca.pem in the CA's folder and beside each certificate that it issues", err)
		}
		roots = append(roots, cert)
	}
	return roots, nil
}

// ReadRoots is ParseRoots for a file.
func ReadRoots(file string) ([]*x509.Certificate, error) {
	text, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	roots, err := ParseRoots(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return roots, nil
}

// isRoot returns what a certificate is if it is not that of a grid's CA.
func isRoot(cert *x509.Certificate) error {
	if id, err := IdentityOf(cert); err == nil {
		return fmt.Errorf("it is the certificate of %v", id)
	}
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return fmt.Errorf("the certificate of %.100q is not a CA's", cert.Subject)
	case len(IssuerRoles(cert)) > 0:
		return fmt.Errorf("the certificate of %.100q is one that issues for the CA (enrol.cert)", cert.Subject)
	}
	return nil
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
