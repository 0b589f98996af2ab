package wan

import "testing"

// ipv4 returns the head of an IPv4 packet with the given transport header.
func ipv4(proto byte, fragment uint16, transport ...byte) []byte {
	b := make([]byte, 20)
	b[0], b[9] = 0x45, proto
	be.PutUint16(b[6:], fragment)
	return append(b, transport...)
}

func ipv6(next byte, transport ...byte) []byte {
	b := make([]byte, 40)
	b[0], b[6] = 0x60, next
	return append(b, transport...)
}

// tcpHeader returns 32 bytes of TCP header (with timestamps) carrying flags.
func tcpHeader(flags byte) []byte {
	b := make([]byte, 32)
	b[12], b[13] = 8<<4, flags
	return b
}

func TestInspect(t *testing.T) {
	const push, ack = 0x18, 0x10
	udp := make([]byte, 8)
	for _, c := range []struct {
		name  string
		head  []byte
		total int
		super bool
		want  sighting
	}{
		{"a write", ipv4(protoTCP, 0, tcpHeader(push)...), 152, false, sighting{152, 1, 1}},
		{"middle of a write", ipv4(protoTCP, 0, tcpHeader(ack)...), 1500, false, sighting{1500, 1, 0}},
		{"acknowledgement", ipv4(protoTCP, 0, tcpHeader(ack)...), 52, false, sighting{52, 1, 0}},
		{"push without data", ipv4(protoTCP, 0, tcpHeader(push)...), 52, false, sighting{52, 1, 0}},
		{"super-packet", ipv4(protoTCP, 0, tcpHeader(push)...), 52 + 2*1448 + 1, true, sighting{52 + 2*1448 + 1 + 2*52, 3, 1}},
		{"full super-packet", ipv4(protoTCP, 0, tcpHeader(push)...), 52 + 2*1448, true, sighting{52 + 2*1448 + 52, 2, 1}},
		{"one that fits", ipv4(protoTCP, 0, tcpHeader(push)...), 1500, true, sighting{1500, 1, 1}},
		{"datagram", ipv4(protoUDP, 0, udp...), 128, false, sighting{128, 1, 1}},
		{"empty datagram", ipv4(protoUDP, 0, udp...), 28, false, sighting{28, 1, 0}},
		{"datagrams", ipv4(protoUDP, 0, udp...), 28 + 3*1472, true, sighting{28 + 3*1472 + 2*28, 3, 3}},
		{"first fragment", ipv4(protoUDP, 0x2000, udp...), 1500, false, sighting{1500, 1, 1}},
		{"later fragment", ipv4(protoUDP, 0x2001, udp...), 1500, false, sighting{1500, 1, 0}},
		{"ICMP", ipv4(1, 0, udp...), 84, false, sighting{84, 1, 0}},
		{"IPv6 write", ipv6(protoTCP, tcpHeader(push)...)[:64], 172, false, sighting{172, 1, 1}},
		{"IPv6 datagram", ipv6(protoUDP, udp...), 100, false, sighting{100, 1, 1}},
		{"nothing", nil, 0, false, sighting{0, 1, 0}},
		{"neither 4 nor 6", make([]byte, 40), 40, false, sighting{40, 1, 0}},
		{"IPv4 header too short", append([]byte{0x41}, ipv4(protoUDP, 0, udp...)[1:]...), 128, false, sighting{128, 1, 0}},
		{"cut in the TCP header", ipv4(protoTCP, 0, tcpHeader(push)[:13]...), 152, false, sighting{152, 1, 0}},
	} {
		if got := inspect(c.head, c.total, 1500, c.super); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(ipv4(protoTCP, 0, tcpHeader(flagPSH)...), 3000, 1500)
	f.Add(ipv6(protoUDP, make([]byte, 24)...), 3000, 1280)
	f.Fuzz(func(t *testing.T, head []byte, total, mtu int) {
		total, mtu = total&0xffff, mtu&0xffff
		s := inspect(head, total, mtu, true)
		if s.segments < 1 || s.wire < total || s.messages < 0 || s.messages > s.segments {
			t.Errorf("%+v of %d bytes", s, total)
		}
	})
}
