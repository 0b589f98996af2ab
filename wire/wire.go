// Package wire holds every frame of the data plane and of the socket between a process and its
// helper: layout, encode, decode, and nothing else. It opens no socket, checks no permission and
// keeps no state. docs/protocol.md says when each frame is sent and what the receiver does.
//
// A frame is a six-byte header and a body of at most MaxBody bytes, all integers big-endian:
//
//	magic[2]="IS" version:u8 type:u8 length:u16 body[length]
//
// In the layouts below str8 and str16 are strings after a length of one and two bytes. A body that
// is shorter or longer than its layout is an error, never padding; new fields need a new version or
// a feature bit. A receiver skips a frame of an unknown type with OptionalBit set; any other
// unknown type ends the connection.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Type is the type of a frame.
type Type uint8

// The frame types. OptionalBit says what an older peer does with a new type.
const (
	// First frames of a data connection, before any payload.
	TypeIntro       = Type(0x01) // kind:u8 id[16] job:str8 rank:u32 site:str8 node:str8 technique:u8 via:u8
	TypeTicket      = Type(0x02) // link[16] end:u8 job:str8 asker:u32 target:u32 proxy:str8 expires:u64(unix ms) limit:u64(bytes, 0 none) mac[32]
	TypeNamedTicket = Type(0x06) // link[16] end:u8 job:str8 asker:u32 target:u32 proxy:str8 expires:u64 limit:u64 user:str8 project:str8 mac[32]

	// limit:u64 as above, followed by the allowances of policies, n from 1 to 2.
	TypeLimitedTicket = Type(0x07) // link[16] end:u8 job:str8 asker:u32 target:u32 proxy:str8 expires:u64 limit:u64 user:str8 project:str8 n:u8 {site:str8 rule:str8 owner:str8 contact:str8 links:u32 rate:u64(bit/s) month:u64(bytes)}[n] mac[32]

	TypeRefuse = Type(0x03) // code:u8 by:str8 text:str16

	// First and only frames of a connection that asks for its source address.
	TypeObserve  = Type(0x04) // nothing
	TypeObserved = Type(0x05) // ip[16] port:u16 time:u64(unix us)

	// First frame of a connection to a proxy that carries several relays; yamux follows.
	TypeShare = Type(0x08) // nothing

	// Between the two processes of a link.
	TypeHello = Type(0x10) // features:u32 job:str8 from:u32 to:u32 generation:u64 site:str8 dialled:u8 link[16] again:u8 nonce[32]
	TypeProof = Type(0x11) // received:u64 mac[32]

	TypePadding = Type(0x92) // n:u16 zeros[n] ; before a hello

	// Between a process and its helper, over a Unix socket.
	TypeLocalHello    = Type(0x2d) // features:u32 key[32] job:str8 rank:u32 generation:u64
	TypeLocalPlace    = Type(0x2e) // site:str8 node:str8 generation:u64
	TypeLocalProof    = Type(0x2f) // signature[64]
	TypeLocalWelcome  = Type(0x21) // features:u32 site:str8 node:str8
	TypeLocalDial     = Type(0x22) // request:u32 rank:u32 budget:u32(ms) ways:u8
	TypeLocalCancel   = Type(0x23) // request:u32
	TypeLocalDialled  = Type(0x24) // request:u32 carrier:u64 bits:u8 idle:u32(s) path ; one descriptor
	TypeLocalFailed   = Type(0x25) // request:u32 code:u8 text:str16
	TypeLocalIncoming = Type(0x26) // carrier:u64 bits:u8 idle:u32(s) path ; one descriptor
	TypeLocalFault    = Type(0x27) // carrier:u64 code:u8 text:str16
	TypeLocalLeave    = Type(0x28) // (nothing)
	TypeLocalDead     = Type(0xa9) // n:u16 ranks[n]:u32 text:str16
	TypeLocalGrant    = Type(0xaa) // n:u16 grant[n]
	TypeLocalOutcome  = Type(0xac) // carrier:u64 code:u8 text:str16
	TypeLocalReserve  = Type(0xad) // rank:u32 generation:u64
	TypeLocalTraffic  = Type(0xab) // link[16] rank:u32 site:str8 node:str8 technique:u8 sent:u64 received:u64 lasted:u64(ms) over:u8

	// The same, for names by which processes of other jobs find this one.
	TypeLocalPublish   = Type(0x29) // request:u32 again:u8 name:str8 port:str16
	TypeLocalUnpublish = Type(0x2a) // request:u32 name:str8
	TypeLocalLookup    = Type(0x2b) // request:u32 budget:u32(ms) name:str8
	TypeLocalNamed     = Type(0x2c) // request:u32 port:str16

	// First frame of a control connection, both ways, before yamux.
	TypeControlHello = Type(0x30) // oldest:u8 newest:u8 features:u32 software:str8

	// The only frames of a connection on which a certificate is requested.
	TypeEnrol    = Type(0x31) // token:str16 request:str16
	TypeEnrolled = Type(0x32) // n:u8 certificates[n]:str16
)

// OptionalBit marks types that a receiver which does not know them skips.
const OptionalBit = Type(0x80)

// Version is the version of every layout in this package. A peer with another version is refused
// with CodeVersion.
const Version = 1

// HeaderLen is the size of a frame's header and MaxBody the longest body, both
// in bytes.
const (
	HeaderLen = 6
	MaxBody   = 4096
)

// Errors of frames. Errors of this package wrap one of these.
var (
	ErrMagic     = errors.New("not an Isthmus frame")
	ErrVersion   = errors.New("unknown protocol version")
	ErrType      = errors.New("unexpected frame")
	ErrMalformed = errors.New("malformed frame")
)

// Frame is implemented by the frame types of this package.
type Frame interface {
	Type() Type
	appendBody([]byte) []byte
}

// decoder is a frame that can be decoded.
type decoder interface {
	Frame
	decodeBody(*reader)
}

// Append appends the encoded frame to dst and returns the extended slice. It panics when a string
// or the body exceeds its bound: senders check their names, so that would be a bug of this program.
func Append(dst []byte, f Frame) []byte {
	start := len(dst)
	dst = append(dst, 'I', 'S', Version, byte(f.Type()), 0, 0)
	dst = f.appendBody(dst)
	n := len(dst) - start - HeaderLen
	if n > MaxBody {
		panic(fmt.Sprintf("wire: %v body of %d bytes", f.Type(), n))
	}
	binary.BigEndian.PutUint16(dst[start+4:], uint16(n))
	return dst
}

// Header is a decoded frame header.
type Header struct {
	Type   Type
	Length int // of the body, at most MaxBody
}

// ParseHeader decodes the first HeaderLen bytes of a frame.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, fmt.Errorf("%w: header of %d bytes", ErrMalformed, len(b))
	}
	if b[0] != 'I' || b[1] != 'S' {
		return Header{}, fmt.Errorf("%w: it starts with % x", ErrMagic, b[:2])
	}
	if b[2] != Version {
		return Header{}, fmt.Errorf("%w: the peer speaks version %d, this side %d", ErrVersion, b[2], Version)
	}
	h := Header{Type: Type(b[3]), Length: int(binary.BigEndian.Uint16(b[4:]))}
	if h.Length > MaxBody {
		return Header{}, fmt.Errorf("%w: %v says it has %d bytes, at most %d are allowed", ErrMalformed, h.Type, h.Length, MaxBody)
	}
	return h, nil
}

// Read reads one frame and not a byte more, so that what follows it can be handed on or spliced. It
// skips unknown frames whose type has OptionalBit. An end of input before the first byte is io.EOF,
// one inside a frame io.ErrUnexpectedEOF.
func Read(r io.Reader) (Frame, error) {
	var buf [HeaderLen + MaxBody]byte
	for {
		if _, err := io.ReadFull(r, buf[:HeaderLen]); err != nil {
			return nil, err
		}
		h, err := ParseHeader(buf[:HeaderLen])
		if err != nil {
			return nil, err
		}
		body := buf[HeaderLen : HeaderLen+h.Length]
		if _, err := io.ReadFull(r, body); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		f, err := DecodeBody(h.Type, body)
		if errors.Is(err, ErrType) && h.Type&OptionalBit != 0 {
			continue
		}
		return f, err
	}
}

// DecodeBody decodes the body of a frame of type t. The result shares no
// memory with body.
func DecodeBody(t Type, body []byte) (Frame, error) {
	f := newFrame(t)
	if f == nil {
		return nil, fmt.Errorf("%w: type %#02x", ErrType, uint8(t))
	}
	r := reader{of: t, unread: body}
	f.decodeBody(&r)
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("%w: %v: %w", ErrMalformed, t, err)
	}
	return f, nil
}

func newFrame(t Type) decoder {
	switch t {
	case TypeIntro:
		return new(Intro)
	case TypeTicket, TypeNamedTicket, TypeLimitedTicket:
		return new(Ticket)
	case TypeRefuse:
		return new(Refuse)
	case TypeObserve:
		return new(Observe)
	case TypeObserved:
		return new(Observed)
	case TypeShare:
		return new(Share)
	case TypeHello:
		return new(Hello)
	case TypePadding:
		return new(Padding)
	case TypeProof:
		return new(Proof)
	case TypeLocalHello:
		return new(LocalHello)
	case TypeLocalPlace:
		return new(LocalPlace)
	case TypeLocalProof:
		return new(LocalProof)
	case TypeLocalWelcome:
		return new(LocalWelcome)
	case TypeLocalDial:
		return new(LocalDial)
	case TypeLocalCancel:
		return new(LocalCancel)
	case TypeLocalDialled:
		return new(LocalDialled)
	case TypeLocalFailed:
		return new(LocalFailed)
	case TypeLocalIncoming:
		return new(LocalIncoming)
	case TypeLocalFault:
		return new(LocalFault)
	case TypeLocalLeave:
		return new(LocalLeave)
	case TypeLocalPublish:
		return new(LocalPublish)
	case TypeLocalUnpublish:
		return new(LocalUnpublish)
	case TypeLocalLookup:
		return new(LocalLookup)
	case TypeLocalNamed:
		return new(LocalNamed)
	case TypeLocalDead:
		return new(LocalDead)
	case TypeLocalGrant:
		return new(LocalGrant)
	case TypeLocalTraffic:
		return new(LocalTraffic)
	case TypeLocalOutcome:
		return new(LocalOutcome)
	case TypeLocalReserve:
		return new(LocalReserve)
	case TypeControlHello:
		return new(ControlHello)
	case TypeEnrol:
		return new(Enrol)
	case TypeEnrolled:
		return new(Enrolled)
	}
	return nil
}

var typeNames = map[Type]string{
	TypeIntro: "intro", TypeTicket: "ticket", TypeNamedTicket: "named ticket", TypeLimitedTicket: "limited ticket", TypeRefuse: "refuse", TypeHello: "hello", TypeProof: "proof", TypePadding: "padding",
	TypeObserve: "observe", TypeObserved: "observed", TypeShare: "share",
	TypeLocalHello: "local hello", TypeLocalPlace: "local place", TypeLocalProof: "local proof", TypeLocalWelcome: "local welcome", TypeLocalDial: "local dial",
	TypeLocalCancel: "local cancel", TypeLocalDialled: "local dialled", TypeLocalFailed: "local failed",
	TypeLocalPublish: "local publish", TypeLocalUnpublish: "local unpublish", TypeLocalLookup: "local lookup", TypeLocalNamed: "local named",
	TypeLocalIncoming: "local incoming", TypeLocalFault: "local fault", TypeLocalLeave: "local leave", TypeLocalDead: "local dead", TypeLocalGrant: "local grant", TypeLocalTraffic: "local traffic", TypeLocalOutcome: "local outcome", TypeLocalReserve: "local reserve", TypeControlHello: "control hello",
	TypeEnrol: "enrol", TypeEnrolled: "enrolled",
}

// String returns the frame's name.
func (t Type) String() string {
	if s, ok := typeNames[t]; ok {
		return s
	}
	return fmt.Sprintf("type %#02x", uint8(t))
}
