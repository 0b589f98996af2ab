package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/overlay"
)

// serveSTUN runs the STUN server in wg until ctx ends, and returns its sockets; nil if it is
// disabled or cannot listen, in which case the proxy relays all the same.
func serveSTUN(ctx context.Context, wg *sync.WaitGroup, addr netip.AddrPort, s *Server) *reflector.Sockets {
	if !addr.IsValid() {
		return nil
	}
	sockets, err := reflector.Listen(ctx, addr)
	if err != nil {
		s.log.Warn("no STUN server: sites cannot learn their UDP mapping here; if a broker on this host has the port, set stun_listen to another or to \"\"", "error", err)
		return nil
	}
	wg.Go(func() {
		if err := sockets.Serve(ctx, s.stun, s.observer); err != nil {
			s.log.Error("the STUN server ended", "error", err)
		}
	})
	return sockets
}

// callBackServer calls back for the broker.
type callBackServer struct {
	controlpb.UnimplementedReflectorServer
	log   *slog.Logger
	point func() reflector.Point
}

// CallBack implements controlpb.ReflectorServer. The broker has checked that the address belongs to
// the requester; only a proxy whose broker is on its own host calls loopback addresses.
func (c callBackServer) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	s := control.SessionOf(ctx)
	if role := s.Peer().Role; role != control.RoleBroker {
		return nil, control.Status(fmt.Errorf("%w: a %v may not request calls back", overlay.ErrForbidden, role))
	}
	target, err := reflector.ParseTarget(req, s.LocalAddr().Addr().IsLoopback())
	if err != nil {
		return nil, control.Status(err)
	}
	resp := c.point().CallBack(ctx, target)
	c.log.Info("call-back", "to", target.To.String(), "udp", target.UDP, "outcome", resp.Outcome.String(), "text", resp.Text)
	return resp, nil
}
