package reflector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
)

// Sockets are a UDP socket for STUN and a TCP listener for observe frames on the same port, which
// differs from the reflector's main port: a site that reaches both lets more than one port out.
type Sockets struct {
	udp net.PacketConn
	tcp net.Listener
	due *schedule // what udp must send as late answers
}

// Listen opens both sockets on addr or none. Port 0 selects a free one.
func Listen(ctx context.Context, addr netip.AddrPort) (*Sockets, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	for try := 0; ; try++ {
		ln, err := lc.Listen(ctx, "tcp", addr.String())
		if err != nil {
			return nil, fmt.Errorf("stun_listen %v: %w", addr, err)
		}
		at := netip.AddrPortFrom(addr.Addr(), addrPort(ln.Addr()).Port())
		pc, err := lc.ListenPacket(ctx, "udp", at.String())
		if err == nil {
			return &Sockets{pc, ln, newSchedule()}, nil
		}
		ln.Close()
		if addr.Port() != 0 || try == 9 { // a free TCP port may be in use for UDP
			return nil, fmt.Errorf("stun_listen %v: %w", at, err)
		}
	}
}

// Port returns the port of both sockets.
func (s *Sockets) Port() uint16 { return addrPort(s.tcp.Addr()).Port() }

// Serves reports whether the sockets take what is sent over ip's version of IP: those of [::] serve
// both.
func (s *Sockets) Serves(ip netip.Addr) bool {
	a := addrPort(s.udp.LocalAddr()).Addr()
	return a.Is6() && a.IsUnspecified() || a.Unmap().Is4() == ip.Unmap().Is4()
}

// Close closes both sockets, for an owner that does not serve them.
func (s *Sockets) Close() error { return errors.Join(s.udp.Close(), s.tcp.Close()) }

// Serve answers STUN and observe frames, and sends delayed answers, until ctx is done or a socket
// fails, and closes both sockets. It returns when everything it started has ended.
func (s *Sockets) Serve(ctx context.Context, stun *stunserver.Server, observer *Observer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var tcp error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		tcp = observer.Serve(ctx, s.tcp)
	})
	wg.Go(func() { s.due.serve(ctx, s.udp) })
	udp := stun.Serve(ctx, s.udp)
	cancel()
	wg.Wait()
	s.udp.Close()
	return errors.Join(udp, tcp)
}
