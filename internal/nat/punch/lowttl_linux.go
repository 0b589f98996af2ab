package punch

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const lowTTLSupported = true

// lowTTL lets a datagram pass the own gateway and expire at the next router.
const lowTTL = 2

// sendLowTTL sends a STUN Binding indication, which is not answered, with a low TTL of its own. The
// socket's TTL is not changed, because ICE and QUIC use the socket at the same time.
func sendLowTTL(socket *net.UDPConn, to netip.AddrPort) error {
	indication := []byte{0x00, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42, 19: 0} // RFC 8489 section 5
	rand.Read(indication[8:])
	_, _, err := socket.WriteMsgUDPAddrPort(indication, ttlMessage(to.Addr()), to)
	return err
}

// ttlMessage returns the control message that sets a datagram's TTL or hop limit.
func ttlMessage(to netip.Addr) []byte {
	level, kind := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_HOPLIMIT)
	if to.Is4() {
		level, kind = unix.IPPROTO_IP, unix.IP_TTL
	}
	b := make([]byte, unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], lowTTL)
	return b
}
