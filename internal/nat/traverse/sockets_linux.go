package traverse

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sockets are the packet socket that sees SYNs and the raw sockets that send segments. The raw
// sockets take packets with their IP header: that is the meaning of the protocol IPPROTO_RAW, in
// raw(7) as in net/ipv6/af_inet6.c.
type sockets struct {
	packet     *os.File
	raw4, raw6 *os.File // raw6 is nil where the kernel has no IPv6
}

// packetBuffer is the packet socket's buffer in bytes: room for a thousand simultaneous SYNs. More
// are dropped, and retransmitted by their kernels.
const packetBuffer = 1 << 20

func openSockets() (*sockets, error) {
	packet, err := packetSocket()
	if err != nil {
		return nil, privilege("packet socket", err)
	}
	s := &sockets{packet: packet}
	if s.raw4, err = rawSocket(unix.AF_INET); err == nil {
		s.raw6, err = rawSocket(unix.AF_INET6)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			err = nil
		}
	}
	if err != nil {
		s.close()
		return nil, privilege("raw socket", err)
	}
	return s, nil
}

func rawSocket(family int) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return os.NewFile(uintptr(fd), "raw socket"), nil
}

// packetSocket makes a packet socket that receives only what synFilter passes, from its very first
// packet on: it has no protocol until the filter is in place.
func packetSocket() (*os.File, error) {
	filter, err := synFilter()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	code := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		code[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, packetBuffer) // as much as is permitted
	err = os.NewSyscallError("SO_ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program))
	if err == nil {
		// Only sockets for all protocols see outgoing packets.
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian16(unix.ETH_P_ALL)}))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "packet socket"), nil
}

// bigEndian16 returns v in network order; all systems that the suite is built for are
// little-endian.
func bigEndian16(v uint16) uint16 { return v<<8 | v>>8 }

// privilege explains why this process cannot have a socket. A service manager that restricts
// address families makes the kernel report that the family does not exist.
func privilege(what string, err error) error {
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("%w, and packet sockets: no %s: %w; install traversing.conf beside the unit (systemd: RestrictAddressFamilies=AF_PACKET)", ErrPrivilege, what, err)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: no %s: %w; give the helper that capability (systemd: AmbientCapabilities=CAP_NET_RAW)", ErrPrivilege, what, err)
	}
	return fmt.Errorf("traversing TCP: no %s: %w", what, err)
}

func (s *sockets) close() {
	for _, f := range []*os.File{s.packet, s.raw4, s.raw6} {
		if f != nil {
			f.Close()
		}
	}
}

// interrupt makes receive return os.ErrDeadlineExceeded.
func (s *sockets) interrupt() { s.packet.SetReadDeadline(time.Unix(1, 0)) }

// receive waits for the next packet and reports whether it was outgoing.
func (s *sockets) receive(buf []byte) (n int, outgoing bool, err error) {
	raw, err := s.packet.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	var from unix.Sockaddr
	var received error
	err = raw.Read(func(fd uintptr) bool {
		n, from, received = unix.Recvfrom(int(fd), buf, 0)
		return received != unix.EAGAIN && received != unix.EINTR
	})
	if err == nil {
		err = os.NewSyscallError("recvfrom", received)
	}
	if link, ok := from.(*unix.SockaddrLinklayer); ok {
		outgoing = link.Pkttype == unix.PACKET_OUTGOING
	}
	return n, outgoing, err
}

// send sends a segment: to the network, or to the local kernel if the destination is an address of
// this host.
func (s *sockets) send(seg Segment) error {
	socket, to := s.raw4, unix.Sockaddr(nil)
	if dst := seg.Dst.Addr(); dst.Is4() {
		to = &unix.SockaddrInet4{Addr: dst.As4()}
	} else {
		socket, to = s.raw6, &unix.SockaddrInet6{Addr: dst.As16()}
	}
	fail := func(err error) error {
		return fmt.Errorf("sending a segment from %v to %v: %w", seg.Src, seg.Dst, err)
	}
	if socket == nil {
		return fail(unix.EAFNOSUPPORT)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return fail(err)
	}
	packet := seg.Append(make([]byte, 0, MaxPacket))
	var sent error
	err = raw.Control(func(fd uintptr) { // never blocks: the buffer is emptied at once or the packet is lost, as packets may be
		sent = unix.Sendto(int(fd), packet, 0, to)
	})
	if errors.Is(sent, unix.EPERM) {
		sent = fmt.Errorf("%w: a firewall on this host drops what leaves it", sent)
	}
	if err = errors.Join(err, sent); err != nil {
		return fail(err)
	}
	return nil
}
