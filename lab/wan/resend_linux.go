package wan

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A resender sends copies of whole IP packets. They leave the namespace as its own output, so the
// forward rules do not see them again.
type resender struct {
	v4, v6 int // raw sockets; v6 is -1 if the kernel has no IPv6
}

// stampArrivals makes the kernel stamp packets when they arrive, which it does for all as long as
// any socket wants stamps; fd is such a socket.
func stampArrivals(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("wan: SO_TIMESTAMPNS: %w", err)
	}
	return nil
}

func openResender() (*resender, error) {
	const kind = unix.SOCK_RAW | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	v4, err := unix.Socket(unix.AF_INET, kind, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("wan: raw socket (needs CAP_NET_RAW): %w", err)
	}
	v6, err := unix.Socket(unix.AF_INET6, kind, unix.IPPROTO_RAW)
	if err != nil {
		v6 = -1
	}
	r := &resender{v4: v4, v6: v6}
	if err := stampArrivals(v4); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// send routes and sends ip, a whole IP packet with its checksums in place.
func (r *resender) send(ip []byte) error {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		return unix.Sendto(r.v4, ip, 0, &unix.SockaddrInet4{Addr: [4]byte(ip[16:20])})
	case len(ip) >= 40 && ip[0]>>4 == 6 && r.v6 >= 0:
		return unix.Sendto(r.v6, ip, 0, &unix.SockaddrInet6{Addr: [16]byte(ip[24:40])})
	}
	return errors.New("not an IP packet this kernel can send")
}

func (r *resender) close() {
	unix.Close(r.v4)
	if r.v6 >= 0 {
		unix.Close(r.v6)
	}
}
