package carrier

import (
	"os"

	"golang.org/x/sys/unix"
)

// limitSegments limits the segments of a socket, both those it sends and those it requests, so that
// packets have at most mtu bytes; 0 is no limit.
func limitSegments(fd uintptr, ipv6 bool, mtu int) error {
	if mtu == 0 {
		return nil
	}
	return os.NewSyscallError("TCP_MAXSEG", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, segmentOf(mtu, ipv6)))
}
