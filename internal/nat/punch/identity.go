package punch

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// alpn is the application protocol inside QUIC.
const alpn = "isthmus-punch/2"

// errFingerprint means that the end that answered did not make the description.
var errFingerprint = errors.New("the other end's certificate is not the one of its description")

// An identity is a key made for one attempt. It is authenticated only by the fingerprint in the
// description.
type identity struct {
	certificate tls.Certificate
	fingerprint [32]byte // SHA-256 of the certificate
}

func newIdentity() (identity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return identity{}, err
	}
	// The dates are not checked: a fingerprint is pinned, and clocks may differ.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return identity{}, err
	}
	return identity{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private},
		fingerprint: sha256.Sum256(der),
	}, nil
}

// config returns a TLS configuration for either role that presents the identity and accepts only
// the peer with the given fingerprint.
func (id identity) config(peer [32]byte) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{alpn},
		Certificates:           []tls.Certificate{id.certificate},
		ServerName:             "peer.invalid",
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // no CA signs the certificate; VerifyConnection pins it
		SessionTicketsDisabled: true,
		VerifyConnection:       func(s tls.ConnectionState) error { return pin(s, peer) },
	}
}

func pin(s tls.ConnectionState, peer [32]byte) error {
	if len(s.PeerCertificates) == 0 || sha256.Sum256(s.PeerCertificates[0].Raw) != peer {
		return errFingerprint
	}
	return nil
}

// listening makes a server's configuration from base. refused is called for each client that
// presented another certificate.
func listening(base *tls.Config, refused func(from netip.AddrPort, err error)) *tls.Config {
	c := base.Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		from := addrPort(hello.Conn.RemoteAddr())
		perClient := base.Clone()
		perClient.VerifyConnection = func(s tls.ConnectionState) error {
			err := base.VerifyConnection(s)
			if err != nil {
				refused(from, fmt.Errorf("%v: %w", from, err))
			}
			return err
		}
		return perClient, nil
	}
	return c
}

// addrPort returns a UDP address in the form that candidates have.
func addrPort(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := u.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}
