package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// A splitProxy is a middlebox of a site that splits TCP connections to other sites in two (RFC 3135, section 2.3): the
// gateway's rules lead to it what a node sends elsewhere, it answers in the name of whom the node means, and connects to that
// itself. A node is connected before anybody else knows.
type splitProxy struct {
	ln   net.Listener
	dial func(context.Context, netip.AddrPort) (net.Conn, error) // from the gateway
}

// newSplitProxy makes the proxy on a gateway whose rules are splitTCP.
func newSplitProxy(h *Host) (*splitProxy, error) {
	p := &splitProxy{dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) { return h.Dial(ctx, "tcp", to.String()) }}
	err := h.Do(func() (err error) {
		p.ln, err = net.ListenTCP("tcp4", &net.TCPAddr{Port: splitPort})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("split proxy of %s: %w", h.Name(), err)
	}
	return p, nil
}

// serve accepts connections until ctx is done or its listener fails; see serveClients.
func (p *splitProxy) serve(ctx context.Context) error {
	return serveClients(ctx, p.ln, "split proxy", func(ctx context.Context, c net.Conn) { p.serveClient(ctx, c.(*net.TCPConn)) })
}

// serveClient owns c until the connection ends or ctx is done.
func (p *splitProxy) serveClient(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	to, err := meant(c)
	if err != nil || to == c.LocalAddr().(*net.TCPAddr).AddrPort() { // for the proxy itself
		return
	}
	dialCtx, cancel := context.WithTimeout(ctx, proxyPatience)
	up, err := p.dial(dialCtx, to)
	cancel()
	if err != nil {
		c.SetLinger(0) // the node was told that it is connected
		return
	}
	defer up.Close()
	defer context.AfterFunc(ctx, func() { up.Close() })()
	splice(c, up.(*net.TCPConn))
}

// soOriginalDst is SO_ORIGINAL_DST of linux/netfilter_ipv4.h.
const soOriginalDst = 80

// meant returns the destination of a connection before the gateway's rules changed it.
func meant(c *net.TCPConn) (to netip.AddrPort, err error) {
	var raw syscall.RawConn
	if raw, err = c.SyscallConn(); err != nil {
		return to, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		var m *unix.IPv6Mreq // its first bytes are the kernel's sockaddr_in
		if m, err = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, soOriginalDst); err == nil {
			a := m.Multiaddr
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3]))
		}
	})
	if controlErr != nil {
		err = controlErr
	}
	return to, err
}
