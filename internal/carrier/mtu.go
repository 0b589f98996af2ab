package carrier

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/isthmus-grid/isthmus/overlay"
)

// MinMTU is what every path that carries IPv4 passes (RFC 791, section 3.2), and minMTU6 what one
// that carries IPv6 does (RFC 8200, section 5). usualMTU passes through all tunnels found in
// practice.
const (
	MinMTU   = overlay.SmallPacket
	minMTU6  = 1280
	usualMTU = 1280
)

// pathMTU is set by LimitMTU. It is global because it is a property of where the process runs, like
// a setting of the kernel, and not of one connection.
var pathMTU atomic.Uint32

// LimitMTU makes every socket that this package makes from now on, and those given to LimitSocket,
// announce and send segments that fit into packets of the given number of bytes; 0 is no limit. It
// is for hosts of sites from which larger packets vanish silently, so that the kernel cannot detect
// it (RFC 2923, section 2.1).
func LimitMTU(bytes uint16) {
	if bytes != 0 && bytes < MinMTU {
		bytes = MinMTU
	}
	pathMTU.Store(uint32(bytes))
}

// smallKey marks a context of WithSmallPackets.
type smallKey struct{}

// WithSmallPackets returns a context in which this package, and those that make sockets for the
// same connection, limit its packets to MinMTU bytes, because larger ones seem to vanish between
// the two ends. It is a property of the request, which passes through techniques that do not know
// it, as its deadline does.
func WithSmallPackets(ctx context.Context) context.Context {
	return context.WithValue(ctx, smallKey{}, true)
}

// SmallPackets reports whether ctx requests small packets.
func SmallPackets(ctx context.Context) bool { return ctx.Value(smallKey{}) != nil }

// LimitSocket applies LimitMTU's limit, or that of WithSmallPackets, to a TCP socket that is not
// connected yet; a listener's applies to the connections it accepts next.
func LimitSocket(ctx context.Context, fd uintptr, ipv6 bool) error {
	return limitSegments(fd, ipv6, limit(ctx, 0))
}

// limit returns the minimum of mtu, LimitMTU's limit and that of ctx; 0 is none.
func limit(ctx context.Context, mtu int) int {
	if all := int(pathMTU.Load()); mtu == 0 || all != 0 && all < mtu {
		mtu = all
	}
	if SmallPackets(ctx) {
		mtu = MinMTU // the minimum
	}
	return mtu
}

// limiter returns the Control of a net.Dialer or net.ListenConfig that limits segments to packets
// of mtu bytes, or to the limit.
func limiter(ctx context.Context, mtu int) func(network, address string, c syscall.RawConn) error {
	mtu = limit(ctx, mtu)
	return func(network, _ string, c syscall.RawConn) (err error) {
		if outer := c.Control(func(fd uintptr) { err = limitSegments(fd, strings.HasSuffix(network, "6"), mtu) }); outer != nil {
			return outer
		}
		return err
	}
}

// segmentOf returns the largest segment that fits into packets of mtu bytes, but at least of the
// minimum MTU of the IP version.
func segmentOf(mtu int, ipv6 bool) int {
	if ipv6 {
		mtu = max(mtu, minMTU6)
	}
	return mtu - headers(ipv6)
}

// headers returns the size in bytes of an IP and a TCP header without options.
func headers(ipv6 bool) int {
	if ipv6 {
		return 60
	}
	return 40
}
