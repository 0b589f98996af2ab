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

// Greeting is what a peer sent in response to the start of a session.
type Greeting struct {
	TLS   tls.ConnectionState // as far as the handshake got
	Chain []*x509.Certificate // the peer's, even if the handshake then failed
	Shook bool                // the TLS handshake succeeded
	First wire.Frame          // the first frame: *wire.ControlHello or *wire.Refuse; nil: none
}

// Greet performs the TLS handshake that begins a session, accepting any certificate, reads the
// peer's first frame and sends nothing more: it opens no session. It serves to identify the other
// end of conn, which it closes. With lenient it accepts older versions of TLS and a peer without
// application protocol negotiation, so that any TLS server shows its certificate.
//
// What was received before an error is in the Greeting. The wait ends with ctx.
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
		// The post-quantum share makes the client's first flight longer than one segment, and the
		// server's too: a path that drops full-size segments is detected here and not in the middle
		// of a job.
		CurvePreferences:   []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256},
		InsecureSkipVerify: true, // the caller verifies the chain
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
