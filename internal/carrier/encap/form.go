package encap

import "fmt"

// Form is the encapsulation of a connection.
type Form uint8

// The forms, in the order in which they are tried. WebSocketTLS is accepted, but not dialled: what
// lets TLS through does not see inside.
const (
	Plain        Form = iota
	TLS               // TLS 1.3
	WebSocket         // a WebSocket on a plain connection
	WebSocketTLS      // a WebSocket inside TLS
	Shared            // a stream of a connection in one of the other forms, which several relays share
)

var formNames = [...]string{"plain", "TLS", "WebSocket", "WebSocket over TLS", "shared"}

// String returns the form's name.
func (f Form) String() string {
	if int(f) < len(formNames) {
		return formNames[f]
	}
	return fmt.Sprintf("unknown(%d)", uint8(f))
}

// Note describes the form of a path; empty for the plain one.
func (f Form) Note() string {
	switch f {
	case Plain:
		return ""
	case Shared:
		return "over a connection to the proxy that relays share, as a NAT may have no room for more"
	}
	return "over " + f.String() + ", as plain connections to the proxy get no answer"
}

// The first bytes of connections, which distinguish the forms. A frame begins with the 'I' of its
// magic.
const (
	firstTLS  = 0x16 // a handshake record, RFC 8446 section 5.1
	firstHTTP = 'G'  // of GET
)
