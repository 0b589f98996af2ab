package carrier

import (
	"strings"
	"sync/atomic"
	"syscall"
)

// MinMTU is what every way must let through (RFC 8200, section 5).
const MinMTU = 1280

// pathMTU is LimitMTU's. It is the process's because it is a fact about where
// the process runs, like a setting of the kernel, and not about one connection.
var pathMTU atomic.Uint32

// LimitMTU makes every socket that this package makes from now on, and those
// given to LimitSocket, say and send segments that fit into packets of so many
// bytes; 0 is no limit. It is for hosts of sites from which larger packets vanish
// without a word, so that the kernel cannot find out (RFC 2923, section 2.1).
func LimitMTU(bytes uint16) {
	if bytes != 0 && bytes < MinMTU {
		bytes = MinMTU
	}
	pathMTU.Store(uint32(bytes))
}

// LimitSocket applies LimitMTU's limit to a TCP socket that neither connects nor
// listens yet.
func LimitSocket(fd uintptr, ipv6 bool) error { return limitSegments(fd, ipv6, int(pathMTU.Load())) }

// limiter is the Control of a net.Dialer or net.ListenConfig that limits segments
// to packets of mtu bytes, or of LimitMTU's if that is less.
func limiter(mtu int) func(network, address string, c syscall.RawConn) error {
	if all := int(pathMTU.Load()); mtu == 0 || all != 0 && all < mtu {
		mtu = all
	}
	return func(network, _ string, c syscall.RawConn) (err error) {
		if outer := c.Control(func(fd uintptr) { err = limitSegments(fd, strings.HasSuffix(network, "6"), mtu) }); outer != nil {
			return outer
		}
		return err
	}
}

// headers are the bytes of an IP and a TCP header without options.
func headers(ipv6 bool) int {
	if ipv6 {
		return 60
	}
	return 40
}
