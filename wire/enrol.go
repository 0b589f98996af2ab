package wire

import (
	"encoding/binary"
	"fmt"
)

// MaxCertificate bounds a certificate, or a request for one, in these frames, in bytes, and
// MaxToken a token. A token and a request must fit into one body: the request for a key of 256 bits
// takes about 200 bytes.
const (
	MaxCertificate = 2048
	MaxToken       = 3584
)

// Enrol requests a certificate: with a token, or for a renewal with neither token nor request, over
// TLS with the old certificate.
type Enrol struct {
	Token   string // as issued by the CA's administrator or an identity provider; at most MaxToken
	Request []byte // PKCS #10 in DER; at most MaxCertificate
}

// Type implements Frame.
func (*Enrol) Type() Type { return TypeEnrol }

func (f *Enrol) appendBody(b []byte) []byte {
	b = appendBlob(b, []byte(f.Token), MaxToken)
	return appendBlob(b, f.Request, MaxCertificate)
}

func (f *Enrol) decodeBody(r *reader) {
	f.Token = string(r.blob(MaxToken))
	f.Request = r.blob(MaxCertificate)
}

// Enrolled answers Enrol; a Refuse reports failures.
type Enrolled struct {
	Certificates [][]byte // DER, the new one first, then those up to the root; at most 4, each at most MaxCertificate
}

// maxCertificates bounds the certificates of an Enrolled.
const maxCertificates = 4

// Type implements Frame.
func (*Enrolled) Type() Type { return TypeEnrolled }

func (f *Enrolled) appendBody(b []byte) []byte {
	if len(f.Certificates) > maxCertificates {
		panic(fmt.Sprintf("wire: %d certificates", len(f.Certificates)))
	}
	b = append(b, byte(len(f.Certificates)))
	for _, c := range f.Certificates {
		b = appendBlob(b, c, MaxCertificate)
	}
	return b
}

func (f *Enrolled) decodeBody(r *reader) {
	n := int(r.u8())
	if (n == 0 || n > maxCertificates) && r.err == nil {
		r.err = fmt.Errorf("%d certificates", n)
	}
	for range n {
		if r.err != nil {
			return
		}
		f.Certificates = append(f.Certificates, r.blob(MaxCertificate))
	}
}

// appendBlob appends a two-byte length and the bytes.
func appendBlob(b, blob []byte, most int) []byte {
	if len(blob) > most {
		panic(fmt.Sprintf("wire: %d bytes where at most %d are allowed", len(blob), most))
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(blob)))
	return append(b, blob...)
}

// blob returns a copy of the bytes after a two-byte length; nil if there are none.
func (r *reader) blob(most int) []byte {
	n := int(r.u16())
	if n > most && r.err == nil {
		r.err = fmt.Errorf("%d bytes, at most %d are allowed", n, most)
	}
	return append([]byte(nil), r.take(n)...)
}
