package multihome

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// routed asks the kernel whether one of its routes leads from a source to a destination
// (rtnetlink(7), RTM_GETROUTE). It asks for the route itself and not for what would be done with a
// packet: without a route the kernel considers any destination a neighbour on the given interface.
func routed(to netip.Addr, from Source) bool {
	i, err := net.InterfaceByName(from.Interface)
	if err != nil {
		return false
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(int64(time.Second)) // the kernel answers at once
	answer := make([]byte, os.Getpagesize())
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.Sendto(fd, question(to, from.Addr, i.Index), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
	)
	if err != nil {
		return false
	}
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return false
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	return err == nil && len(messages) > 0 && messages[0].Header.Type == unix.RTM_NEWROUTE
}

// question returns the message that asks for the route.
func question(to, from netip.Addr, index int) []byte {
	family := byte(unix.AF_INET)
	if to.Is6() {
		family = unix.AF_INET6
	}
	attribute := func(b []byte, kind uint16, value []byte) []byte {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
		return append(binary.NativeEndian.AppendUint16(b, kind), value...) // the values' lengths are multiples of 4
	}
	bits := byte(to.BitLen())
	body := []byte{family, bits, bits, 0, 0, 0, 0, 0} // struct rtmsg
	body = binary.NativeEndian.AppendUint32(body, unix.RTM_F_FIB_MATCH)
	body = attribute(body, unix.RTA_DST, to.AsSlice())
	body = attribute(body, unix.RTA_SRC, from.AsSlice())
	body = attribute(body, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
	head := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	head = binary.NativeEndian.AppendUint16(head, unix.RTM_GETROUTE)
	head = binary.NativeEndian.AppendUint16(head, unix.NLM_F_REQUEST)
	head = binary.NativeEndian.AppendUint64(head, 1) // sequence number and port
	return append(head, body...)
}

// Bind binds a socket that is not connected yet to a source's interface; the dialler binds the
// address. Kernels before 5.7 forbid that to processes without CAP_NET_RAW: where routes depend on
// source addresses it is not needed.
func Bind(fd uintptr, s Source) error {
	err := unix.BindToDevice(int(fd), s.Interface)
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	return os.NewSyscallError("setsockopt SO_BINDTODEVICE", err)
}
