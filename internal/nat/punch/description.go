package punch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Bounds of a description.
const (
	MaxDescription = 512 // bytes
	MaxCandidates  = 8

	minUfrag, maxUfrag       = 4, 32 // RFC 8839 section 5.4 has the lower ones
	minPassword, maxPassword = 22, 64
)

// descriptionVersion is the first byte of a description. A description of another version is
// rejected with an error that says so, not misread.
const descriptionVersion = 1

// ErrMalformed is wrapped by errors about a description that cannot be decoded.
var ErrMalformed = errors.New("malformed description")

// Kind is how an end knows a candidate.
type Kind uint8

// The kinds, by their numbers on the wire.
const (
	Host   Kind = 1 // the socket's own address
	Mapped Kind = 2 // as seen by a STUN server; ICE calls it server-reflexive
)

// String returns the kind in one word.
func (k Kind) String() string {
	switch k {
	case Host:
		return "host"
	case Mapped:
		return "mapped"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// A Candidate is an address at which an end may be reached.
type Candidate struct {
	Kind Kind
	Addr netip.AddrPort // never IPv4 in IPv6, no zone
}

// String returns "mapped 192.0.2.1:5000".
func (c Candidate) String() string { return c.Kind.String() + " " + c.Addr.String() }

// A Description is one end's message to the other.
//
//	version:u8 flags:u8(1 controlling) ufrag:str8 password:str8 fingerprint[32]
//	count:u8 { kind:u8 family:u8(4,6) address[4|16] port:u16 }
//
// str8 is a length byte and as many bytes; numbers are big-endian.
type Description struct {
	Controlling     bool
	Ufrag, Password string   // of ICE
	Fingerprint     [32]byte // SHA-256 of the certificate that the end presents in QUIC
	Candidates      []Candidate
}

// Append appends the encoding, at most MaxDescription bytes, to b.
func (d Description) Append(b []byte) []byte {
	flags := byte(0)
	if d.Controlling {
		flags = 1
	}
	b = append(b, descriptionVersion, flags, byte(len(d.Ufrag)))
	b = append(b, d.Ufrag...)
	b = append(b, byte(len(d.Password)))
	b = append(b, d.Password...)
	b = append(b, d.Fingerprint[:]...)
	b = append(b, byte(len(d.Candidates)))
	for _, c := range d.Candidates {
		family := byte(6)
		if c.Addr.Addr().Is4() {
			family = 4
		}
		b = append(b, byte(c.Kind), family)
		b = append(b, c.Addr.Addr().AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, c.Addr.Port())
	}
	return b
}

// ParseDescription decodes what Append produced. The error wraps ErrMalformed. The result does not
// refer to b.
func ParseDescription(b []byte) (Description, error) {
	if len(b) > MaxDescription {
		return Description{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrMalformed, len(b), MaxDescription)
	}
	r := reader{unread: b}
	if v := r.u8(); r.err == nil && v != descriptionVersion {
		return Description{}, fmt.Errorf("%w: version %d, this end speaks %d: use equal releases at both ends", ErrMalformed, v, descriptionVersion)
	}
	var d Description
	flags := r.u8()
	d.Controlling = flags == 1
	d.Ufrag = string(r.take(int(r.u8())))
	d.Password = string(r.take(int(r.u8())))
	copy(d.Fingerprint[:], r.take(len(d.Fingerprint)))
	n := int(r.u8())
	if n > MaxCandidates {
		return Description{}, fmt.Errorf("%w: %d candidates, at most %d are allowed", ErrMalformed, n, MaxCandidates)
	}
	for range n {
		d.Candidates = append(d.Candidates, r.candidate())
	}
	switch {
	case r.err != nil:
		return Description{}, r.err
	case len(r.unread) > 0:
		return Description{}, fmt.Errorf("%w: %d bytes follow its end", ErrMalformed, len(r.unread))
	case flags > 1:
		return Description{}, fmt.Errorf("%w: unknown flags %#x", ErrMalformed, flags)
	case !iceText(d.Ufrag, minUfrag, maxUfrag), !iceText(d.Password, minPassword, maxPassword):
		return Description{}, fmt.Errorf("%w: its ICE credentials are too short, too long or no ICE characters", ErrMalformed)
	}
	return d, nil
}

// iceText reports whether s has the length and the characters of RFC 8839 section 5.4.
func iceText(s string, least, most int) bool {
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	return len(s) >= least && len(s) <= most && strings.Trim(s, chars) == ""
}

// reader decodes a description and remembers its first error.
type reader struct {
	unread []byte
	err    error
}

// take returns the next n bytes, which are still the input's, or as many zeros after an error.
func (r *reader) take(n int) []byte {
	if r.err == nil && n > len(r.unread) {
		r.err = fmt.Errorf("%w: it ends early", ErrMalformed)
	}
	if r.err != nil {
		return make([]byte, n)
	}
	b := r.unread[:n]
	r.unread = r.unread[n:]
	return b
}

func (r *reader) u8() uint8 { return r.take(1)[0] }

func (r *reader) candidate() Candidate {
	kind, family := Kind(r.u8()), r.u8()
	size := 16
	if family == 4 {
		size = 4
	}
	addr, _ := netip.AddrFromSlice(r.take(size))
	port := binary.BigEndian.Uint16(r.take(2))
	if r.err == nil && (kind != Host && kind != Mapped || family != 4 && family != 6 || addr.Is4In6() || port == 0) {
		r.err = fmt.Errorf("%w: a candidate of kind %d, family %d, %v port %d", ErrMalformed, kind, family, addr, port)
	}
	return Candidate{kind, netip.AddrPortFrom(addr, port)}
}
