package wan

import "encoding/binary"

// A sighting is what the first bytes of an IP packet reveal.
type sighting struct {
	wire     int // bytes of IP packets on the wire
	segments int // packets on the wire
	messages int // see the package comment
}

const (
	protoTCP = 6
	protoUDP = 17
	flagPSH  = 0x08
)

// inspect parses the first bytes, head, of an IP packet of total bytes. Only if super is set may
// the packet be a super-packet, one that the kernel will segment to mtu; the kernel does not say
// into how many, so all but the last are assumed to be full.
func inspect(head []byte, total, mtu int, super bool) sighting {
	one := sighting{wire: total, segments: 1}
	proto, l3, ok := ipHeader(head)
	if !ok || len(head) < l3+8 {
		return one
	}
	l4 := 8
	switch {
	case proto == protoUDP:
	case proto == protoTCP && len(head) >= l3+14:
		l4 = int(head[l3+12]>>4) * 4
	default:
		return one
	}
	payload := total - l3 - l4
	if payload <= 0 {
		return one
	}
	if room := mtu - l3 - l4; super && total > mtu && room > 0 {
		one.segments = (payload + room - 1) / room
		one.wire += (one.segments - 1) * (l3 + l4)
	}
	if proto == protoUDP {
		one.messages = one.segments
	} else if head[l3+13]&flagPSH != 0 {
		one.messages = 1
	}
	return one
}

// ipHeader returns the transport protocol of an IP packet and where its header starts. ok is false
// for a later fragment; an IPv6 extension header counts as the protocol.
func ipHeader(head []byte) (proto byte, length int, ok bool) {
	if len(head) < 20 {
		return 0, 0, false
	}
	switch head[0] >> 4 {
	case 4:
		length = int(head[0]&15) * 4
		first := binary.BigEndian.Uint16(head[6:])&0x1fff == 0
		return head[9], length, length >= 20 && first
	case 6:
		return head[6], 40, true
	}
	return 0, 0, false
}
