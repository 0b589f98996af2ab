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
	tcpHeader = 20
	// MaxPacket bounds an IPv4 packet with a TCP header and no payload.
	MaxPacket = 60 + 60
)

// A Segment is a TCP segment over IPv4 that carries no data.
type Segment struct {
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	Flags    uint8
	Window   uint16
	Options  []byte // as on the wire, padded to a multiple of four bytes, at most 40
}

// errPacket wraps what is wrong with a packet.
var errPacket = errors.New("not a TCP segment over IPv4")

// Parse reads an IPv4 packet. Bytes behind it (padding of short frames) are
// ignored, and so are the checksums: the kernel leaves those of a packet that
// is about to leave to the network card. The result shares no memory with b.
func Parse(b []byte) (Segment, error) {
	bad := func(format string, args ...any) (Segment, error) {
		return Segment{}, fmt.Errorf("%w: %s", errPacket, fmt.Sprintf(format, args...))
	}
	if len(b) < ipHeader || b[0]>>4 != 4 {
		return bad("%d bytes that are no IPv4 header", len(b))
	}
	header, total := int(b[0]&0x0f)*4, int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case header < ipHeader || total < header+tcpHeader || total > len(b):
		return bad("a header of %d and a packet of %d bytes, of which %d came", header, total, len(b))
	case b[9] != 6:
		return bad("protocol %d", b[9])
	case binary.BigEndian.Uint16(b[6:])&0x3fff != 0:
		return bad("a fragment")
	}
	t := b[header:total]
	offset := int(t[12]>>4) * 4
	switch {
	case offset < tcpHeader || offset > len(t):
		return bad("a TCP header of %d in %d bytes", offset, len(t))
	case offset < len(t):
		return bad("%d bytes of data (TCP Fast Open?)", len(t)-offset)
	}
	return Segment{
		Src:     netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:16])), binary.BigEndian.Uint16(t)),
		Dst:     netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:20])), binary.BigEndian.Uint16(t[2:])),
		Seq:     binary.BigEndian.Uint32(t[4:]),
		Ack:     binary.BigEndian.Uint32(t[8:]),
		Flags:   t[13],
		Window:  binary.BigEndian.Uint16(t[14:]),
		Options: bytes.Clone(t[tcpHeader:offset]),
	}, nil
}

// Append appends the segment as an IPv4 packet, with both checksums, and
// returns the extended slice. Addresses must be IPv4 and Options as said; it
// panics otherwise, since Segments come from Parse.
func (s Segment) Append(dst []byte) []byte {
	if len(s.Options)%4 != 0 || len(s.Options) > 40 {
		panic(fmt.Sprintf("traverse: %d bytes of options", len(s.Options)))
	}
	start := len(dst)
	total := ipHeader + tcpHeader + len(s.Options)
	src, to := s.Src.Addr().As4(), s.Dst.Addr().As4()

	dst = append(dst, 0x45, 0)                              // version 4, header of 5 words
	dst = binary.BigEndian.AppendUint16(dst, uint16(total)) //
	dst = append(dst, 0, 0, 0x40, 0, 64, 6, 0, 0)           // id 0, don't fragment, TTL 64, TCP, checksum
	dst = append(append(dst, src[:]...), to[:]...)          //
	dst = binary.BigEndian.AppendUint16(dst, s.Src.Port())  //
	dst = binary.BigEndian.AppendUint16(dst, s.Dst.Port())  //
	dst = binary.BigEndian.AppendUint32(dst, s.Seq)         //
	dst = binary.BigEndian.AppendUint32(dst, s.Ack)         //
	dst = append(dst, byte(total-ipHeader)/4<<4, s.Flags)   // header length in words
	dst = binary.BigEndian.AppendUint16(dst, s.Window)      //
	dst = append(append(dst, 0, 0, 0, 0), s.Options...)     // checksum, urgent pointer

	ip, tcp := dst[start:start+ipHeader], dst[start+ipHeader:]
	binary.BigEndian.PutUint16(ip[10:], fold(sum(0, ip)))
	pseudo := sum(uint32(len(tcp))+6, ip[12:20]) // RFC 9293, section 3.1
	binary.BigEndian.PutUint16(tcp[16:], fold(sum(pseudo, tcp)))
	return dst
}

// sum adds b to a checksum under way (RFC 1071); b has an even length.
func sum(acc uint32, b []byte) uint32 {
	for i := 0; i < len(b); i += 2 {
		acc += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return acc
}

// fold ends a checksum.
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

// is reports whether, of SYN, ACK, FIN and RST, the segment has exactly flags.
func (s Segment) is(flags uint8) bool { return s.Flags&(flagSYN|flagACK|flagFIN|flagRST) == flags }

// opener returns the bare ACK that a target sends outward before a SYN is
// injected. A tracker that picks connections up from their middle takes it for
// such a middle, and the kernel's SYN/ACK behind it for more of the same. The
// client that gets it is in SYN-SENT and drops it without a word, because it
// acknowledges the client's SYN (RFC 9293, section 3.10.7.3).
func opener(syn Segment) Segment {
	return Segment{Src: syn.Dst, Dst: syn.Src, Seq: syn.Seq, Ack: syn.Seq + 1, Flags: flagACK, Window: 1024}
}

// echo returns the kernel's SYN/ACK as a bare SYN: a first segment that every
// tracker understands. The client sees a simultaneous open with the same
// sequence number and options as in the SYN/ACK; there is nothing to echo of
// its timestamp yet.
func echo(synack Segment) Segment {
	synack.Flags, synack.Ack = flagSYN, 0
	synack.Options = bytes.Clone(synack.Options)
	if ts := option(synack.Options, 8); len(ts) == 8 {
		clear(ts[4:])
	}
	return synack
}

// finish returns the SYN/ACK that a client in simultaneous open sends as the ACK
// that the target's kernel waits for. The window of a SYN is not scaled, that of
// an ACK is.
func finish(synack Segment) Segment {
	if scale := option(synack.Options, 3); len(scale) == 1 {
		synack.Window >>= min(scale[0], 14)
	}
	synack.Flags = flagACK
	synack.Seq++
	return synack
}

// option returns the value of the first option of a kind, as a part of options,
// or nil.
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
