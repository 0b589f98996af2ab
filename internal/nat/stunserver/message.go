package stunserver

import (
	"encoding/binary"
	"net/netip"

	"github.com/pion/stun/v4"
)

// maxUnknown bounds the attributes that a refusal names. A request is refused
// for the first already.
const maxUnknown = 8

// Lengths in bytes.
const (
	headerLen      = 20 // of a message's header
	fingerprintLen = 8  // of a FINGERPRINT attribute with its header
)

// A verdict is the fate of a datagram.
type verdict uint8

const (
	answer        verdict = iota // a Binding request: answer it
	refuse                       // a Binding request that demands something unknown: answer 420
	dropForeign                  // no STUN message of RFC 8489 at all
	dropMessage                  // a STUN message, but no Binding request
	dropMalformed                // a request whose lengths or fingerprint are wrong
	verdicts
)

// A request is the part of a request that determines the reply.
type request struct {
	stun.Message
	padded      bool                   // the asker sent padding, so the reply is made as long as the request
	fingerprint bool                   // the asker sent one, so the reply carries one
	unknown     stun.UnknownAttributes // attributes that must be understood and are not
}

// classify reads a datagram. The result refers to b, and does not change it.
func classify(b []byte) (request, verdict) {
	r := request{Message: stun.Message{Raw: b}}
	if !stun.IsMessage(b) || b[0]&0xc0 != 0 {
		return r, dropForeign
	}
	if binary.BigEndian.Uint16(b) != stun.BindingRequest.Value() {
		return r, dropMessage
	}
	if err := r.Decode(); err != nil || len(b) != headerLen+int(r.Length) { // Decode lets more follow
		return r, dropMalformed
	}
	return r, r.attributes()
}

// attributes looks at those of a message that was decoded: all up to
// MESSAGE-INTEGRITY, and after it those that section 14.5 lets follow.
func (r *request) attributes() verdict {
	for _, a := range r.Attributes {
		switch {
		case a.Type == stun.AttrFingerprint:
			// It must be the last one, which Check supposes.
			if len(a.Value) != 4 || &a.Value[0] != &r.Raw[len(r.Raw)-4] || stun.Fingerprint.Check(&r.Message) != nil {
				return dropMalformed
			}
			r.fingerprint = true
		case a.Type == stun.AttrPadding:
			r.padded = true
		case a.Type.Required() && !understood(a.Type) && len(r.unknown) < maxUnknown:
			r.unknown = append(r.unknown, a.Type)
		}
	}
	if len(r.unknown) > 0 {
		return refuse
	}
	return answer
}

// understood reports whether a Binding request may carry the attribute. This
// server asks for no credentials, so those sent unasked mean nothing to it.
// XOR-MAPPED-ADDRESS is known and not expected, which section 6.3 has ignored;
// Decode also names the optional attribute so that it replaced (0x8020).
func understood(kind stun.AttrType) bool {
	switch kind {
	case stun.AttrUsername, stun.AttrMessageIntegrity, stun.AttrRealm, stun.AttrNonce, stun.AttrMessageIntegritySHA256,
		stun.AttrPasswordAlgorithm, stun.AttrUserhash, stun.AttrPriority, stun.AttrUseCandidate, stun.AttrXORMappedAddress:
		return true
	}
	return false
}

// appendReply appends the reply to r, which came from the given address, with only what the asker
// needs: it is 12 bytes longer than an empty request for IPv4, 24 for IPv6. Padding brings it up
// to the size of the request and not beyond, so that the server does not amplify traffic.
func (r *request) appendReply(b []byte, from netip.AddrPort) []byte {
	m := stun.Message{Raw: b, Type: stun.BindingSuccess, TransactionID: r.TransactionID}
	if len(r.unknown) > 0 {
		m.Type = stun.BindingError
	}
	m.WriteHeader()
	// The attributes fail to be added for values that are not met here only,
	// such as an address of another length than 4 or 16.
	if m.Type == stun.BindingError {
		stun.ErrorCodeAttribute{Code: stun.CodeUnknownAttribute}.AddTo(&m) // without a phrase
		r.unknown.AddTo(&m)
	} else {
		stun.XORMappedAddress{IP: from.Addr().Unmap().AsSlice(), Port: int(from.Port())}.AddTo(&m)
		if n := r.room(len(m.Raw)); n >= 0 {
			m.Add(stun.AttrPadding, make([]byte, n))
		}
	}
	if r.fingerprint {
		stun.Fingerprint.AddTo(&m)
	}
	return m.Raw
}

// room returns the number of bytes of padding that a reply of have bytes may carry; negative if
// not even an empty attribute fits.
func (r *request) room(have int) int {
	if !r.padded {
		return -1
	}
	if r.fingerprint {
		have += fingerprintLen
	}
	return len(r.Raw) - have - 4
}
