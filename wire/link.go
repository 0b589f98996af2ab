package wire

import (
	"encoding/binary"
	"fmt"
)

// LinkKind says what follows a LinkHeader on a carrier of a link.
type LinkKind uint8

// The kinds. A carrier whose peer sends an unknown one is given up.
const (
	LinkData  LinkKind = 1 // Length bytes of the stream follow, the first of them at stream offset Offset
	LinkAck   LinkKind = 2 // nothing but Ack
	LinkPing  LinkKind = 3 // answer at once by LinkPong with the same Offset, a number that the sender chooses
	LinkPong  LinkKind = 4
	LinkFin   LinkKind = 5 // the stream ends before Offset
	LinkUse   LinkKind = 6 // Offset is the carrier's weight from now on, for both ends: its share of what is sent; 0: it stands by
	LinkAbort LinkKind = 7 // Length bytes of text follow: why the sender gives up the whole link; none: it has closed the link
)

// Flags of a LinkHeader.
const (
	// AckSoon asks the receiver to acknowledge before it waits for more, because a call at the
	// sender waits for the acknowledgement.
	AckSoon = 1

	// Padded says that 40 zero bytes stand between the header and its data. Large data is sent that
	// way: processors copy a page to a destination a few bytes further in another page at less than
	// half their speed (the addresses look as if they overlapped), which is what the system does
	// with data that begins a page after a short header.
	Padded = 2

	// Held says that the sender had more to send than its carriers took, or nearly a window in
	// flight, when it last checked.
	Held = 4
)

// PaddedLen is the size of an encoded LinkHeader and its padding.
const PaddedLen = LinkHeaderLen + 40

// LinkHeaderLen is the size of an encoded LinkHeader, MaxLinkData the maximum Length of LinkData
// and MaxAbortText that of LinkAbort, all in bytes.
const (
	LinkHeaderLen = 24
	MaxLinkData   = 1 << 20
	MaxAbortText  = 1 << 10
)

// LinkHeader precedes everything on a carrier after the handshake. Like the Envelope it is not a
// frame. Its layout, big-endian:
//
//	kind:u8 flags:u8 window:u16 length:u32 offset:u64 ack:u64
//
// Offset is zero with LinkAck and LinkAbort. Ack is in every header: the sender has received all
// bytes of the peer's stream before it. If Window is not zero the sender accepts everything before
// Ack + Window*WindowUnit, and does not revoke that; it is sent only to a peer with FeatureWindow.
type LinkHeader struct {
	Kind   LinkKind
	Flags  uint8
	Length uint32
	Offset uint64
	Ack    uint64
	Window uint16
}

// WindowUnit is the unit of LinkHeader.Window in bytes, and MaxLinkWindow its largest value.
const (
	WindowUnit    = 64 << 10
	MaxLinkWindow = 1 << 14
)

// Put encodes the header into the first LinkHeaderLen bytes of b.
func (h LinkHeader) Put(b []byte) {
	_ = b[LinkHeaderLen-1]
	b[0], b[1] = byte(h.Kind), h.Flags
	binary.BigEndian.PutUint16(b[2:], h.Window)
	binary.BigEndian.PutUint32(b[4:], h.Length)
	binary.BigEndian.PutUint64(b[8:], h.Offset)
	binary.BigEndian.PutUint64(b[16:], h.Ack)
}

// Size returns where the data of a LinkHeader begins: LinkHeaderLen or PaddedLen.
func (h LinkHeader) Size() int {
	if h.Flags&Padded != 0 {
		return PaddedLen
	}
	return LinkHeaderLen
}

// IsPadded reports whether the encoded LinkHeader at the start of b is Padded.
func IsPadded(b []byte) bool { return b[1]&Padded != 0 }

// ParseLinkHeader decodes the first LinkHeaderLen bytes of b and checks that they are what Put
// produces.
func ParseLinkHeader(b []byte) (LinkHeader, error) {
	if len(b) < LinkHeaderLen {
		return LinkHeader{}, fmt.Errorf("%w: link header of %d bytes", ErrMalformed, len(b))
	}
	h := LinkHeader{
		Kind: LinkKind(b[0]), Flags: b[1],
		Length: binary.BigEndian.Uint32(b[4:]),
		Offset: binary.BigEndian.Uint64(b[8:]),
		Ack:    binary.BigEndian.Uint64(b[16:]),
		Window: binary.BigEndian.Uint16(b[2:]),
	}
	if h.Window > MaxLinkWindow || h.Flags&^(AckSoon|Padded|Held) != 0 || h.Flags&Padded != 0 && h.Kind != LinkData {
		return LinkHeader{}, fmt.Errorf("%w: link header with flags %#02x and a window of %d units", ErrMalformed, h.Flags, h.Window)
	}
	if err := h.check(); err != nil {
		return LinkHeader{}, err
	}
	return h, nil
}

// check returns what is wrong with the fields, or nil.
func (h LinkHeader) check() error {
	most, offset := uint32(0), true
	switch h.Kind {
	case LinkData:
		most = MaxLinkData
	case LinkPing, LinkPong, LinkFin, LinkUse:
	case LinkAck:
		offset = false
	case LinkAbort:
		most, offset = MaxAbortText, false
	default:
		return fmt.Errorf("%w: link header of kind %d", ErrMalformed, h.Kind)
	}
	switch {
	case h.Length > most:
		return fmt.Errorf("%w: link header of kind %d with %d bytes, at most %d are allowed", ErrMalformed, h.Kind, h.Length, most)
	case h.Kind == LinkData && h.Length == 0:
		return fmt.Errorf("%w: data of no bytes", ErrMalformed)
	case !offset && h.Offset != 0:
		return fmt.Errorf("%w: link header of kind %d with an offset", ErrMalformed, h.Kind)
	case h.Kind == LinkData && h.Offset+uint64(h.Length) < h.Offset:
		return fmt.Errorf("%w: data beyond the end of all streams", ErrMalformed)
	}
	return nil
}
