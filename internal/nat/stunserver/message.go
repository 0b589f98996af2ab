package stunserver

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// The parts of RFC 8489 that a Binding server needs.
const (
	headerLen   = 20
	magicCookie = 0x2112A442

	bindingRequest = 0x0001 // sections 5 and 18.1
	bindingSuccess = 0x0101
	bindingError   = 0x0111

	attrUsername         = 0x0006 // section 18.3
	attrMessageIntegrity = 0x0008
	attrErrorCode        = 0x0009
	attrUnknown          = 0x000A
	attrRealm            = 0x0014
	attrNonce            = 0x0015
	attrIntegritySHA256  = 0x001C
	attrPasswordAlgo     = 0x001D
	attrUserhash         = 0x001E
	attrXORMappedAddress = 0x0020
	attrPriority         = 0x0024 // RFC 8445 section 16.1
	attrUseCandidate     = 0x0025
	attrPadding          = 0x0026 // RFC 5780 section 7.6
	attrFingerprint      = 0x8028

	firstOptional  = 0x8000     // attributes from here on may be ignored
	fingerprintXOR = 0x5354554e // section 14.7
	maxUnknown     = 8          // attributes named in a refusal; a request is refused for the first already
)

// A verdict says what becomes of a datagram.
type verdict uint8

const (
	answer        verdict = iota // a Binding request: answer it
	refuse                       // a Binding request that demands something unknown: answer 420
	dropForeign                  // no STUN message of RFC 8489 at all
	dropMessage                  // a STUN message, but no Binding request
	dropMalformed                // a request whose lengths or fingerprint are wrong
	verdicts
)

// A request is what a reply depends on.
type request struct {
	transaction [12]byte
	size        int      // of the datagram
	padded      bool     // the asker sent padding, so the reply is made as long as the request
	fingerprint bool     // the asker sent one, so the reply carries one
	unknown     []uint16 // attributes that must be understood and are not
}

// classify reads a datagram. The result does not refer to b.
func classify(b []byte) (request, verdict) {
	var r request
	if len(b) < headerLen || b[0]&0xc0 != 0 || binary.BigEndian.Uint32(b[4:]) != magicCookie {
		return r, dropForeign
	}
	if binary.BigEndian.Uint16(b) != bindingRequest {
		return r, dropMessage
	}
	if length := int(binary.BigEndian.Uint16(b[2:])); length%4 != 0 || headerLen+length != len(b) {
		return r, dropMalformed
	}
	copy(r.transaction[:], b[8:headerLen])
	r.size = len(b)
	return r, r.attributes(b)
}

// attributes walks over those of the whole message b.
func (r *request) attributes(b []byte) verdict {
	for at := headerLen; at < len(b); {
		if r.fingerprint {
			return dropMalformed // it must be the last one
		}
		if len(b)-at < 4 {
			return dropMalformed
		}
		kind, length := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+2:]))
		value := at + 4
		end := value + (length+3)&^3
		if end > len(b) {
			return dropMalformed
		}
		switch {
		case kind == attrFingerprint:
			if length != 4 || binary.BigEndian.Uint32(b[value:]) != crc32.ChecksumIEEE(b[:at])^fingerprintXOR {
				return dropMalformed
			}
			r.fingerprint = true
		case kind == attrPadding:
			r.padded = true
		case kind < firstOptional && !understood(kind) && len(r.unknown) < maxUnknown:
			r.unknown = append(r.unknown, kind)
		}
		at = end
	}
	if len(r.unknown) > 0 {
		return refuse
	}
	return answer
}

// understood reports whether a Binding request may carry the attribute. This
// server asks for no credentials, so those sent unasked mean nothing to it.
func understood(kind uint16) bool {
	switch kind {
	case attrUsername, attrMessageIntegrity, attrRealm, attrNonce, attrIntegritySHA256,
		attrPasswordAlgo, attrUserhash, attrPriority, attrUseCandidate:
		return true
	}
	return false
}

// appendReply appends the reply to r, which came from the given address, and
// nothing that the asker can do without: 12 bytes more than an empty request
// for IPv4, 24 for IPv6. Padding brings it to the request's size and not over,
// so that nobody gets more out of it than he puts in.
func appendReply(b []byte, r request, from netip.AddrPort) []byte {
	kind := uint16(bindingSuccess)
	if len(r.unknown) > 0 {
		kind = bindingError
	}
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = append(b, 0, 0) // the length, below
	b = binary.BigEndian.AppendUint32(b, magicCookie)
	b = append(b, r.transaction[:]...)
	if kind == bindingError {
		b = appendUnknown(b, r.unknown)
	} else {
		b = appendMapped(b, r.transaction, from)
		b = appendPadding(b, r.room(len(b)-start))
	}
	if r.fingerprint {
		setLength(b[start:], 8)
		sum := crc32.ChecksumIEEE(b[start:]) ^ fingerprintXOR
		b = binary.BigEndian.AppendUint16(b, attrFingerprint)
		b = binary.BigEndian.AppendUint16(b, 4)
		b = binary.BigEndian.AppendUint32(b, sum)
	}
	setLength(b[start:], 0)
	return b
}

// setLength sets the length field of message m, to which more bytes will be
// added.
func setLength(m []byte, more int) {
	binary.BigEndian.PutUint16(m[2:], uint16(len(m)-headerLen+more))
}

// appendMapped appends XOR-MAPPED-ADDRESS (section 14.2).
func appendMapped(b []byte, transaction [12]byte, from netip.AddrPort) []byte {
	addr := from.Addr().Unmap()
	family := byte(1)
	if addr.Is6() {
		family = 2
	}
	raw := addr.AsSlice()
	b = binary.BigEndian.AppendUint16(b, attrXORMappedAddress)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(raw)))
	b = append(b, 0, family)
	b = binary.BigEndian.AppendUint16(b, from.Port()^magicCookie>>16)
	key := append(binary.BigEndian.AppendUint32(nil, magicCookie), transaction[:]...)
	for i := range raw {
		b = append(b, raw[i]^key[i])
	}
	return b
}

// room is how many bytes of padding a reply that has so many bytes may carry;
// negative if not even an empty attribute fits.
func (r request) room(have int) int {
	if !r.padded {
		return -1
	}
	if r.fingerprint {
		have += 8
	}
	return r.size - have - 4
}

// appendPadding appends PADDING of n bytes, or nothing if n is negative.
func appendPadding(b []byte, n int) []byte {
	if n < 0 {
		return b
	}
	b = binary.BigEndian.AppendUint16(b, attrPadding)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	return append(b, make([]byte, n)...)
}

// appendUnknown appends ERROR-CODE 420, without a phrase, and
// UNKNOWN-ATTRIBUTES (sections 14.8 and 14.13).
func appendUnknown(b []byte, unknown []uint16) []byte {
	b = binary.BigEndian.AppendUint16(b, attrErrorCode)
	b = append(b, 0, 4, 0, 0, 4, 20)
	b = binary.BigEndian.AppendUint16(b, attrUnknown)
	b = binary.BigEndian.AppendUint16(b, uint16(2*len(unknown)))
	for _, kind := range unknown {
		b = binary.BigEndian.AppendUint16(b, kind)
	}
	if len(unknown)%2 == 1 {
		b = append(b, 0, 0)
	}
	return b
}
