package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// Greeting is what somebody who was spoken to as a daemon said.
type Greeting struct {
	TLS   tls.ConnectionState // as far as the hand-shake came
	Chain []*x509.Certificate // that was shown, even if the hand-shake failed then
	Shook bool                // the TLS hand-shake ended well
	First wire.Frame          // the first frame: *wire.ControlHello or *wire.Refuse; nil without one
}

// Greet makes the TLS hand-shake that a session begins with, believing any
// certificate, reads the peer's first frame and says nothing more: no session
// comes of it. It is for finding out what stands at the other end of conn, which
// it closes. With lenient it takes older versions of TLS and a peer that knows
// no application protocol, so that a stranger shows its certificate.
//
// Whatever was learned before an error is in the Greeting. The wait ends with
// ctx.
func Greet(ctx context.Context, conn net.Conn, own tls.Certificate, host string, lenient bool) (Greeting, error) {
	var g Greeting
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if net.ParseIP(host) != nil {
		host = "" // SNI carries names only
	}
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{own},
		ServerName:   host,
		NextProtos:   []string{alpn},
		// The post-quantum share makes the client's first flight longer than one
		// segment, and the server's too: what does not pass full-size segments is
		// seen here and not in the middle of a job.
		CurvePreferences:   []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256},
		InsecureSkipVerify: true, // the caller judges the chain
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			for _, der := range raw {
				if cert, err := x509.ParseCertificate(der); err == nil {
					g.Chain = append(g.Chain, cert)
				}
			}
			return nil
		},
	}
	if lenient {
		cfg.MinVersion, cfg.NextProtos = tls.VersionTLS10, nil
	}
	c := tls.Client(conn, cfg)
	err := c.HandshakeContext(ctx)
	g.TLS = c.ConnectionState()
	if err != nil {
		return g, fmt.Errorf("TLS: %w", err)
	}
	g.Shook = true
	if g.First, err = wire.Read(c); err != nil {
		return g, fmt.Errorf("waiting for the first frame: %w", err)
	}
	return g, nil
}
