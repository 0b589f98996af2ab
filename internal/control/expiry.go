package control

import (
	"crypto/x509"
	"time"
)

// NotAfter returns when the certificate in use expires; the zero time if it cannot be parsed, which
// [NewCredentials] rules out.
func (c *Credentials) NotAfter() time.Time {
	leaf, err := x509.ParseCertificate(c.cert.Certificate[0])
	if err != nil {
		return time.Time{}
	}
	return leaf.NotAfter
}
