package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

// csr is a request in PEM as another program would create it, modified by change.
func csr(t *testing.T, key crypto.Signer, change func(*x509.CertificateRequest)) []byte {
	t.Helper()
	req := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "frontal sitea"}}
	if change != nil {
		change(req)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, req, key)
	if err != nil {
		t.Fatal(err)
	}
	return RequestPEM(der)
}

func ecKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func extension(t *testing.T, id asn1.ObjectIdentifier, value any) pkix.Extension {
	t.Helper()
	der, err := asn1.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: id, Value: der}
}

var siteA = control.Identity{Role: control.RoleFrontal, Site: "sitea"}

func TestSign(t *testing.T) {
	a, judge := newTestCA(t)
	key := ecKey(t, elliptic.P256())
	own, _, err := Request(siteA)
	if err != nil {
		t.Fatal(err)
	}
	noCA := extension(t, oidBasicConstraints, struct {
		CA bool `asn1:"optional"`
	}{})
	for _, c := range []struct {
		what string
		text []byte
	}{
		{"our own", RequestPEM(own)},
		{"a common name", csr(t, key, nil)},
		{"a URI", csr(t, key, func(r *x509.CertificateRequest) { r.Subject = pkix.Name{}; r.URIs = []*url.URL{siteA.URI()} })},
		{"P-384", csr(t, ecKey(t, elliptic.P384()), nil)},
		{"CA:FALSE", csr(t, key, func(r *x509.CertificateRequest) { r.ExtraExtensions = []pkix.Extension{noCA} })},
		{"with words around it", append([]byte("this is mine\n"), csr(t, key, nil)...)},
	} {
		t.Run(c.what, func(t *testing.T) {
			pub, err := ReadRequest(c.text, siteA)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := a.Sign(pub, siteA, time.Now().Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(cert)
			p, err := judge.Verify([][]byte{block.Bytes})
			if err != nil {
				t.Fatal(err)
			}
			if p.Identity != siteA || p.Leaf.IsCA || len(p.Leaf.DNSNames) > 0 || !p.Leaf.PublicKey.(*ecdsa.PublicKey).Equal(pub) {
				t.Errorf("signed for %v, authority %v", p.Identity, p.Leaf.IsCA)
			}
		})
	}

	bob := control.Identity{Role: control.RoleUser, Name: "bob"}
	cert, err := a.Sign(key.Public(), bob, time.Now().Add(time.Minute), "p1", "p2")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(cert)
	if name, projects, err := judge.User([][]byte{block.Bytes}); err != nil || name != "bob" || !slices.Equal(projects, []string{"p1", "p2"}) {
		t.Errorf("user %q, projects %q, %v", name, projects, err)
	}
}

func TestSignRefuses(t *testing.T) {
	key := ecKey(t, elliptic.P256())
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := csr(t, key, nil)
	block, _ := pem.Decode(good)
	forged := slices.Clone(block.Bytes)
	forged[len(forged)-1] ^= 1
	with := func(change func(*x509.CertificateRequest)) []byte { return csr(t, key, change) }
	extra := func(id asn1.ObjectIdentifier, value any) []byte {
		return with(func(r *x509.CertificateRequest) {
			r.ExtraExtensions = []pkix.Extension{extension(t, id, value)}
		})
	}
	type constraints struct {
		CA bool `asn1:"optional"`
	}
	for _, c := range []struct {
		what string
		text []byte
		want string
	}{
		{"nothing", nil, "no PEM block"},
		{"a key", pemOf("EC PRIVATE KEY", []byte{1}), "this is a private key"},
		{"a certificate", pemOf("CERTIFICATE", []byte{1}), `this is a "CERTIFICATE"`},
		{"two", append(slices.Clone(good), good...), "more than one PEM block"},
		{"a large file", make([]byte, maxRequestFile+1), "more than 65536 bytes"},
		{"no request", RequestPEM([]byte{0x30, 0}), "cannot be read"},
		{"a forged one", RequestPEM(forged), "is not signed with its own key"},
		{"SHA-1", with(func(r *x509.CertificateRequest) { r.SignatureAlgorithm = x509.ECDSAWithSHA1 }), "SHA-1"},
		{"RSA", csr(t, rsaKey, nil), "is a *rsa.PublicKey, want ECDSA"},
		{"Ed25519", csr(t, edKey, nil), "want ECDSA"},
		{"P-224", csr(t, ecKey(t, elliptic.P224()), nil), "ECDSA of 224 bits, want 256"},
		{"another's name", with(func(r *x509.CertificateRequest) { r.Subject.CommonName = "frontal siteb" }), "the request's subject is CN=frontal siteb, want only CN=frontal sitea"},
		{"two names", with(func(r *x509.CertificateRequest) {
			r.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: oidCommonName, Value: "admin eve"}}
		}), "want only CN=frontal sitea"},
		{"an organisation", with(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"x"} }), "want only CN=frontal sitea"},
		{"another's URI", with(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "isthmus", Opaque: "admin/eve"}} }), `the URI "isthmus:admin/eve"`},
		{"a project of its own", with(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "isthmus-project", Opaque: "p"}} }), "the URI"},
		{"a host", with(func(r *x509.CertificateRequest) { r.DNSNames = []string{"example.org"} }), "names a host"},
		{"an address", with(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} }), "names an address"},
		{"nobody", with(func(r *x509.CertificateRequest) { r.Subject = pkix.Name{} }), "names no holder"},
		{"an authority", extra(oidBasicConstraints, constraints{true}), "CA:TRUE"},
		{"a signer of certificates", extra(oidKeyUsage, asn1.BitString{Bytes: []byte{0x04}, BitLength: 6}), "only the grid's CA does"},
		{"a signer of lists", extra(oidKeyUsage, asn1.BitString{Bytes: []byte{0x02}, BitLength: 7}), "only the grid's CA does"},
		{"an unknown wish", extra(asn1.ObjectIdentifier{1, 2, 3}, 1), "the extension 1.2.3"},
		{"another kind of name", extra(oidSubjectAltName, []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 8, Bytes: []byte{0x2a, 3}}}), "alternative name of kind 8"},
	} {
		if _, err := ReadRequest(c.text, siteA); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.what, err, c.want)
		}
	}

	a, _ := newTestCA(t)
	if _, err := a.Sign(a.key.Public(), siteA, time.Now().Add(time.Minute)); err == nil {
		t.Error("the CA's own key was certified")
	}
	if _, err := a.Sign(key.Public(), siteA, time.Now().Add(24*time.Hour)); err == nil || !strings.Contains(err.Error(), "outlive the CA") {
		t.Errorf("longer than the CA: %v", err)
	}
}

func FuzzReadRequest(f *testing.F) {
	own, _, err := Request(siteA)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(RequestPEM(own))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		pub, err := ReadRequest(text, siteA)
		if err == nil && checkKey(pub) != nil {
			t.Error("a weak key passed")
		}
	})
}
