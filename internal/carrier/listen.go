package carrier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"

	"github.com/isthmus-grid/isthmus/overlay"
)

// ListenIn listens on ip inside the port range. It begins at a random port, so that the processes
// of a host do not all compete for the first, and tries every port before it fails with
// overlay.ErrPortRangeFull. The zero range leaves the port to the kernel. ctx ends the search.
// MPTCP is off, and so is keepalive until Tune sets it.
func ListenIn(ctx context.Context, ip netip.Addr, ports overlay.Ports) (*net.TCPListener, error) {
	if ports == (overlay.Ports{}) {
		return listen(ctx, netip.AddrPortFrom(ip, 0))
	}
	if err := ports.Check(); err != nil {
		return nil, err
	}
	n := int(ports.Last) - int(ports.First) + 1
	start := rand.IntN(n)
	for i := range n {
		port := ports.First + uint16((start+i)%n)
		ln, err := listen(ctx, netip.AddrPortFrom(ip, port))
		if err == nil {
			return ln, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err // the next port would fail in the same way
		}
	}
	return nil, fmt.Errorf("listen on %v: %w: all %d ports of %v are in use; "+
		"widen the range in the site's profile and firewall, or end what listens there (ss -ltnp)",
		ip, overlay.ErrPortRangeFull, n, ports)
}

func listen(ctx context.Context, addr netip.AddrPort) (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: limiter(ctx, 0)}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(ctx, "tcp", addr.String())
	switch {
	case err == nil:
		return ln.(*net.TCPListener), nil
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w; ports below 1024 need CAP_NET_BIND_SERVICE", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%w; no interface of this host has the address %v", err, addr.Addr())
	}
	return nil, err
}
