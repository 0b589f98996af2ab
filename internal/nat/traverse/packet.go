package traverse

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// The flags of a segment, RFC 9293 section 3.1.
const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
	flagECE = 0x40
	flagCWR = 0x80
)

// Lengths in bytes.
const (
	ipHeader  = 20
	ip6Header = 40
	tcpHeader = 20
	// MaxPacket bounds a packet with a TCP header and no payload.
	MaxPacket = 60 + 60
)

// protocolTCP is TCP's number in both versions of IP.
const protocolTCP = 6

// A Segment is a TCP segment over IPv4 or IPv6 that carries no data. Both addresses have the IP
// version that it is sent over.
type Segment struct {
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	Flags    uint8
	Window   uint16
	Options  []byte // as on the wire, padded to a multiple of four bytes, at most 40
}

// errPacket is wrapped by errors about a packet.
var errPacket = errors.New("not a TCP segment over IPv4 or IPv6")

func badPacket(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errPacket, fmt.Sprintf(format, args...))
}

// Parse decodes a packet. Bytes after it (padding of short frames) are ignored, and so are the
// checksums: the kernel leaves those of an outgoing packet to the network card. The result shares
// no memory with b.
func Parse(b []byte) (Segment, error) {
	if len(b) > 0 && b[0]>>4 == 6 {
		return parse6(b)
	}
	if len(b) < ipHeader || b[0]>>4 != 4 {
		return Segment{}, badPacket("%d bytes that are no IP header", len(b))
	}
	header, total := int(b[0]&0x0f)*4, int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case header < ipHeader || total < header+tcpHeader || total > len(b):
		return Segment{}, badPacket("a header of %d and a packet of %d bytes, of which %d came", header, total, len(b))
	case b[9] != protocolTCP:
		return Segment{}, badPacket("protocol %d", b[9])
	case binary.BigEndian.Uint16(b[6:])&0x3fff != 0:
		return Segment{}, badPacket("a fragment")
	}
	return parseTCP(b[header:total], netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])))
}

// parse6 decodes an IPv6 packet, RFC 8200 section 3. Extension headers are rejected, including
// fragments: no kernel puts any before a SYN by itself, and their effect would be lost on the way.
func parse6(b []byte) (Segment, error) {
	if len(b) < ip6Header {
		return Segment{}, badPacket("%d bytes that are no IPv6 header", len(b))
	}
	payload := int(binary.BigEndian.Uint16(b[4:]))
	switch {
	case payload < tcpHeader || ip6Header+payload > len(b):
		return Segment{}, badPacket("a payload of %d bytes, of which %d came", payload, len(b)-ip6Header)
	case b[6] != protocolTCP:
		return Segment{}, badPacket("next header %d", b[6])
	}
	src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	if src.Is4In6() || dst.Is4In6() {
		return Segment{}, badPacket("IPv4 addresses in IPv6, from %v to %v", src, dst)
	}
	return parseTCP(b[ip6Header:ip6Header+payload], src, dst)
}

// parseTCP decodes the TCP header t, of at least tcpHeader bytes.
func parseTCP(t []byte, src, dst netip.Addr) (Segment, error) {
	offset := int(t[12]>>4) * 4
	switch {
	case offset < tcpHeader || offset > len(t):
		return Segment{}, badPacket("a TCP header of %d in %d bytes", offset, len(t))
	case offset < len(t):
		return Segment{}, badPacket("%d bytes of data (TCP Fast Open?)", len(t)-offset)
	}
	return Segment{
		Src:     netip.AddrPortFrom(src, binary.BigEndian.Uint16(t)),
		Dst:     netip.AddrPortFrom(dst, binary.BigEndian.Uint16(t[2:])),
		Seq:     binary.BigEndian.Uint32(t[4:]),
		Ack:     binary.BigEndian.Uint32(t[8:]),
		Flags:   t[13],
		Window:  binary.BigEndian.Uint16(t[14:]),
		Options: bytes.Clone(t[tcpHeader:offset]),
	}, nil
}

// Append appends the segment as a packet, with its checksums, and returns the extended slice. The
// addresses must have one IP version and Options must be as documented; it panics otherwise, since
// Segments come from Parse.
func (s Segment) Append(dst []byte) []byte {
	if len(s.Options)%4 != 0 || len(s.Options) > 40 {
		panic(fmt.Sprintf("traverse: %d bytes of options", len(s.Options)))
	}
	start, size := len(dst), tcpHeader+len(s.Options)
	if s.Src.Addr().Is4() {
		dst = s.append4(dst, size)
		binary.BigEndian.PutUint16(dst[start+10:], fold(sum(0, dst[start:])))
	} else {
		dst = s.append6(dst, size)
	}
	// The pseudo headers of RFC 9293, section 3.1, and RFC 8200, section 8.1, have the same sum
	// except for the length of the addresses.
	pseudo := sum(uint32(size)+protocolTCP, s.Src.Addr().AsSlice())
	pseudo = sum(pseudo, s.Dst.Addr().AsSlice())

	at := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, s.Src.Port())
	dst = binary.BigEndian.AppendUint16(dst, s.Dst.Port())
	dst = binary.BigEndian.AppendUint32(dst, s.Seq)
	dst = binary.BigEndian.AppendUint32(dst, s.Ack)
	dst = append(dst, byte(size)/4<<4, s.Flags) // header length in words
	dst = binary.BigEndian.AppendUint16(dst, s.Window)
	dst = append(append(dst, 0, 0, 0, 0), s.Options...) // checksum, urgent pointer
	binary.BigEndian.PutUint16(dst[at+16:], fold(sum(pseudo, dst[at:])))
	return dst
}

// append4 appends an IPv4 header before size bytes, without its checksum.
func (s Segment) append4(dst []byte, size int) []byte {
	src, to := s.Src.Addr().As4(), s.Dst.Addr().As4()
	dst = append(dst, 0x45, 0) // version 4, header of 5 words
	dst = binary.BigEndian.AppendUint16(dst, uint16(ipHeader+size))
	dst = append(dst, 0, 0, 0x40, 0, 64, protocolTCP, 0, 0) // id 0, don't fragment, TTL 64, TCP, checksum
	return append(append(dst, src[:]...), to[:]...)
}

// append6 appends an IPv6 header before size bytes.
func (s Segment) append6(dst []byte, size int) []byte {
	src, to := s.Src.Addr().As16(), s.Dst.Addr().As16()
	dst = append(dst, 0x60, 0, 0, 0) // version 6, no traffic class, no flow label
	dst = binary.BigEndian.AppendUint16(dst, uint16(size))
	dst = append(dst, protocolTCP, 64) // next header, hop limit
	return append(append(dst, src[:]...), to[:]...)
}

// sum adds b to an unfinished checksum (RFC 1071); b has an even length.
func sum(acc uint32, b []byte) uint32 {
	for i := 0; i < len(b); i += 2 {
		acc += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return acc
}

// fold finishes a checksum.
func fold(acc uint32) uint16 {
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return ^uint16(acc)
}

// Rewrite returns the segment with other addresses.
func (s Segment) Rewrite(src, dst netip.AddrPort) Segment {
	s.Src, s.Dst = src, dst
	return s
}

// hasFlags reports whether, of SYN, ACK, FIN and RST, the segment has exactly flags.
func (s Segment) hasFlags(flags uint8) bool {
	return s.Flags&(flagSYN|flagACK|flagFIN|flagRST) == flags
}

// opener returns the bare ACK that a target sends outward before a SYN is injected. A tracker with
// loose pick-up takes it for the middle of a connection, and the kernel's SYN/ACK after it for more
// of the same. The client that receives it is in SYN-SENT and drops it silently, because it
// acknowledges the client's SYN (RFC 9293, section 3.10.7.3).
func opener(syn Segment) Segment {
	return Segment{Src: syn.Dst, Dst: syn.Src, Seq: syn.Seq, Ack: syn.Seq + 1, Flags: flagACK, Window: 1024}
}

// echo returns the kernel's SYN/ACK as a bare SYN: a first segment that every tracker understands.
// The client sees a simultaneous open with the same sequence number and options as in the SYN/ACK;
// there is no timestamp of the client to echo yet.
func echo(synack Segment) Segment {
	synack.Flags, synack.Ack = flagSYN, 0
	synack.Options = bytes.Clone(synack.Options)
	if ts := option(synack.Options, 8); len(ts) == 8 {
		clear(ts[4:])
	}
	return synack
}

// finish converts the SYN/ACK that a client in simultaneous open sends to the ACK that the target's
// kernel waits for. The window of a SYN is not scaled, that of an ACK is.
func finish(synack Segment) Segment {
	if scale := option(synack.Options, 3); len(scale) == 1 {
		synack.Window >>= min(scale[0], 14)
	}
	synack.Flags = flagACK
	synack.Seq++
	return synack
}

// option returns the value of the first option of a kind, as a slice of options, or nil.
func option(options []byte, kind byte) []byte {
	for len(options) > 0 {
		switch options[0] {
		case 0: // end of options
			return nil
		case 1: // no operation
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			return nil
		}
		n := int(options[1])
		if options[0] == kind {
			return options[2:n]
		}
		options = options[n:]
	}
	return nil
}
