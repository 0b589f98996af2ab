package carrier

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/isthmus-grid/isthmus/overlay"
)

// MinMTU is what every way that carries IPv4 lets through (RFC 791, section 3.2),
// and minMTU6 what one that carries IPv6 does (RFC 8200, section 5). usualMTU
// passes through all tunnels that are met in practice.
const (
	MinMTU   = overlay.SmallPacket
	minMTU6  = 1280
	usualMTU = 1280
)

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

// smallKey marks a context of WithSmallPackets.
type smallKey struct{}

// WithSmallPackets returns a context in which this package, and those that make
// sockets for the same connection, bound its packets to MinMTU bytes: larger ones
// seem to vanish between the two ends. It is a property of the request, which
// passes through techniques that know nothing of it, as its deadline does.
func WithSmallPackets(ctx context.Context) context.Context {
	return context.WithValue(ctx, smallKey{}, true)
}

// SmallPackets reports whether ctx asks for small packets.
func SmallPackets(ctx context.Context) bool { return ctx.Value(smallKey{}) != nil }

// LimitSocket applies LimitMTU's limit, or that of WithSmallPackets, to a TCP
// socket that does not connect yet; a listener's counts for what it accepts next.
func LimitSocket(ctx context.Context, fd uintptr, ipv6 bool) error {
	return limitSegments(fd, ipv6, limit(ctx, 0))
}

// limit returns the least of mtu, LimitMTU's limit and that of ctx; 0 is none.
func limit(ctx context.Context, mtu int) int {
	if all := int(pathMTU.Load()); mtu == 0 || all != 0 && all < mtu {
		mtu = all
	}
	if SmallPackets(ctx) {
		mtu = MinMTU // and nothing is less
	}
	return mtu
}

// limiter is the Control of a net.Dialer or net.ListenConfig that limits segments
// to packets of mtu bytes, or of what limit says.
func limiter(ctx context.Context, mtu int) func(network, address string, c syscall.RawConn) error {
	mtu = limit(ctx, mtu)
	return func(network, _ string, c syscall.RawConn) (err error) {
		if outer := c.Control(func(fd uintptr) { err = limitSegments(fd, strings.HasSuffix(network, "6"), mtu) }); outer != nil {
			return outer
		}
		return err
	}
}

// segmentOf returns the largest segment that fits into packets of mtu bytes, of
// which a version of IP has a least.
func segmentOf(mtu int, ipv6 bool) int {
	if ipv6 {
		mtu = max(mtu, minMTU6)
	}
	return mtu - headers(ipv6)
}

// headers are the bytes of an IP and a TCP header without options.
func headers(ipv6 bool) int {
	if ipv6 {
		return 60
	}
	return 40
}
