package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

// maxRequestFile bounds a file with a request, in bytes. A request has a few hundred bytes.
const maxRequestFile = 64 << 10

// checkKey returns why a public key may not be certified, or nil.
func checkKey(pub crypto.PublicKey) error {
	key, ok := pub.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("the key to certify is a %T, want ECDSA of 256 bits or more", pub)
	}
	if key.Curve.Params().BitSize < 256 {
		return fmt.Errorf("the key to certify is ECDSA of %d bits, want 256 or more", key.Curve.Params().BitSize)
	}
	return nil
}

// KeyFingerprint returns the SHA-256 of a public key as certificates and
// requests carry it (RFC 5280, SubjectPublicKeyInfo, DER), in hexadecimal.
func KeyFingerprint(pub crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// RequestPEM returns a certificate request as PEM text.
func RequestPEM(request []byte) []byte { return pemOf("CERTIFICATE REQUEST", request) }

// The extensions that a request may contain (RFC 5280, section 4.2.1). Their contents are read if
// relevant, and none is copied into the certificate.
var (
	oidCommonName       = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidSubjectKeyID     = asn1.ObjectIdentifier{2, 5, 29, 14}
	oidKeyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidSubjectAltName   = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidExtKeyUsage      = asn1.ObjectIdentifier{2, 5, 29, 37}
)

// ReadRequest reads a certificate request of another program, PEM, and checks whether it may be
// signed for id. It must prove that its maker has the key, and may name id and nothing else: in its
// subject's common name ("frontal sitea"), in a URI (isthmus:frontal/sitea), or both. It returns
// the key to certify.
func ReadRequest(text []byte, id control.Identity) (crypto.PublicKey, error) {
	if len(text) > maxRequestFile {
		return nil, fmt.Errorf("a file of more than %d bytes is no request for a certificate", maxRequestFile)
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, errors.New("it has no PEM block; a certificate request begins with -----BEGIN CERTIFICATE REQUEST-----")
	case strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return nil, errors.New("this is a private key, which must stay where it is; what is signed is the request (isthmus ca request)")
	case block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST":
		return nil, fmt.Errorf("this is a %q, want a CERTIFICATE REQUEST", block.Type)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, errors.New("there is more than one PEM block in it; sign one request at a time")
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be read: %w", err)
	}
	if err := checkKey(req.PublicKey); err != nil {
		return nil, err
	}
	if req.SignatureAlgorithm == x509.ECDSAWithSHA1 {
		return nil, errors.New("the request is signed with SHA-1, which can be forged; make it with SHA-256")
	}
	if err := req.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request is not signed with its own key: %w", err)
	}
	if err := names(req, id); err != nil {
		return nil, err
	}
	return req.PublicKey, checkExtensions(req.Extensions)
}

// names returns an error if a request names anything besides id, or does not name it.
func names(req *x509.CertificateRequest, id control.Identity) error {
	named := false
	for _, attribute := range req.Subject.Names {
		if value := fmt.Sprint(attribute.Value); !attribute.Type.Equal(oidCommonName) || value != id.Key() {
			return fmt.Errorf("the request's subject is %s, want only CN=%v", pkix.Name{Names: req.Subject.Names, ExtraNames: req.Subject.Names}, id)
		}
		named = true
	}
	for _, u := range req.URIs {
		if u.String() != id.URI().String() {
			return fmt.Errorf("the request names the URI %q, want %v alone", u, id.URI())
		}
		named = true
	}
	for _, other := range []struct {
		what string
		n    int
	}{{"a host", len(req.DNSNames)}, {"an address", len(req.IPAddresses)}, {"a mail address", len(req.EmailAddresses)}} {
		if other.n > 0 {
			return fmt.Errorf("the request names %s; a certificate of the grid names its holder, %v, and nothing else", other.what, id)
		}
	}
	if !named {
		return fmt.Errorf("the request names no holder; create it with the subject CN=%v, so that it cannot be confused with another", id)
	}
	return nil
}

// checkExtensions returns an error if a request contains an extension that is not permitted.
func checkExtensions(extensions []pkix.Extension) error {
	for _, e := range extensions {
		switch {
		case e.Id.Equal(oidBasicConstraints):
			var b struct {
				CA      bool `asn1:"optional"`
				PathLen int  `asn1:"optional,default:-1"`
			}
			if rest, err := asn1.Unmarshal(e.Value, &b); err != nil || len(rest) > 0 {
				return errors.New("the request's basic constraints cannot be read")
			}
			if b.CA {
				return errors.New("the request is for an authority (CA:TRUE), which only the grid's own CA is; for a broker that issues certificates see isthmus ca issuer")
			}
		case e.Id.Equal(oidKeyUsage):
			var usage asn1.BitString
			if rest, err := asn1.Unmarshal(e.Value, &usage); err != nil || len(rest) > 0 {
				return errors.New("the request's key usage cannot be read")
			}
			const certSign, crlSign = 5, 6 // RFC 5280, section 4.2.1.3
			if usage.At(certSign) != 0 || usage.At(crlSign) != 0 {
				return errors.New("the request is for a key that signs certificates or revocation lists, which only the grid's CA does")
			}
		case e.Id.Equal(oidSubjectAltName):
			if err := altNames(e.Value); err != nil {
				return err
			}
		case e.Id.Equal(oidSubjectKeyID), e.Id.Equal(oidExtKeyUsage):
			// These are the same in every certificate of the grid.
		default:
			return fmt.Errorf("the request asks for the extension %v, which no certificate of the grid has", e.Id)
		}
	}
	return nil
}

// altNames finds alternative names of kinds that package x509 ignores.
func altNames(der []byte) error {
	var seq asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &seq); err != nil || len(rest) > 0 || !seq.IsCompound || seq.Tag != asn1.TagSequence {
		return errors.New("the request's alternative names cannot be read")
	}
	const uri = 6 // RFC 5280, section 4.2.1.6
	for rest := seq.Bytes; len(rest) > 0; {
		var name asn1.RawValue
		var err error
		if rest, err = asn1.Unmarshal(rest, &name); err != nil {
			return errors.New("the request's alternative names cannot be read")
		}
		if name.Class != asn1.ClassContextSpecific || name.Tag != uri {
			return fmt.Errorf("the request has an alternative name of kind %d; only a URI that says who it is for is allowed", name.Tag)
		}
	}
	return nil
}

// Sign issues a certificate for an externally created key, PEM, valid until the given time. See
// ReadRequest.
func (a *CA) Sign(pub crypto.PublicKey, id control.Identity, notAfter time.Time, projects ...string) ([]byte, error) {
	if err := checkKey(pub); err != nil {
		return nil, err
	}
	if own, ok := pub.(*ecdsa.PublicKey); ok && own.Equal(a.key.Public()) {
		return nil, errors.New("the key to certify is the CA's own")
	}
	if notAfter.After(a.cert.NotAfter) {
		return nil, fmt.Errorf("the certificate would outlive the CA, which ends at %s", a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	now := time.Now()
	der, err := sign(a.cert, a.key, pub, Grant{ID: id, Projects: projects, Enrolled: now, NotAfter: notAfter}, now)
	if err != nil {
		return nil, err
	}
	return pemOf("CERTIFICATE", der), nil
}
