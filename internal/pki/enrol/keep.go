package enrol

import (
	"context"
	"crypto/x509"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/sleep"
)

// start is the beginning of the certificate's validity, without the allowance for slow clocks.
func start(cert *x509.Certificate) time.Time {
	if at := cert.NotBefore.Add(ca.ClockSlack); at.Before(cert.NotAfter) {
		return at
	}
	return cert.NotBefore
}

// renewalTime returns when a certificate is to be renewed: after two thirds of its life.
func renewalTime(cert *x509.Certificate) time.Time {
	begin := start(cert)
	return begin.Add(cert.NotAfter.Sub(begin) * 2 / 3)
}

// Bounds of the time between two renewal attempts.
const (
	soonest = 10 * time.Second
	latest  = time.Hour
)

// pause is the time to wait before the next attempt to renew a certificate that is due: a tenth of
// its remaining lifetime, within bounds.
func pause(cert *x509.Certificate, now time.Time) time.Duration {
	return min(max(cert.NotAfter.Sub(now)/10, soonest), latest)
}

// Keep renews the certificate of creds in its file after two thirds of its life, until ctx ends.
// ask gets a new chain from the next daemon up. The daemon loads the file itself
// (control.Credentials). If the file cannot be written, it logs that at each attempt.
func Keep(ctx context.Context, creds *control.Credentials, log *slog.Logger, ask func(ctx context.Context, chain [][]byte) ([][]byte, error)) {
	wait := time.Until(renewalTime(creds.Leaf()))
	for {
		// Jitter: daemons that enrolled together do not renew at the same time, but all in time.
		left := time.Until(creds.Leaf().NotAfter)
		if sleep.For(ctx, max(wait, 0)+rand.N(max(wait/20, min(left/10, time.Second), 1))) != nil {
			return
		}
		creds.Refresh() // it may have been renewed otherwise; an invalid file is reported at the next handshake
		if wait = time.Until(renewalTime(creds.Leaf())); wait > 0 {
			continue
		}
		if err := renew(ctx, creds, ask); err != nil {
			if ctx.Err() != nil {
				return
			}
			wait = pause(creds.Leaf(), time.Now())
			log.Warn("own certificate not renewed", "valid_until", creds.Leaf().NotAfter.UTC().Format(time.RFC3339), "retry_in", wait.String(), "error", err)
			continue
		}
		log.Info("own certificate renewed", "valid_until", creds.Leaf().NotAfter.UTC().Format(time.RFC3339))
		wait = time.Until(renewalTime(creds.Leaf()))
	}
}

func renew(ctx context.Context, creds *control.Credentials, ask func(context.Context, [][]byte) ([][]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	chain, err := ask(ctx, creds.Certificate().Certificate)
	if err != nil {
		return err
	}
	if err := fits(creds, chain); err != nil {
		return err
	}
	return creds.Replace(ca.ChainPEM(chain))
}

// KeepRevoked stores the revocation list of creds in a file: the configured one, or revoked.pem in
// the service manager's state folder. Without either, the list is only in memory.
func KeepRevoked(creds *control.Credentials, file string) error {
	if file = InState(file, "revoked.pem"); file == "" {
		return nil
	}
	return creds.Revocations().Keep(file)
}

// InState returns the configured file, or the named one in the service manager's state folder; ""
// without either.
func InState(file, name string) string {
	if file != "" {
		return file
	}
	dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, name)
}
