package doctor

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/overlay"
)

// listen listens on a port of a network, tcp4 or tcp6, from which it is also possible to connect: one of
// the site's open range, if it has one. It tries fifty of them.
func listen(ctx context.Context, network string, p *overlay.SiteProfile) (net.Listener, error) {
	first, last := 0, 0
	if p != nil && p.Inbound == overlay.InboundPorts {
		first, last = int(p.Ports.First), min(int(p.Ports.Last), int(p.Ports.First)+50)
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return err
	}}
	lc.SetMultipathTCP(false)
	var err error
	for port := last; port >= first; port-- { // daemons use the low ones first
		var ln net.Listener
		if ln, err = lc.Listen(ctx, network, fmt.Sprintf(":%d", port)); err == nil {
			return ln, nil
		}
	}
	return nil, err
}
