package sealed

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

// An end that does not accept the other's certificate sends an alert of RFC 8446, section 6.2.
// crypto/tls sends bad_certificate whatever the reason; here each reason has its own, so that both
// ends' errors name it.

// errUnexpectedPeer is the error for a peer of the job that has another rank than the expected one.
var errUnexpectedPeer = fmt.Errorf("%w", overlay.ErrForbidden)

// refusalOf returns the alert for an error of handshake.judge.
func refusalOf(err error) alert {
	switch {
	case errors.Is(err, jobkey.ErrNotValidNow):
		return alertExpired
	case errors.Is(err, jobkey.ErrOtherKey):
		return alertUnknownCA
	case errors.Is(err, errUnexpectedPeer):
		return alertAccessDenied
	}
	return alertBadCertificate
}

// refusesCertificate reports whether an alert is about a certificate.
func refusesCertificate(a alert) bool { return a >= alertBadCertificate && a <= 49 || a == 116 }

// refusedFor is the error of an end whose peer sent an alert about its certificate.
func refusedFor(a alert) error {
	why := ""
	switch a {
	case alertExpired:
		why = "by the peer's clock it has expired or is not valid yet; set the clocks of both nodes by NTP"
	case alertUnknownCA:
		why = "the peer has another job key; start all processes of a job with one"
	case alertAccessDenied:
		why = "the peer expects another process of the job"
	default:
		return fmt.Errorf("%w: the peer does not accept this process's certificate (%w)", overlay.ErrForbidden, tls.AlertError(a))
	}
	return fmt.Errorf("%w: the peer does not accept this process's certificate: %s (%w)", overlay.ErrForbidden, why, tls.AlertError(a))
}
