package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// path is two hosts at a distance, and perhaps a third.
type path struct{ *runner.DistantHosts }

// benchKey is the key of the job.
var benchKey = jobkey.Key{Name: "stripe"}

// runLink is one link of carriers over the path.
func (p *path) runLink(ctx context.Context, congestion string, carriers int) (result, error) {
	var ends [2]rank
	for i := range ends {
		s := &socket{space: p.Hosts[i], congestion: congestion, peer: netip.AddrPortFrom(star.Addr(1-i), port)}
		if err := s.listen(netip.AddrPortFrom(star.Addr(i), port)); err != nil {
			return result{}, err
		}
		defer s.Close()
		ends[i] = rank{self: link.NewIdentity(benchKey, uint32(i), 1), connector: s}
	}
	return flow(ctx, ends[0], ends[1], carriers)
}

// port is the port of both hosts.
const port = 7000

// socket is an overlay.Connector on one host: a listener, and dials to the other host's.
type socket struct {
	space      *star.Space
	congestion string
	peer       netip.AddrPort
	ln         *net.TCPListener

	relay  netip.AddrPort    // if any
	first  overlay.Technique // taken where every technique is allowed; 0: Direct
	direct chan struct{}     // if first is the relay: direct paths are found once it is closed; nil: never
}

func (s *socket) listen(at netip.AddrPort) error {
	return s.space.Do(func() (err error) {
		s.ln, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
		return err
	})
}

func (s *socket) Close() error { return s.ln.Close() }

func (s *socket) Dial(ctx context.Context, _ overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	technique := cmp.Or(s.first, overlay.Direct)
	if technique == overlay.Relay && ways == overlay.DirectOnly {
		select {
		case <-s.direct:
			technique = overlay.Direct
		case <-ctx.Done():
			return overlay.Carrier{}, overlay.ErrTimeout
		}
	}
	to := s.peer
	if technique == overlay.Relay {
		to = s.relay
	}
	var c *net.TCPConn
	err := s.space.Do(func() (err error) {
		c, err = net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return overlay.Carrier{}, err
	}
	return s.carrier(c, technique)
}

func (s *socket) Accept(ctx context.Context) (overlay.Carrier, error) {
	defer context.AfterFunc(ctx, func() { s.ln.Close() })()
	c, err := s.ln.AcceptTCP()
	if err != nil {
		return overlay.Carrier{}, err
	}
	technique := overlay.Direct
	if s.relay.IsValid() && c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap() == s.relay.Addr() {
		technique = overlay.Relay
	}
	return s.carrier(c, technique)
}

func (s *socket) carrier(c *net.TCPConn, technique overlay.Technique) (overlay.Carrier, error) {
	if err := setCongestion(c, s.congestion); err != nil {
		c.Close()
		return overlay.Carrier{}, err
	}
	return overlay.Carrier{Conn: c, Path: overlay.Path{Technique: technique}}, nil
}

func setCongestion(c *net.TCPConn, name string) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	})
	return errors.Join(failed, err)
}

// congestions returns which of the measured controls this system has, and its default.
func congestions() (measured []string, system string, err error) {
	available, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return nil, "", err
	}
	for _, want := range []string{"cubic", "bbr"} {
		for _, name := range strings.Fields(string(available)) {
			if name == want {
				measured = append(measured, name)
			}
		}
	}
	if len(measured) == 0 {
		return nil, "", fmt.Errorf("neither cubic nor bbr is among %s", available)
	}
	return measured, strings.TrimSpace(string(text)), nil
}
